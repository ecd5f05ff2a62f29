package clients

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// client is a program that speaks to a service, and writes a line for each thing that it sees.
type client struct {
	name     string
	byItself bool // it is tried without -clients all
	// prepare returns the command, to which the endpoint is added, or what is missing.
	prepare func(t *testing.T) (command []string, missing string)
	dir     string
}

var clients = []client{
	{name: "clientv3 (Go)", byItself: true, prepare: golang, dir: "golang"},
	{name: "etcd3gw (Python, JSON)", byItself: true, prepare: python("gateway.py"), dir: "python"},
	{name: "etcd3 (Python, gRPC)", byItself: true, prepare: python("native.py"), dir: "python"},
	{name: "etcd3 (npm)", prepare: node, dir: "node"},
	{name: "jetcd (Java)", prepare: java, dir: "java"},
	{name: "etcd-client (Rust)", prepare: rust, dir: "rust"},
}

// Each client sees the same on etcd and on the service.
func TestClients(t *testing.T) {
	for _, c := range clients {
		t.Run(c.name, func(t *testing.T) {
			if *which != "all" && !strings.Contains(*which, c.name) && !(c.byItself && *which == "") {
				t.Skip("it is not asked for: -clients all")
			}
			command, missing := c.prepare(t)
			if missing != "" {
				t.Skipf("it cannot run here: %s", missing)
			}
			dir := c.dir
			say := map[string]string{}
			for _, name := range []string{"etcd", "millrace"} {
				s := start(t, name)
				say[name] = run(t, dir, nil, append(slices.Clone(command), s.endpoint)...)
			}
			compare(t, say["etcd"], say["millrace"])
		})
	}
}

// compare demands the same lines.
func compare(t *testing.T, etcd, ours string) {
	t.Helper()
	a, b := strings.Split(etcd, "\n"), strings.Split(ours, "\n")
	for i := range max(len(a), len(b)) {
		have, want := "(nothing)", "(nothing)"
		if i < len(b) {
			have = b[i]
		}
		if i < len(a) {
			want = a[i]
		}
		if have != want {
			t.Errorf("line %d\n  etcd:     %s\n  millrace: %s", i+1, want, have)
		}
	}
	t.Logf("%d lines, for example %q", len(a), a[len(a)/2])
}

// lookUp finds a program, or says that it is missing.
func lookUp(names ...string) (paths []string, missing string) {
	for _, name := range names {
		path, err := exec.LookPath(name)
		if err != nil {
			home, _ := os.UserHomeDir()
			if path, err = exec.LookPath(filepath.Join(home, ".cargo", "bin", name)); err != nil {
				return nil, name + " is not in PATH"
			}
		}
		paths = append(paths, path)
	}
	return paths, ""
}

// cache is where what was downloaded is kept for the next run.
func cache(t *testing.T, name string) string {
	t.Helper()
	dir, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(dir, "millrace-clients", name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

// prepared runs what makes a client ready.
func prepared(t *testing.T, dir string, command ...string) (missing string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Sprintf("%s: %v: %s", strings.Join(command, " "), err, out[max(0, len(out)-400):])
	}
	return ""
}

func golang(t *testing.T) ([]string, string) {
	program := filepath.Join(t.TempDir(), "client")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".")
	build.Dir, build.Env = "golang", append(os.Environ(), "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the client: %v\n%s", err, out)
	}
	return []string{program}, ""
}

func python(script string) func(t *testing.T) ([]string, string) {
	return func(t *testing.T) ([]string, string) {
		paths, missing := lookUp("python3")
		if missing != "" {
			return nil, missing
		}
		venv := cache(t, "python")
		if missing = prepared(t, "python", paths[0], "-m", "venv", venv); missing == "" {
			missing = prepared(t, "python", filepath.Join(venv, "bin", "pip"), "--disable-pip-version-check", "install", "--quiet", "-r", "requirements.txt")
		}
		return []string{filepath.Join(venv, "bin", "python"), "-W", "ignore", script}, missing
	}
}

func node(t *testing.T) ([]string, string) {
	paths, missing := lookUp("node", "npm")
	if missing != "" {
		return nil, missing
	}
	dir := cache(t, "node") // npm installs beside the program
	for _, name := range []string{"client.js", "package.json", "package-lock.json"} {
		text, err := os.ReadFile(filepath.Join("node", name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return []string{paths[0], filepath.Join(dir, "client.js")}, prepared(t, dir, paths[1], "ci", "--silent", "--no-audit", "--no-fund")
}

func java(t *testing.T) ([]string, string) {
	paths, missing := lookUp("java", "mvn")
	if missing != "" {
		return nil, missing
	}
	dir := cache(t, "java")
	classes := filepath.Join(dir, "classes") + string(os.PathListSeparator) + filepath.Join(dir, "dependency", "*")
	return []string{paths[0], "-cp", classes, "Main"}, prepared(t, "java", paths[1], "--quiet", "--batch-mode", "-DbuildDirectory="+dir, "compile")
}

func rust(t *testing.T) ([]string, string) {
	paths, missing := lookUp("cargo")
	if missing != "" {
		return nil, missing
	}
	dir := cache(t, "rust")
	if _, none := lookUp("protoc"); none != "" {
		if missing = protoc(t); missing != "" {
			return nil, missing
		}
	}
	return []string{filepath.Join(dir, "debug", "clients")}, prepared(t, "rust", paths[0], "build", "--quiet", "--locked", "--target-dir", dir)
}

// protoc makes a protoc out of Python's: the crate compiles etcd's definitions.
func protoc(t *testing.T) (missing string) {
	paths, missing := lookUp("python3")
	if missing != "" {
		return "neither protoc nor " + missing
	}
	venv := cache(t, "protoc")
	if missing = prepared(t, ".", paths[0], "-m", "venv", venv); missing == "" {
		missing = prepared(t, ".", filepath.Join(venv, "bin", "pip"), "--disable-pip-version-check", "install", "--quiet", "grpcio-tools==1.76.0", "setuptools==80.9.0")
	}
	if missing != "" {
		return missing
	}
	script := filepath.Join(venv, "protoc")
	if err := os.WriteFile(script, []byte("#!/bin/sh\nexec "+filepath.Join(venv, "bin", "python")+" -m grpc_tools.protoc \"$@\"\n"), 0o700); err != nil {
		return err.Error()
	}
	t.Setenv("PROTOC", script)
	return ""
}

// differences returns the commands and requests that are answered differently, and why.
func differences(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("differences.txt")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if what, why, ok := strings.Cut(strings.TrimSpace(line), " | "); ok && line[0] != '#' {
			all[what] = why
		}
	}
	return all
}

// etcdctl sees the same on both, command by command.
func TestEtcdctl(t *testing.T) {
	all, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	ctls := map[string]string{"3.7": all["etcdctl"]}
	if old := all["etcdctl34"]; old != "" {
		ctls["3.4"] = old
	}
	if path, err := exec.LookPath("etcdctl"); err == nil {
		ctls["of the system"] = path
	}
	differ := differences(t)
	script, err := os.ReadFile("etcdctl.txt")
	if err != nil {
		t.Fatal(err)
	}
	for version, ctl := range ctls {
		t.Run(version, func(t *testing.T) {
			etcd, ours := start(t, "etcd"), start(t, "millrace")
			n := 0
			for line := range strings.Lines(string(script)) {
				line = strings.TrimSpace(line)
				if line == "" || line[0] == '#' {
					continue
				}
				n++
				say := map[string]string{}
				for _, s := range []*service{etcd, ours} {
					full := line
					if !strings.Contains(line, "@") {
						full = "@ " + line
					}
					full = strings.ReplaceAll(full, "@ ", fmt.Sprintf("%s --endpoints http://%s ", ctl, s.endpoint))
					out := run(t, ".", []string{"ETCDCTL_API=3"}, "bash", "-c", full)
					say[s.name] = normal(out, s)
				}
				switch why := differ[line]; {
				case (say["etcd"] == say["millrace"]) != (why == ""):
					t.Errorf("%s (%s)\n  etcd:     %s\n  millrace: %s", line, why, say["etcd"], say["millrace"])
				case why != "":
					t.Logf("%s differs: %s", line, why)
				}
			}
			t.Logf("%d commands", n)
		})
	}
}

var (
	logLine = regexp.MustCompile(`(?m)^\{"level":"warn".*\n?`)
	hexKey  = regexp.MustCompile(`(ctl/(lock|election))/[0-9a-f]+`)
)

// normal takes from an output what differs by nature.
func normal(out string, s *service) string {
	out = logLine.ReplaceAllString(out, "")
	out = hexKey.ReplaceAllString(out, "$1/ID")
	return strings.ReplaceAll(out, s.endpoint, "ENDPOINT")
}

// The JSON gateway answers the same bytes, except ids, revisions and versions.
func TestGateway(t *testing.T) {
	differ := differences(t)
	text, err := os.ReadFile("gateway.txt")
	if err != nil {
		t.Fatal(err)
	}
	etcd, ours := start(t, "etcd"), start(t, "millrace")
	n := 0
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		n++
		path, body, _ := strings.Cut(line, " ")
		say := map[string]string{}
		for _, s := range []*service{etcd, ours} {
			r, err := http.Post("http://"+s.endpoint+path, "application/json", strings.NewReader(body))
			if err != nil {
				t.Fatalf("%s: %s: %v", s.name, line, err)
			}
			answer, err := io.ReadAll(r.Body)
			if err != nil {
				t.Fatalf("%s: %s: %v", s.name, line, err)
			}
			_ = r.Body.Close()
			say[s.name] = fmt.Sprintf("%d %s %s", r.StatusCode, r.Header.Get("Content-Type"), masked(answer, s))
		}
		switch why := differ[line]; {
		case (say["etcd"] == say["millrace"]) != (why == ""):
			t.Errorf("%s (%s)\n  etcd:     %s\n  millrace: %s", line, why, say["etcd"], say["millrace"])
		case why != "":
			t.Logf("%s differs: %s", line, why)
		}
	}
	t.Logf("%d requests", n)
}

var numbers = regexp.MustCompile(`"(cluster_id|member_id|raft_term|ID|ttl|TTL)":"[0-9]+"`)

// masked hides ids and terms, and keeps order and form of the fields.
func masked(answer []byte, s *service) string {
	var compact bytes.Buffer // protojson puts spaces by a number that it draws for each program
	if json.Compact(&compact, answer) != nil {
		compact.Reset()
		compact.Write(answer)
	}
	text := numbers.ReplaceAllString(compact.String(), `"$1":"N"`)
	text = strings.ReplaceAll(text, "\u00a0", " ") // and errors of protobuf have one space or the other
	return strings.NewReplacer(s.endpoint, "ENDPOINT", s.peer, "PEER").Replace(text)
}
