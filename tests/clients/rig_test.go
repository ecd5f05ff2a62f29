package clients

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

var which = flag.String("clients", "", "all: every client, and what is missing for one is said; or some of their names; default: those that need no download but Python's")

// programs are what the tests run, built once.
var programs = sync.OnceValues(func() (map[string]string, error) {
	dir, err := os.MkdirTemp("", "millrace-clients-")
	if err != nil {
		return nil, err
	}
	all := map[string]string{"dir": dir}
	sources := map[string][2]string{
		"etcd": {"programs", "go.etcd.io/etcd/server/v3"}, "etcdctl": {"programs", "go.etcd.io/etcd/etcdctl/v3"}, "millrace": {"../../cmd", "./millrace"},
	}
	if *which == "all" || strings.Contains(*which, "etcdctl 3.4") {
		sources["etcdctl34"] = [2]string{"programs/etcdctl34", "go.etcd.io/etcd/etcdctl"}
	}
	for name, from := range sources {
		all[name] = filepath.Join(dir, name)
		build := exec.Command("go", "build", "-o", all[name], from[1])
		build.Dir, build.Env = from[0], append(os.Environ(), "GOWORK=off")
		if out, err := build.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build %s: %w\n%s", name, err, out)
		}
	}
	return all, nil
})

func TestMain(m *testing.M) {
	flag.Parse()
	status := m.Run()
	if all, err := programs(); err == nil {
		_ = os.RemoveAll(all["dir"])
	}
	os.Exit(status)
}

// service is a member of etcd, or of millrace serve, alone in its cluster.
type service struct {
	name, endpoint, peer string // host:port, for clients and for members
}

// start starts a service on an empty directory.
func start(t *testing.T, name string) *service {
	t.Helper()
	all, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	command := map[string][]string{"etcd": {all["etcd"]}, "millrace": {all["millrace"], "serve"}}[name]
	s := &service{name, fmt.Sprintf("127.0.0.1:%d", freePort(t)), fmt.Sprintf("127.0.0.1:%d", freePort(t))}
	peer := "http://" + s.peer
	dir := t.TempDir()
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(command[0], append(command[1:], "--name", "m1", "--data-dir", filepath.Join(dir, "data"), "--log-level", "warn",
		"--listen-client-urls", "http://"+s.endpoint, "--advertise-client-urls", "http://"+s.endpoint,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "m1="+peer)...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan struct{})
	go func() { _ = cmd.Wait(); close(exited) }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		select {
		case <-exited:
		case <-time.After(20 * time.Second):
			t.Errorf("%s does not end", name)
			_ = cmd.Process.Kill()
			<-exited
		}
		_ = log.Close()
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("%s has said: %s", name, text[max(0, len(text)-2000):])
		}
	})
	for begin := time.Now(); ; {
		r, err := http.Get("http://" + s.endpoint + "/health")
		if err == nil {
			_ = r.Body.Close()
			if r.StatusCode == http.StatusOK {
				return s
			}
		}
		select {
		case <-exited:
			t.Fatalf("%s has ended", name)
		case <-time.After(20 * time.Millisecond):
		}
		if time.Since(begin) > time.Minute {
			t.Fatalf("%s does not serve", name)
		}
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// run runs a program for a while, and returns what it writes and how it ends.
func run(t *testing.T, dir string, env []string, command ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	text := strings.TrimRight(string(out), "\n")
	if err != nil {
		text += fmt.Sprintf("\n(%v)", err)
	}
	return text
}
