package main

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/bench"
)

// TestServeMember is not a test: it is the process of a member for the tests below, with its command
// line in the environment.
func TestServeMember(t *testing.T) {
	args := os.Getenv("MILLRACE_TEST_SERVE")
	if args == "" {
		t.Skip("a process of the other tests of this file")
	}
	ctx, stop := untilInterrupt(os.Exit)
	defer stop()
	os.Exit(run(ctx, append([]string{"serve"}, strings.Split(args, "\n")...), app{stdout: os.Stdout, stderr: os.Stderr, targets: bench.Targets()}))
}

// servant is a member as a process.
type servant struct {
	t    *testing.T
	args []string
	addr string
	log  string
	cmd  *exec.Cmd
}

func (s *servant) start() {
	s.t.Helper()
	s.cmd = exec.Command(os.Args[0], "-test.run", "^TestServeMember$")
	s.cmd.Env = append(os.Environ(), "MILLRACE_TEST_SERVE="+strings.Join(s.args, "\n"))
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close()
	s.cmd.Stdout, s.cmd.Stderr = log, log
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
}

// end sends a signal and returns the exit status; -1 is death by the signal.
func (s *servant) end(signal os.Signal) int {
	s.t.Helper()
	if err := s.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		s.t.Fatal(err)
	}
	_ = s.cmd.Wait()
	return s.cmd.ProcessState.ExitCode()
}

// post sends JSON to the member.
func (s *servant) post(path, body string) (answer map[string]any, err error) {
	r, err := (&http.Client{Timeout: 20 * time.Second}).Post("http://"+s.addr+path, "application/json", strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err == nil && r.StatusCode != 200 {
		err = fmt.Errorf("%d: %s", r.StatusCode, b)
	}
	if err == nil {
		err = json.Unmarshal(b, &answer)
	}
	return answer, err
}

func (s *servant) put(key string) error {
	_, err := s.post("/v3/kv/put", fmt.Sprintf(`{"key":"%s"}`, base64.StdEncoding.EncodeToString([]byte(key))))
	return err
}

// keys returns the keys that a linearizable read of the member finds.
func (s *servant) keys() map[string]bool {
	s.t.Helper()
	var answer map[string]any
	var err error
	for range 100 { // it may be about to start
		if answer, err = s.post("/v3/kv/range", `{"key":"AA==","range_end":"AA=="}`); err == nil {
			break
		}
		<-time.After(100 * time.Millisecond)
	}
	if err != nil {
		b, _ := os.ReadFile(s.log)
		s.t.Fatalf("%s: %v\n%s", s.addr, err, b)
	}
	found := map[string]bool{}
	kvs, _ := answer["kvs"].([]any)
	for _, kv := range kvs {
		key, _ := base64.StdEncoding.DecodeString(kv.(map[string]any)["key"].(string))
		found[string(key)] = true
	}
	return found
}

func serveAddrs(t *testing.T, n int) (addrs []string) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		addrs = append(addrs, l.Addr().String())
	}
	return addrs
}

// startServants starts three members, with the directories 0, 1 and 2 in dir.
func startServants(t *testing.T, dir string) (members []*servant) {
	t.Helper()
	addrs := serveAddrs(t, 6)
	var initial []string
	for k := range 3 {
		initial = append(initial, fmt.Sprintf("m%d=http://%s", k, addrs[k]))
	}
	for k := range 3 {
		s := &servant{t: t, addr: addrs[3+k], log: filepath.Join(dir, fmt.Sprint("log", k)), args: []string{
			fmt.Sprintf("--name=m%d", k), "--data-dir=" + filepath.Join(dir, fmt.Sprint(k)), "--initial-cluster=" + strings.Join(initial, ","),
			"--listen-peer-urls=http://" + addrs[k], "--listen-client-urls=http://" + addrs[3+k], "--heartbeat-interval=50", "--election-timeout=500",
		}}
		s.start()
		t.Cleanup(func() { _ = s.cmd.Process.Kill(); _ = s.cmd.Wait() })
		members = append(members, s)
	}
	return members
}

// TestServeProcesses kills each of three processes with kill -9 while clients write, ends them with
// SIGTERM, and starts them again. Every write that was acknowledged must be found, on every member.
func TestServeProcesses(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes some seconds")
	}
	members := startServants(t, t.TempDir())
	acknowledged := map[string]bool{}
	write := func(round int, of ...*servant) {
		t.Helper()
		failures := 0
		for k := 0; k < 30; k++ {
			key := fmt.Sprintf("%d/%d", round, k)
			if err := of[k%len(of)].put(key); err != nil {
				if failures++; failures > 60 {
					t.Fatal(err)
				}
				k-- // once more, as a client would
				<-time.After(50 * time.Millisecond)
				continue
			}
			acknowledged[key] = true
		}
	}
	check := func(s *servant) {
		t.Helper()
		found := s.keys()
		for key := range acknowledged {
			if !found[key] {
				t.Errorf("%s has lost %s", s.addr, key)
			}
		}
	}
	write(0, members...)
	for k, s := range members {
		s.end(syscall.SIGKILL)
		write(k+1, members[(k+1)%3], members[(k+2)%3])
		s.start()
		check(s)
	}
	for _, s := range members {
		if status := s.end(syscall.SIGTERM); status != exitOK {
			b, _ := os.ReadFile(s.log)
			t.Errorf("SIGTERM ends a member with status %d\n%s", status, b)
		}
	}
	for _, s := range members {
		s.start()
	}
	for _, s := range members {
		check(s)
	}
}

// TestServeSaysWhy holds the statuses and sentences of a member that does not start.
func TestServeSaysWhy(t *testing.T) {
	dir := t.TempDir()
	for _, row := range []struct {
		args   string
		status int
		want   string
	}{
		{"--wal-dir=x", exitUsage, "--wal-dir is not served"},
		{"--dev --listen-client-urls=http://127.0.0.1:1", exitUsage, "does not go with --dev"},
		{"--data-dir=" + dir + "/file", exitFailed, "data directory"},
		{"--print-config --name=x", exitOK, `name: "x" # flag`},
		{"--version", exitOK, "etcd API: 3.7"},
		{"--help", exitOK, "--listen-client-urls"},
	} {
		if err := os.WriteFile(dir+"/file", nil, 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(os.Args[0], "-test.run", "^TestServeMember$")
		cmd.Env = append(os.Environ(), "MILLRACE_TEST_SERVE="+strings.ReplaceAll(row.args, " ", "\n"))
		out, _ := cmd.CombinedOutput()
		if have := cmd.ProcessState.ExitCode(); have != row.status || !strings.Contains(string(out), row.want) {
			t.Errorf("%s: status %d, want %d with %q in\n%s", row.args, have, row.status, row.want, out)
		}
	}
}
