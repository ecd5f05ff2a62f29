package deploy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// lab is what deploy/lab has.
type lab struct {
	service corev1.Service
	members appsv1.StatefulSet
	claim   corev1.PersistentVolumeClaim
	load    batchv1.Job
}

// labManifests returns the manifests of deploy/lab. A field that the types do not have is an error, as is one
// that occurs twice.
func labManifests(t *testing.T) (l lab) {
	t.Helper()
	for file, into := range map[string][]any{"deploy/lab/members.yaml": {&l.service, &l.members}, "deploy/lab/load.yaml": {&l.claim, &l.load}} {
		docs := documents(t, file)
		if len(docs) != len(into) {
			t.Fatalf("%s has %d documents, want %d", file, len(docs), len(into))
		}
		for i, doc := range docs {
			if err := yaml.UnmarshalStrict(doc, into[i]); err != nil {
				t.Fatalf("%s, document %d: %v", file, i+1, err)
			}
		}
	}
	return l
}

func (l lab) member() corev1.Container { return l.members.Spec.Template.Spec.Containers[0] }
func (l lab) loader() corev1.Container { return l.load.Spec.Template.Spec.Containers[0] }

// flag returns the value of a flag in a container's arguments.
func flag(t *testing.T, c corev1.Container, name string) string {
	t.Helper()
	for _, arg := range c.Args {
		if value, ok := strings.CutPrefix(arg, "--"+name+"="); ok {
			return value
		}
	}
	t.Fatalf("container %s has no --%s: %q", c.Name, name, c.Args)
	return ""
}

// Every object has the kind that its file needs, and the names by which they find each other agree.
func TestLabManifests(t *testing.T) {
	l := labManifests(t)
	for want, have := range map[string]string{
		"v1 Service": l.service.APIVersion + " " + l.service.Kind, "apps/v1 StatefulSet": l.members.APIVersion + " " + l.members.Kind,
		"v1 PersistentVolumeClaim": l.claim.APIVersion + " " + l.claim.Kind, "batch/v1 Job": l.load.APIVersion + " " + l.load.Kind,
	} {
		if have != want {
			t.Errorf("%s, want %s", have, want)
		}
	}
	s := l.members.Spec
	labels := s.Template.Labels
	for _, selector := range []map[string]string{
		l.service.Spec.Selector, s.Selector.MatchLabels, antiAffinity(t, s.Template.Spec), antiAffinity(t, l.load.Spec.Template.Spec),
	} {
		if len(selector) == 0 || !maps.Equal(selector, labels) {
			t.Errorf("a selector has %v, and the members %v", selector, labels)
		}
	}
	if maps.Equal(l.load.Spec.Template.Labels, labels) {
		t.Error("the load passes as a member")
	}
	if l.service.Spec.ClusterIP != corev1.ClusterIPNone || !l.service.Spec.PublishNotReadyAddresses || s.ServiceName != l.service.Name || s.PodManagementPolicy != appsv1.ParallelPodManagement {
		t.Errorf("%+v, %s, %s", l.service.Spec, s.ServiceName, s.PodManagementPolicy)
	}
	for container, port := range map[string]string{"member": "7000", "load": "7001"} {
		c := map[string]corev1.Container{"member": l.member(), "load": l.loader()}[container]
		var want []string
		for i := range *s.Replicas {
			want = append(want, fmt.Sprintf("%s-%d.%s:%s", l.members.Name, i, l.service.Name, port))
		}
		if have := flag(t, c, "members"); have != strings.Join(want, ",") {
			t.Errorf("--members of the %s is %s, want %s", container, have, strings.Join(want, ","))
		}
	}
	if l.load.Spec.Template.Spec.RestartPolicy != corev1.RestartPolicyNever || *l.load.Spec.BackoffLimit != 0 {
		t.Errorf("the load runs again: %s, %d", l.load.Spec.Template.Spec.RestartPolicy, *l.load.Spec.BackoffLimit)
	}
}

func antiAffinity(t *testing.T, pod corev1.PodSpec) map[string]string {
	t.Helper()
	terms := pod.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if len(terms) != 1 || terms[0].TopologyKey != corev1.LabelHostname {
		t.Fatalf("%+v", terms)
	}
	return terms[0].LabelSelector.MatchLabels
}

// Mounts are of volumes that exist, directories in flags are mounted, ports in flags are named and are those
// that the service and the probes use.
func TestLabVolumesAndPorts(t *testing.T) {
	l := labManifests(t)
	member, load := l.member(), l.loader()
	volumes := func(pod corev1.PodSpec, templates []corev1.PersistentVolumeClaim) (names []string) {
		for _, v := range pod.Volumes {
			names = append(names, v.Name)
		}
		for _, c := range templates {
			names = append(names, c.Name)
			if !slices.Equal(c.Spec.AccessModes, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}) || c.Spec.Resources.Requests.Storage().IsZero() {
				t.Errorf("%+v", c.Spec)
			}
		}
		slices.Sort(names)
		return names
	}
	for _, tc := range []struct {
		c       corev1.Container
		volumes []string
		dirs    map[string]string // by volume
		ports   map[string]string // flag and name
	}{
		{member, volumes(l.members.Spec.Template.Spec, l.members.Spec.VolumeClaimTemplates),
			map[string]string{"data": flag(t, member, "dir"), "certificates": flag(t, member, "certificates")},
			map[string]string{"listen": "members", "loads": "loads", "health": "health"}},
		{load, volumes(l.load.Spec.Template.Spec, nil),
			map[string]string{"results": flag(t, load, "dir"), "certificates": flag(t, load, "certificates")},
			map[string]string{"serve": "results"}},
	} {
		mounts := map[string]string{}
		for _, m := range tc.c.VolumeMounts {
			mounts[m.Name] = m.MountPath
		}
		if !maps.Equal(mounts, tc.dirs) || !slices.Equal(slices.Sorted(maps.Keys(mounts)), tc.volumes) {
			t.Errorf("%s mounts %v; its flags name %v, its volumes are %v", tc.c.Name, mounts, tc.dirs, tc.volumes)
		}
		if len(tc.c.Ports) != len(tc.ports) {
			t.Errorf("%s has %d ports, and its flags %d", tc.c.Name, len(tc.c.Ports), len(tc.ports))
		}
		for name, port := range tc.ports {
			if !slices.ContainsFunc(tc.c.Ports, func(p corev1.ContainerPort) bool {
				return p.Name == port && fmt.Sprintf(":%d", p.ContainerPort) == flag(t, tc.c, name)
			}) {
				t.Errorf("%s: --%s=%s is no port with the name %s: %+v", tc.c.Name, name, flag(t, tc.c, name), port, tc.c.Ports)
			}
		}
	}
	for _, p := range l.service.Spec.Ports {
		if !slices.ContainsFunc(member.Ports, func(c corev1.ContainerPort) bool { return c.Name == p.Name && c.ContainerPort == p.Port }) {
			t.Errorf("the service has a port %s %d, and the member %+v", p.Name, p.Port, member.Ports)
		}
	}
	for path, probe := range map[string]*corev1.Probe{"/readyz": member.ReadinessProbe, "/livez": member.LivenessProbe} {
		if probe.HTTPGet == nil || probe.HTTPGet.Path != path || probe.HTTPGet.Port.StrVal != "health" {
			t.Errorf("%+v", probe)
		}
	}
	if p := load.ReadinessProbe; p == nil || p.TCPSocket == nil || p.TCPSocket.Port.StrVal != "results" {
		t.Errorf("%+v", p)
	}
	pod := l.load.Spec.Template.Spec
	if pod.Volumes[0].PersistentVolumeClaim.ClaimName != l.claim.Name || !strings.HasPrefix(flag(t, load, "out"), flag(t, load, "dir")+"/") {
		t.Errorf("%+v, %s", pod.Volumes[0], flag(t, load, "out"))
	}
	if !slices.ContainsFunc(load.Env, func(e corev1.EnvVar) bool {
		return e.Name == "POD_NAME" && e.ValueFrom.FieldRef.FieldPath == "metadata.name"
	}) || !strings.HasSuffix(flag(t, load, "out"), "/$(POD_NAME)") {
		t.Errorf("%+v, %s", load.Env, flag(t, load, "out"))
	}
}

// The secrets that the comments make have the names that the pods mount, and the commands in the comments and
// in the document are the same.
func TestLabSecrets(t *testing.T) {
	l := labManifests(t)
	comments, err := os.ReadFile(filepath.Join(root, "deploy", "lab", "members.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	document, err := os.ReadFile(filepath.Join(root, "docs", "howto", "lab.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, volumes := range [][]corev1.Volume{l.members.Spec.Template.Spec.Volumes, l.load.Spec.Template.Spec.Volumes} {
		for _, v := range volumes {
			if v.Secret == nil {
				continue
			}
			command := "kubectl create secret generic " + v.Secret.SecretName + " "
			if !bytes.Contains(comments, []byte(command)) || !bytes.Contains(document, []byte(command)) {
				t.Errorf("no comment, or no document, has %q", command)
			}
		}
	}
}

// network stands for the names of the service: each member has an address of the loopback network of its own,
// so that the ports are those of the manifests.
type network struct{ prefix string }

func newNetwork(t *testing.T) network {
	t.Helper()
	for range 20 {
		n := network{fmt.Sprintf("127.%d.%d.", 64+rand.IntN(128), rand.IntN(256))}
		l, err := net.Listen("tcp", n.prefix+"1:7000")
		if err != nil {
			continue // another test has it
		}
		l.Close()
		return n
	}
	t.Skip("this machine has no loopback network 127.0.0.0/8")
	return network{}
}

// args replaces in a container's arguments what only a cluster of Kubernetes has. host is the last part of
// its address.
func (n network) args(l lab, c corev1.Container, host int, dirs map[string]string, env map[string]string) (args []string) {
	for _, arg := range c.Args {
		for i := range *l.members.Spec.Replicas {
			arg = strings.ReplaceAll(arg, fmt.Sprintf("%s-%d.%s:", l.members.Name, i, l.service.Name), fmt.Sprintf("%s%d:", n.prefix, i+1))
		}
		for name, value := range env {
			arg = strings.ReplaceAll(arg, "$("+name+")", value)
		}
		for path, dir := range dirs {
			arg = strings.ReplaceAll(arg, "="+path, "="+dir)
		}
		if name, port, ok := strings.Cut(arg, "=:"); ok {
			arg = fmt.Sprintf("%s=%s%d:%s", name, n.prefix, host, port)
		}
		args = append(args, arg)
	}
	return args
}

// started is a process that a test has started.
type started struct {
	cmd  *exec.Cmd
	out  lockedBuffer
	done chan struct{} // closed when it has ended
}

func start(t *testing.T, program string, args ...string) *started {
	t.Helper()
	s := &started{cmd: exec.Command(program, args...), done: make(chan struct{})}
	s.cmd.Stdout, s.cmd.Stderr = &s.out, &s.out
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = s.cmd.Wait() // the state says how
		close(s.done)
	}()
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill() // it may have ended
		<-s.done
	})
	return s
}

// await waits until a condition holds while the process runs.
func (s *started) await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	late := time.After(2 * time.Minute)
	for !holds() {
		select {
		case <-s.done:
			t.Fatalf("%v has ended before %s: %v\n%s", s.cmd.Args, what, s.cmd.ProcessState, s.out.String())
		case <-late:
			t.Fatalf("%v: no %s within two minutes\n%s", s.cmd.Args, what, s.out.String())
		case <-look.C:
		}
	}
}

// end waits until the process has ended, with a status.
func (s *started) end(t *testing.T, within time.Duration, status int) {
	t.Helper()
	select {
	case <-s.done:
	case <-time.After(within):
		t.Fatalf("%v has not ended within %v\n%s", s.cmd.Args, within, s.out.String())
	}
	if have := s.cmd.ProcessState.ExitCode(); have != status {
		t.Fatalf("%v: status %d, want %d\n%s", s.cmd.Args, have, status, s.out.String())
	}
}

// The command lines of all containers run here: three members and a load over mTLS. A member is killed, and
// started again as a StatefulSet does; the load goes on. Its results are collected, and a report is made of
// them. Members that are told to end do so in time, with status 0.
func TestLabRunsHere(t *testing.T) {
	l, program, n := labManifests(t), build(t), newNetwork(t)
	work := t.TempDir()
	pki, results := filepath.Join(work, "pki"), filepath.Join(work, "results")
	replicas := int(*l.members.Spec.Replicas)
	mustEnd(t, exec.CommandContext(t.Context(), program, "lab", "certificates", "--dir", pki, "--members", fmt.Sprint(replicas)), 0)
	member := func(i int) *started {
		data := filepath.Join(work, fmt.Sprint("data-", i))
		if err := os.MkdirAll(data, 0o700); err != nil {
			t.Fatal(err)
		}
		args := n.args(l, l.member(), i, map[string]string{flag(t, l.member(), "dir"): data, flag(t, l.member(), "certificates"): pki}, nil)
		return start(t, program, append(args, fmt.Sprintf("--id=%d", i), "--probe=10ms")...)
	}
	var members []*started
	for i := range replicas {
		members = append(members, member(i+1))
	}
	if err := os.Mkdir(results, 0o700); err != nil {
		t.Fatal(err)
	}
	const pod = "millrace-lab-load-x7k2p"
	args := n.args(l, l.loader(), 9, map[string]string{flag(t, l.loader(), "dir"): results, flag(t, l.loader(), "certificates"): pki}, map[string]string{"POD_NAME": pod})
	load := start(t, program, append(args, "--clients=4,8", "--repeat=1", "--duration=1s", "--min-warmup=0s", "--max-warmup=500ms", "--round-trips=10ms", "--quiet")...)
	load.await(t, "the first point", func() bool {
		_, err := os.Stat(filepath.Join(results, pod, "result.json"))
		return !errors.Is(err, fs.ErrNotExist)
	})
	if err := members[replicas-1].cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-members[replicas-1].done
	members[replicas-1] = member(replicas)
	load.await(t, "results", func() bool { return strings.Contains(load.out.String(), "The results are served at ") })

	runs := filepath.Join(work, "runs")
	mustEnd(t, exec.CommandContext(t.Context(), program, "lab", "collect", "--from", n.prefix+"9:7003", "--certificates", pki, "--out", runs), 0)
	load.end(t, time.Minute, 0)
	mustEnd(t, exec.CommandContext(t.Context(), program, "lab", "report", filepath.Join(runs, pod)), 0)
	rejectEmpty(t, filepath.Join(runs, pod), replicas)

	// The next load finds empty machines. It is evicted: what there is by then is written, as partial.
	args = n.args(l, l.loader(), 9, map[string]string{flag(t, l.loader(), "dir"): results, flag(t, l.loader(), "certificates"): pki}, map[string]string{"POD_NAME": "evicted"})
	evicted := start(t, program, append(args, "--clients=4", "--repeat=1", "--duration=30m", "--round-trips=10ms", "--quiet")...)
	evicted.await(t, "its directory", func() bool {
		_, err := os.Stat(filepath.Join(results, "evicted"))
		return err == nil
	})
	if err := evicted.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	evicted.end(t, time.Duration(*l.load.Spec.Template.Spec.TerminationGracePeriodSeconds)*time.Second, 130)
	if text, err := os.ReadFile(filepath.Join(results, "evicted", "result.json")); err != nil || !bytes.Contains(text, []byte(`"partial": true`)) {
		t.Errorf("%v, %s", err, text)
	}

	grace := time.Duration(*l.members.Spec.Template.Spec.TerminationGracePeriodSeconds) * time.Second
	for _, m := range members {
		if err := m.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		m.end(t, grace, 0)
	}
}

// rejectEmpty fails if results have no points, no operations or no members.
func rejectEmpty(t *testing.T, dir string, replicas int) {
	t.Helper()
	var result struct {
		Partial bool
		Points  []struct {
			Labels  map[string]string
			Repeats []struct{ Figures map[string]float64 }
		}
	}
	var env struct{ Members []struct{ Name string } }
	for file, into := range map[string]any{"result.json": &result, "env.json": &env} {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err == nil {
			err = json.Unmarshal(text, into)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if result.Partial || len(result.Points) != 2 || len(env.Members) != replicas {
		t.Fatalf("partial: %v, %d points, %d members", result.Partial, len(result.Points), len(env.Members))
	}
	for _, p := range result.Points {
		if len(p.Repeats) != 1 || p.Repeats[0].Figures["ops"] < 100 || p.Repeats[0].Figures["fsyncs_per_op"] == 0 || p.Labels["processes"] != "remote" || p.Labels["transport"] != "tcp+tls" {
			t.Errorf("%+v", p)
		}
	}
}

// Every flag of the containers is one that the program knows.
func TestLabFlags(t *testing.T) {
	l, program := labManifests(t), build(t)
	for _, c := range []corev1.Container{l.member(), l.loader()} {
		if !slices.Equal(c.Command, []string{"/millrace"}) {
			t.Errorf("%q", c.Command)
		}
		help, err := exec.CommandContext(t.Context(), program, append(c.Args[:2:2], "--help")...).Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, arg := range c.Args[2:] {
			name, _, _ := strings.Cut(arg, "=")
			if !bytes.Contains(help, []byte(name+" ")) {
				t.Errorf("%s %s has no flag %s", c.Args[0], c.Args[1], name)
			}
		}
	}
}
