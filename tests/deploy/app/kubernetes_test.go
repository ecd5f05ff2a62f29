package app

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

// kubernetes is what deploy/app/kubernetes has.
type kubernetes struct {
	members, clients corev1.Service
	budget           policyv1.PodDisruptionBudget
	policy           networkingv1.NetworkPolicy
	founding, more   appsv1.StatefulSet
	rootIssuer, ca   certmanager.Issuer
	caCertificate    certmanager.Certificate
	certificates     [3]certmanager.Certificate
}

// decode decodes the documents of a file strictly: a field that the types do not have is an error, and so is
// one that occurs twice.
func decode(file string, kinds string, into ...any) error {
	data, err := os.ReadFile(filepath.Join(root, "deploy/app/kubernetes", file))
	if err != nil {
		return err
	}
	documents, want := bytes.Split(data, []byte("\n---\n")), strings.Fields(kinds)
	if len(documents) != len(into) {
		return fmt.Errorf("%s has %d documents, want %d", file, len(documents), len(into))
	}
	for i, document := range documents {
		if err := yaml.UnmarshalStrict(document, into[i]); err != nil {
			return fmt.Errorf("%s, document %d: %w", file, i+1, err)
		}
		var kind struct{ APIVersion, Kind string }
		if err := yaml.Unmarshal(document, &kind); err != nil || kind.APIVersion+"/"+kind.Kind != want[i] {
			return fmt.Errorf("%s, document %d is a %s/%s, want %s: %v", file, i+1, kind.APIVersion, kind.Kind, want[i], err)
		}
	}
	return nil
}

func manifests(t *testing.T) (k kubernetes) {
	t.Helper()
	for _, err := range []error{
		decode("members.yaml", "v1/Service v1/Service policy/v1/PodDisruptionBudget networking.k8s.io/v1/NetworkPolicy apps/v1/StatefulSet",
			&k.members, &k.clients, &k.budget, &k.policy, &k.founding),
		decode("more.yaml", "apps/v1/StatefulSet", &k.more),
		decode("certificates.yaml", "cert-manager.io/v1/Issuer cert-manager.io/v1/Certificate cert-manager.io/v1/Issuer"+strings.Repeat(" cert-manager.io/v1/Certificate", 3),
			&k.rootIssuer, &k.caCertificate, &k.ca, &k.certificates[0], &k.certificates[1], &k.certificates[2]),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return k
}

func (k *kubernetes) sets() []*appsv1.StatefulSet { return []*appsv1.StatefulSet{&k.founding, &k.more} }

// Objects find each other: selectors, names of services, ports, and the ids of members.
func TestObjectsFindEachOther(t *testing.T) {
	k := manifests(t)
	if k.members.Spec.ClusterIP != corev1.ClusterIPNone || !k.members.Spec.PublishNotReadyAddresses {
		t.Errorf("members find each other before they are ready, by names of pods: %+v", k.members.Spec)
	}
	if k.budget.Spec.MaxUnavailable.IntValue() != 1 {
		t.Errorf("the budget lets %v members go", k.budget.Spec.MaxUnavailable)
	}
	for _, s := range k.sets() {
		labels := s.Spec.Template.Labels
		for what, selector := range map[string]map[string]string{
			"members": k.members.Spec.Selector, "clients": k.clients.Spec.Selector, "budget": k.budget.Spec.Selector.MatchLabels,
			"policy": k.policy.Spec.PodSelector.MatchLabels, "set": s.Spec.Selector.MatchLabels,
			"affinity": s.Spec.Template.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].LabelSelector.MatchLabels,
		} {
			for name, value := range selector {
				if labels[name] != value {
					t.Errorf("%s selects %v, and the pods of %s have %v", what, selector, s.Name, labels)
				}
			}
		}
		if s.Spec.ServiceName != k.members.Name || s.Spec.PodManagementPolicy != appsv1.ParallelPodManagement || s.Spec.Ordinals.Start < 1 {
			t.Errorf("%s: %+v", s.Name, s.Spec)
		}
		kv := container(s)
		ports := map[string]int32{}
		for _, p := range kv.Ports {
			ports[p.Name] = p.ContainerPort
		}
		for name, port := range map[string]string{"members": "MILLRACE_LISTEN", "clients": "MILLRACE_CLIENT_LISTEN", "ops": "MILLRACE_OPS"} {
			if have := variable(s, port); have != fmt.Sprintf(":%d", ports[name]) {
				t.Errorf("%s: %s is %s, and port %s is %d", s.Name, port, have, name, ports[name])
			}
		}
		for _, p := range append(slices.Clone(k.members.Spec.Ports), k.clients.Spec.Ports...) {
			if ports[p.Name] != p.Port {
				t.Errorf("a service has port %s %d, and pods %v", p.Name, p.Port, ports)
			}
		}
		for _, rule := range k.policy.Spec.Ingress {
			if port := rule.Ports[0].Port; ports[port.StrVal] == 0 {
				t.Errorf("the policy has the port %v, and pods %v", port, ports)
			}
		}
		for path, probe := range map[string]*corev1.Probe{"/readyz": kv.ReadinessProbe, "/livez": kv.LivenessProbe} {
			if probe.HTTPGet.Path != path || probe.HTTPGet.Port.StrVal != "ops" {
				t.Errorf("%+v", probe.HTTPGet)
			}
		}
		if start := kv.StartupProbe; start.HTTPGet.Path != "/livez" || time.Duration(start.PeriodSeconds*start.FailureThreshold)*time.Second < 10*time.Minute {
			t.Errorf("a start that reads its log has %+v", start)
		}
		grace, delay := time.Duration(*s.Spec.Template.Spec.TerminationGracePeriodSeconds)*time.Second, variable(s, "MILLRACE_STOP_DELAY")
		if d, err := time.ParseDuration(delay); err != nil || d+2*10*time.Second >= grace {
			t.Errorf("%s: an end takes %s and twice 10 s, and has %v", s.Name, delay, grace)
		}
	}
	var want []string
	for id := range int(*k.founding.Spec.Replicas) {
		want = append(want, fmt.Sprintf("%d=%s-%d.%s:7001", id+1, k.founding.Name, id+1, k.members.Name))
	}
	if have := variable(&k.founding, "MILLRACE_MEMBERS"); have != strings.Join(want, ",") || k.founding.Spec.Ordinals.Start != 1 {
		t.Errorf("the founding members are %s, want %v", have, want)
	}
	if k.more.Spec.Ordinals.Start != *k.founding.Spec.Replicas+1 {
		t.Errorf("further members begin with %d", k.more.Spec.Ordinals.Start)
	}
}

// No container may do more than it needs, every mount has a volume, and what is written is on a volume.
func TestPodsAreConfined(t *testing.T) {
	k := manifests(t)
	for _, s := range k.sets() {
		pod := s.Spec.Template.Spec
		if c := pod.SecurityContext; !*c.RunAsNonRoot || *c.RunAsUser != 65532 || *c.FSGroup != 65532 || c.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault || *pod.AutomountServiceAccountToken {
			t.Errorf("%s: %+v", s.Name, c)
		}
		volumes := map[string]bool{}
		for _, v := range pod.Volumes {
			volumes[v.Name] = false
			if v.Projected != nil && *v.Projected.DefaultMode&0o007 != 0 {
				t.Errorf("%s: others read %s", s.Name, v.Name)
			}
		}
		for _, c := range s.Spec.VolumeClaimTemplates {
			volumes[c.Name] = false
		}
		for _, c := range append(slices.Clone(pod.InitContainers), pod.Containers...) {
			if x := c.SecurityContext; *x.AllowPrivilegeEscalation || !*x.ReadOnlyRootFilesystem || !slices.Equal(x.Capabilities.Drop, []corev1.Capability{"ALL"}) {
				t.Errorf("%s of %s: %+v", c.Name, s.Name, x)
			}
			if c.Resources.Requests.Memory().IsZero() || c.Resources.Limits.Memory().IsZero() || !c.Resources.Limits.Cpu().IsZero() {
				t.Errorf("%s of %s: %+v", c.Name, s.Name, c.Resources)
			}
			for _, m := range c.VolumeMounts {
				if _, exists := volumes[m.Name]; !exists {
					t.Errorf("%s of %s mounts %s, want one of %v", c.Name, s.Name, m.Name, slices.Sorted(maps.Keys(volumes)))
				}
				volumes[m.Name] = true
			}
		}
		for name, used := range volumes {
			if !used {
				t.Errorf("%s: nothing mounts %s", s.Name, name)
			}
		}
		if b := pod.InitContainers[0]; *b.RestartPolicy != corev1.ContainerRestartPolicyAlways {
			t.Errorf("the backup holds the member's start up: %v", *b.RestartPolicy)
		}
	}
}

// Every certificate names its member as TLS between members needs it, in the secret that pods mount.
func TestCertificatesNameMembers(t *testing.T) {
	k := manifests(t)
	if !k.caCertificate.Spec.IsCA || k.ca.Spec.CA.SecretName != k.caCertificate.Spec.SecretName || k.rootIssuer.Spec.SelfSigned == nil || k.caCertificate.Spec.IssuerRef.Name != k.rootIssuer.Name {
		t.Errorf("%+v, %+v", k.caCertificate.Spec, k.ca.Spec)
	}
	for i, c := range k.certificates {
		id := i + 1
		if uri := fmt.Sprintf("millrace://member/%d", id); !slices.Equal(c.Spec.URIs, []string{uri}) || c.Spec.SecretName != fmt.Sprintf("kv-member-%d-tls", id) {
			t.Errorf("certificate of member %d: %+v", id, c.Spec)
		}
		for _, usage := range []certmanager.KeyUsage{certmanager.UsageClientAuth, certmanager.UsageServerAuth} {
			if !slices.Contains(c.Spec.Usages, usage) {
				t.Errorf("certificate of member %d lacks %q", id, usage)
			}
		}
		if c.Spec.IssuerRef.Name != k.ca.Name || c.Spec.PrivateKey.RotationPolicy != certmanager.RotationPolicyNever || c.Spec.RenewBefore.Duration < 14*24*time.Hour {
			t.Errorf("certificate of member %d: %+v", id, c.Spec)
		}
	}
	for _, s := range k.sets() {
		for i, source := range s.Spec.Template.Spec.Volumes[0].Projected.Sources {
			id := int(s.Spec.Ordinals.Start) + i
			if source.Secret.Name != fmt.Sprintf("kv-member-%d-tls", id) {
				t.Errorf("%s mounts %s, want the one of member %d", s.Name, source.Secret.Name, id)
			}
			for name, path := range map[string]string{"MILLRACE_CERT": "tls.crt", "MILLRACE_KEY": "tls.key", "MILLRACE_CA": "ca.crt"} {
				if variable(s, name) != "/certificates/$(MILLRACE_ID)/"+path || !slices.Contains(source.Secret.Items, corev1.KeyToPath{Key: path, Path: fmt.Sprintf("%d/%s", id, path)}) {
					t.Errorf("%s: %s is %s, and the secret has %v", s.Name, name, variable(s, name), source.Secret.Items)
				}
			}
		}
	}
}

func container(s *appsv1.StatefulSet) *corev1.Container { return &s.Spec.Template.Spec.Containers[0] }

// variable is a variable of the member's environment, as it is written.
func variable(s *appsv1.StatefulSet, name string) string {
	for _, e := range container(s).Env {
		if e.Name == name {
			return e.Value
		}
	}
	return ""
}

var reference = regexp.MustCompile(`\$\(([A-Z_]+)\)`)

// environment is the environment that the kubelet would give to a pod.
func environment(t *testing.T, s *appsv1.StatefulSet, id int) (all map[string]string) {
	t.Helper()
	all = map[string]string{}
	for _, e := range container(s).Env {
		switch {
		case e.ValueFrom == nil:
			all[e.Name] = reference.ReplaceAllStringFunc(e.Value, func(r string) string { return all[reference.FindStringSubmatch(r)[1]] })
		case e.ValueFrom.FieldRef != nil && e.ValueFrom.FieldRef.FieldPath == "metadata.labels['apps.kubernetes.io/pod-index']":
			all[e.Name] = strconv.Itoa(id)
		case e.ValueFrom.ResourceFieldRef != nil && e.ValueFrom.ResourceFieldRef.Resource == "requests.memory":
			all[e.Name] = strconv.FormatInt(container(s).Resources.Requests.Memory().Value(), 10)
		default:
			t.Fatalf("variable %s: %+v", e.Name, e.ValueFrom)
		}
	}
	return all
}

// The pods run here, over TLS: three found the cluster, a fourth joins by a token and one is killed. Backups
// are made beside a member. Pods end in time, with status 0.
func TestPodsRunHere(t *testing.T) {
	k, pki, base := manifests(t), makePKI(t, 4), newPlace(t)
	names := map[string]int{}
	for id := 1; id <= 3; id++ {
		names[fmt.Sprintf("%s-%d.%s", k.founding.Name, id, k.members.Name)] = id
	}
	names[fmt.Sprintf("%s-4.%s", k.more.Name, k.members.Name)] = 4
	work := t.TempDir()
	program(t, "kv") // it is built before the working directory changes
	t.Chdir(work)    // paths of sockets are short
	place := func(id int) place {
		p := base
		p.dirs = map[string]string{"/data": fmt.Sprint("data-", id), "/certificates": filepath.Join(work, "certificates"), "/join": filepath.Join(work, "join"), "/backups": filepath.Join(work, fmt.Sprint("backups-", id))}
		return p
	}
	for id := 1; id <= 4; id++ {
		for from, to := range map[string]string{fmt.Sprintf("member-%d.pem", id): "tls.crt", fmt.Sprintf("member-%d-key.pem", id): "tls.key", "ca.pem": "ca.crt"} {
			copyFile(t, filepath.Join(pki, from), filepath.Join(work, "certificates", strconv.Itoa(id), to))
		}
	}
	run := func(s *appsv1.StatefulSet, id int) *process {
		env := os.Environ()
		for name, value := range environment(t, s, id) {
			env = append(env, name+"="+place(id).translate(value, id, names))
		}
		return start(t, env, program(t, "kv"))
	}
	pods := map[int]*process{}
	for id := 1; id <= 3; id++ {
		pods[id] = run(&k.founding, id)
	}
	ready := func(id int) {
		t.Helper()
		eventually(t, fmt.Sprintf("member %d is ready", id), func() error {
			_, err := get("http://" + base.address(id, 9001) + container(&k.founding).ReadinessProbe.HTTPGet.Path)
			return err
		}, pods[id])
	}
	for id := 1; id <= 3; id++ {
		ready(id)
	}
	put(t, "http://"+base.address(1, 8001)+"/keys/greeting", "hello")

	token := output(t, program(t, "millrace"), "members", "token", "data-1", "--member", "4")
	if err := os.MkdirAll(filepath.Join(work, "join", "4"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(work, "join", "4", "token"), []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	pods[4] = run(&k.more, 4)
	ready(4)
	if page, err := get("http://" + base.address(4, 9001) + "/members?format=text"); err != nil || !strings.Contains(page, "4  voter") {
		t.Errorf("%v: %s", err, page)
	}
	if value, err := get("http://" + base.address(4, 8001) + "/keys/greeting"); err != nil || value != "hello" {
		t.Errorf("%q, %v", value, err)
	}

	if err := pods[2].cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-pods[2].done
	put(t, "http://"+base.address(4, 8001)+"/keys/greeting", "still here")
	pods[2] = run(&k.founding, 2)
	ready(2)

	backup := k.founding.Spec.Template.Spec.InitContainers[0]
	var args []string
	for _, arg := range backup.Args {
		name, value, found := strings.Cut(arg, "=")
		if !found {
			name, value = "", arg
		} else {
			name += "="
		}
		args = append(args, name+place(1).translate(value, 1, nil))
	}
	if err := os.Mkdir("backups-1", 0o700); err != nil {
		t.Fatal(err)
	}
	beside := start(t, os.Environ(), program(t, strings.TrimPrefix(backup.Command[0], "/")), args...)
	eventually(t, "a backup", func() error {
		if found, err := filepath.Glob("backups-1/group-1-*.archive"); err != nil || len(found) != 1 {
			return fmt.Errorf("there are %v, %v", found, err)
		}
		return nil
	}, beside)
	beside.stop(t, 30*time.Second)
	grace := time.Duration(*k.founding.Spec.Template.Spec.TerminationGracePeriodSeconds) * time.Second
	for _, id := range []int{4, 3, 2, 1} {
		pods[id].stop(t, grace)
	}
}
