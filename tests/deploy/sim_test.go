package deploy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

const root = "../.."

// documents returns the documents of a file of manifests.
func documents(t *testing.T, file string) [][]byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Split(data, []byte("\n---\n"))
}

// simJob returns the manifest of deploy/sim. A field that the types do not have is an error, as is one that
// occurs twice.
func simJob(t *testing.T) (job batchv1.Job, claim corev1.PersistentVolumeClaim) {
	t.Helper()
	docs := documents(t, "deploy/sim/job.yaml")
	if len(docs) != 2 {
		t.Fatalf("%d documents, want a claim and a job", len(docs))
	}
	for i, into := range []any{&claim, &job} {
		if err := yaml.UnmarshalStrict(docs[i], into); err != nil {
			t.Fatalf("document %d: %v", i+1, err)
		}
	}
	return job, claim
}

// Strict decoding finds what a cluster would refuse: a field with a typing error.
func TestStrictDecodingBites(t *testing.T) {
	data := documents(t, "deploy/sim/job.yaml")[1]
	for _, wrong := range []string{"completionMod: Indexed", "completionMode: Indexed\n  completionMode: Indexed"} {
		var job batchv1.Job
		if err := yaml.UnmarshalStrict(bytes.Replace(data, []byte("completionMode: Indexed"), []byte(wrong), 1), &job); err == nil {
			t.Errorf("%q is accepted", wrong)
		}
	}
}

// The numbers of the job agree with one another, and with the rules of the API that its types do not hold.
func TestSimJob(t *testing.T) {
	job, claim := simJob(t)
	s, pod := job.Spec, job.Spec.Template.Spec
	if job.APIVersion != "batch/v1" || job.Kind != "Job" || claim.APIVersion != "v1" || claim.Kind != "PersistentVolumeClaim" {
		t.Errorf("%v, %v", job.TypeMeta, claim.TypeMeta)
	}
	if *s.CompletionMode != batchv1.IndexedCompletion || *s.Completions < 1 || *s.Parallelism > *s.Completions || *s.MaxFailedIndexes > *s.Completions || s.BackoffLimitPerIndex == nil {
		t.Errorf("%v, %d completions, %d at a time, at most %d failed", *s.CompletionMode, *s.Completions, *s.Parallelism, *s.MaxFailedIndexes)
	}
	// A policy for failed pods needs pods that are not restarted in place.
	if pod.RestartPolicy != corev1.RestartPolicyNever || len(pod.Containers) != 1 {
		t.Errorf("%v, %d containers", pod.RestartPolicy, len(pod.Containers))
	}
	c := pod.Containers[0]
	statuses := map[int32]batchv1.PodFailurePolicyAction{}
	for _, rule := range s.PodFailurePolicy.Rules {
		if rule.OnExitCodes == nil {
			continue
		}
		if *rule.OnExitCodes.ContainerName != c.Name || rule.OnExitCodes.Operator != batchv1.PodFailurePolicyOnExitCodesOpIn || !slices.IsSorted(rule.OnExitCodes.Values) {
			t.Errorf("%+v", rule.OnExitCodes)
		}
		for _, status := range rule.OnExitCodes.Values {
			statuses[status] = rule.Action
		}
	}
	want := map[int32]batchv1.PodFailurePolicyAction{1: batchv1.PodFailurePolicyActionFailIndex, 2: batchv1.PodFailurePolicyActionFailIndex, 64: batchv1.PodFailurePolicyActionFailJob}
	if fmt.Sprint(statuses) != fmt.Sprint(want) {
		t.Errorf("exit statuses lead to %v, want %v", statuses, want)
	}
	if !slices.Contains(c.Args, fmt.Sprintf("--shard=$(JOB_COMPLETION_INDEX)/%d", *s.Completions)) {
		t.Errorf("the shards are not as many as the completions, %d: %q", *s.Completions, c.Args)
	}
	if cores := c.Resources.Requests.Cpu().Value(); !slices.Contains(c.Args, fmt.Sprintf("--workers=%d", cores)) {
		t.Errorf("%d cores are requested: %q", cores, c.Args)
	}
	if !slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool {
		return e.Name == "JOB_COMPLETION_INDEX" && e.ValueFrom != nil && e.ValueFrom.FieldRef.FieldPath == "metadata.annotations['batch.kubernetes.io/job-completion-index']"
	}) {
		t.Errorf("the index is not in the environment: %+v", c.Env)
	}
	mount, volume := c.VolumeMounts[0], pod.Volumes[0]
	if mount.Name != volume.Name || volume.PersistentVolumeClaim.ClaimName != claim.Name || !slices.Contains(claim.Spec.AccessModes, corev1.ReadWriteMany) {
		t.Errorf("the results are on %q, %+v, %v", mount.Name, volume.PersistentVolumeClaim, claim.Spec.AccessModes)
	}
	if !slices.ContainsFunc(c.Args, func(arg string) bool { return strings.HasPrefix(arg, "--soak="+mount.MountPath+"/") }) {
		t.Errorf("the results do not go to %s: %q", mount.MountPath, c.Args)
	}
}

// The image of the Dockerfile has the program where the job calls it, and builds it as the root of the
// clone is.
func TestDockerfile(t *testing.T) {
	job, _ := simJob(t)
	data, err := os.ReadFile(filepath.Join(root, "deploy", "sim", "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	program := job.Spec.Template.Spec.Containers[0].Command[0]
	for _, want := range []string{"COPY --from=build " + program + " " + program, `ENTRYPOINT ["` + program + `"]`, "-o " + program + " ./cmd/millrace", fmt.Sprintf("USER %d", *job.Spec.Template.Spec.SecurityContext.RunAsUser)} {
		if !strings.Contains(text, want) {
			t.Errorf("the Dockerfile lacks %q", want)
		}
	}
	if gomod, err := os.ReadFile(filepath.Join(root, "go.mod")); err != nil || !strings.Contains(string(gomod), "\ngo "+regexp.MustCompile(`golang:([0-9.]+)`).FindStringSubmatch(text)[1]) {
		t.Errorf("the Dockerfile builds with another version of Go than go.mod names (%v)", err)
	}
}

// pod returns what a pod with an index would run, in a directory that stands for the shared volume. small
// replaces the seeds.
func pod(t *testing.T, program, results string, index int, small string) *exec.Cmd {
	t.Helper()
	job, _ := simJob(t)
	c := job.Spec.Template.Spec.Containers[0]
	var args []string
	for _, arg := range c.Args {
		arg = strings.ReplaceAll(arg, "$(JOB_COMPLETION_INDEX)", strconv.Itoa(index))
		arg = strings.ReplaceAll(arg, c.VolumeMounts[0].MountPath, results)
		if strings.HasPrefix(arg, "--seeds=") {
			arg = "--seeds=" + small
		}
		args = append(args, arg)
	}
	return exec.CommandContext(t.Context(), program, args...)
}

// mustEnd runs a pod, which must end with a status.
func mustEnd(t *testing.T, cmd *exec.Cmd, status int) {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	if have := cmd.ProcessState.ExitCode(); have != status {
		t.Fatalf("%v: status %d, want %d\n%s", cmd.Args, have, status, out)
	}
}

// merged is a part of what sim merge --json prints.
type merged struct {
	Pieces []struct{ Index, Of, From, To uint64 }
	Levels map[string]struct{ Seeds, Events uint64 }
}

func (m *merged) seeds() (seeds, events uint64) {
	for _, level := range m.Levels {
		seeds, events = seeds+level.Seeds, events+level.Events
	}
	return seeds, events
}

func merge(t *testing.T, program string, files ...string) (m merged) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), program, append([]string{"sim", "merge", "--json"}, files...)...).Output()
	if err == nil {
		err = json.Unmarshal(out, &m)
	}
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// built builds the program as the Dockerfile does, once, in a directory that TestMain removes.
var built = sync.OnceValues(func() (program string, err error) {
	program = filepath.Join(scratch, "millrace")
	cmd := exec.Command("go", "build", "-trimpath", "-o", program, "./cmd/millrace")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOWORK=", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return program, nil
})

var scratch string

func TestMain(m *testing.M) {
	var err error
	if scratch, err = os.MkdirTemp("", "millrace-deploy-"); err != nil {
		panic(err)
	}
	status := m.Run()
	_ = os.RemoveAll(scratch) // what is left is in the temporary directory
	os.Exit(status)
}

func build(t *testing.T) (program string) {
	t.Helper()
	program, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return program
}

// The pods of a small job run here, one of them twice, as after its machine has died. Merged, their files
// have every seed of their parts once.
func TestPodsRunHere(t *testing.T) {
	program, results := build(t), t.TempDir()
	indexes := []int{0, 7, 99}
	var files []string
	for _, index := range indexes {
		files = append(files, filepath.Join(results, fmt.Sprintf("shard-%d.json", index)))
		if index == 0 {
			mustEnd(t, pod(t, program, results, index, "0:300"), 0)
		}
		mustEnd(t, pod(t, program, results, index, "0:500"), 0)
	}
	sum := merge(t, program, files...)
	if seeds, events := sum.seeds(); len(sum.Pieces) != len(indexes) || seeds != 5*uint64(len(indexes)) || events < 1000 {
		t.Errorf("%d seeds and %d events in %+v", seeds, events, sum.Pieces)
	}
	mustEnd(t, pod(t, program, results, 7, "0:nonsense"), 64)
}

// A pod that is evicted gets SIGTERM: it ends with the status of an interrupt, within the time that the job
// gives it, and has saved what it has done. The next pod with its index goes on from there.
func TestEviction(t *testing.T) {
	program, results := build(t), t.TempDir()
	file := filepath.Join(results, "shard-3.json")
	evicted := pod(t, program, results, 3, "0:1000000000")
	var out bytes.Buffer
	evicted.Stdout, evicted.Stderr = &out, &out
	if err := evicted.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- evicted.Wait() }()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for saved := false; !saved; {
		select {
		case err := <-ended:
			t.Fatalf("%v\n%s", err, out.String())
		case <-look.C:
			_, err := os.Stat(file)
			saved = err == nil
		}
	}
	if err := evicted.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	job, _ := simJob(t)
	select {
	case <-ended:
	case <-time.After(time.Duration(*job.Spec.Template.Spec.TerminationGracePeriodSeconds) * time.Second):
		t.Fatal("the pod has not ended in time")
	}
	if status := evicted.ProcessState.ExitCode(); status != 130 {
		t.Fatalf("status %d, want 130\n%s", status, out.String())
	}
	to := merge(t, program, file).Pieces[0].To
	mustEnd(t, pod(t, program, results, 3, fmt.Sprintf("0:%d", to+300)), 0)
	sum := merge(t, program, file)
	if seeds, _ := sum.seeds(); len(sum.Pieces) != 1 || sum.Pieces[0].From != 0 || sum.Pieces[0].To != to+300 || seeds < 3 {
		t.Errorf("%d seeds in %+v, and the first pod ended before seed %d", seeds, sum.Pieces, to)
	}
}
