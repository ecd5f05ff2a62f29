package ops

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace"
)

// programVariable makes the binary of this test a program that is operated with this package (TestMain).
const programVariable = "OPS_TEST_PROGRAM"

// program serves one path, which answers when the process was told to stop. It prints its addresses.
func program() {
	Main("program", func(ctx context.Context, args []string) error {
		s := NewSettings("program")
		hang := s.Flags.Bool("hang", false, "never let a request end")
		if err := s.Parse(args, os.Environ()); err != nil {
			return err
		}
		s.Config.Logger = slog.New(slog.DiscardHandler)
		node, err := millrace.Open(ctx, s.Config, millrace.InMemory(&counterMachine{}, millrace.Binary[int64]()))
		if err != nil {
			return err
		}
		service := s.Service()
		if service.Listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return errors.Join(err, node.Close(ctx))
		}
		service.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Println("began")
			<-ctx.Done()
			if *hang {
				select {}
			}
			sum, err := node.Propose(context.Background(), 1)
			fmt.Fprintln(w, sum, err)
		})
		service.Stopped = func() { fmt.Println("served") }
		service.Told = func(addr net.Addr) { fmt.Println("operators", addr) }
		fmt.Println("clients", service.Listener.Addr())
		return Run(ctx, node, service)
	})
}

// process is a program that runs.
type process struct {
	t         *testing.T
	cmd       *exec.Cmd
	lines     *bufio.Scanner
	errors    *strings.Builder
	clients   string
	operators string
}

func startProgram(t *testing.T, environment []string, args ...string) *process {
	t.Helper()
	p := &process{t: t, errors: new(strings.Builder)}
	p.cmd = exec.Command(os.Args[0], append([]string{"--id", "1", "--dir", filepath.Join(t.TempDir(), "1"), "--members", "1=127.0.0.1:0", "--ops", "127.0.0.1:0", "--heartbeat", "20ms"}, args...)...)
	p.cmd.Env = append(append(os.Environ(), programVariable+"=1"), environment...)
	p.cmd.Stderr = p.errors
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.lines = bufio.NewScanner(out)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	return p
}

// says waits for a line, and returns what comes after its first word.
func (p *process) says(word string) string {
	p.t.Helper()
	for p.lines.Scan() {
		if first, rest, _ := strings.Cut(p.lines.Text(), " "); first == word {
			return rest
		}
	}
	p.t.Fatalf("the program has not said %q: %s", word, p.errors)
	return ""
}

// serves waits until the program is ready.
func (p *process) serves() *process {
	p.t.Helper()
	p.clients = p.says("clients")
	p.operators = p.says("operators")
	(&site{t: p.t, url: "http://" + p.operators}).becomes("/readyz", 200)
	return p
}

// ends waits for the end of the process, and returns its status.
func (p *process) ends() int {
	p.t.Helper()
	end := time.AfterFunc(30*time.Second, func() { _ = p.cmd.Process.Kill() })
	defer end.Stop()
	_, _ = io.Copy(io.Discard, p.cmdOut())
	var status *exec.ExitError
	if err := p.cmd.Wait(); err != nil && !errors.As(err, &status) {
		p.t.Fatal(err)
	}
	return p.cmd.ProcessState.ExitCode()
}

// cmdOut is what the scanner has left.
func (p *process) cmdOut() io.Reader {
	for p.lines.Scan() {
	}
	return strings.NewReader("")
}

func unix(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no signals can be sent")
	}
}

// The first signal lets requests end, and the second ends the process at once.
func TestSignals(t *testing.T) {
	unix(t)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	for _, signal := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
		p := startProgram(t, nil, "--stop-delay", "300ms").serves()
		answer := make(chan string, 1)
		go func() {
			r, err := http.Get("http://" + p.clients)
			if err != nil {
				answer <- err.Error()
				return
			}
			defer r.Body.Close()
			body, err := io.ReadAll(r.Body)
			answer <- fmt.Sprint(string(body), err)
		}()
		p.says("began")
		if err := p.cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		(&site{t: t, url: "http://" + p.operators}).becomes("/readyz", 503)
		p.says("served")
		if have := <-answer; !strings.HasPrefix(have, "1 <nil>") {
			t.Errorf("after %v the request was answered with %s", signal, have)
		}
		if status := p.ends(); status != StatusDone || p.errors.Len() > 0 {
			t.Errorf("after %v the status is %d: %s", signal, status, p.errors)
		}
	}
	p := startProgram(t, nil, "--hang", "--stop-timeout", "1m").serves()
	go func() {
		if r, err := http.Get("http://" + p.clients); err == nil {
			r.Body.Close()
		}
	}()
	p.says("began")
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	(&site{t: t, url: "http://" + p.operators}).becomes("/readyz", 503)
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	if status := p.ends(); status != StatusAborted || !strings.Contains(p.errors.String(), "came again") {
		t.Errorf("after two signals the status is %d: %s", status, p.errors)
	}
}

// Each end has its status and a sentence.
func TestStatuses(t *testing.T) {
	unix(t)
	for _, c := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{"-h"}, StatusDone, ""},
		{[]string{"--print-config"}, StatusDone, ""},
		{[]string{"--zonne", "a"}, StatusUsage, "program: the command line has --zonne, which is no setting (--zone is)\x00"},
		{[]string{"--dir", os.Args[0]}, StatusFailed, "program: "},
		{[]string{"--ops", "127.0.0.1:1"}, StatusFailed, "program: ops: listen for operators"},
	} {
		if os.Getuid() == 0 && slices.Contains(c.args, "127.0.0.1:1") {
			continue // root may listen there
		}
		p := startProgram(t, nil, c.args...)
		want, _, _ := strings.Cut(c.want, "\x00")
		if status := p.ends(); status != c.status || !strings.HasPrefix(p.errors.String(), want) || c.status == 0 && p.errors.Len() > 0 {
			t.Errorf("%v: status %d, want %d: %s", c.args, status, c.status, p.errors)
		}
	}
	p := startProgram(t, []string{"NOTIFY_SOCKET=relative"})
	if status := p.ends(); status != StatusFailed || !strings.Contains(p.errors.String(), "want the path of a Unix socket") {
		t.Errorf("status %d: %s", status, p.errors)
	}
}

// A supervisor is told when the program serves, that it works, and that it stops.
func TestSupervisor(t *testing.T) {
	unix(t)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	dir, err := os.MkdirTemp("", "ops") // a path of a socket has at most 100 bytes or so
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	states := make(chan string, 1000)
	var done sync.WaitGroup
	done.Go(func() {
		for b := make([]byte, 100); ; {
			n, err := conn.Read(b)
			if err != nil {
				return
			}
			states <- string(b[:n])
		}
	})
	p := startProgram(t, []string{"NOTIFY_SOCKET=" + socket, "WATCHDOG_USEC=100000"}).serves()
	for have := 0; have < 3; {
		if state := <-states; state == "WATCHDOG=1" {
			have++
		} else if state != "READY=1" {
			t.Errorf("the supervisor is told %s", state)
		}
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	for state := ""; state != "STOPPING=1"; {
		if state = <-states; state == "READY=1" {
			t.Error("the supervisor is told READY=1 at the end")
		}
	}
	if status := p.ends(); status != StatusDone {
		t.Errorf("status %d: %s", status, p.errors)
	}
	conn.Close()
	done.Wait()
}

// What the environment of a supervisor may have.
func TestSupervisorEnvironment(t *testing.T) {
	socket := filepath.Join(os.TempDir(), fmt.Sprint("ops-test-", os.Getpid()))
	for _, c := range []struct {
		socket, usec, pid string
		want              string
		interval          time.Duration
	}{
		{"", "1000000", "", "", 0},
		{"here", "", "", "want the path of a Unix socket", 0},
		{"/does/not/exist", "", "", "NOTIFY_SOCKET: dial unixgram", 0},
		{socket, "1000000", "", "", 500 * time.Millisecond},
		{socket, "1000000", "1", "", 0},
		{socket, "soon", "", `WATCHDOG_USEC is "soon", want microseconds from 2000 to a day`, 0},
		{socket, "10", "", `WATCHDOG_USEC is "10"`, 0},
	} {
		func() {
			if c.socket == socket {
				unix(t)
				conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
				if err != nil {
					t.Fatal(err)
				}
				defer os.Remove(socket)
				defer conn.Close()
			}
			s, err := dialSupervisor(func(name string) string {
				return map[string]string{"NOTIFY_SOCKET": c.socket, "WATCHDOG_USEC": c.usec, "WATCHDOG_PID": c.pid}[name]
			})
			defer s.close()
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) || s.interval != c.interval {
				t.Errorf("%+v: %v, every %v", c, err, s.interval)
			}
		}()
	}
}

// slowClose is a node that does not close in time.
type slowClose struct{ Node }

func (slowClose) Close(ctx context.Context) error {
	<-ctx.Done()
	return errors.New("the apply lane hangs")
}

// Run ends with the status of what has failed.
func TestRunFails(t *testing.T) {
	node := openNode(t, alone())
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(&SignalError{os.Interrupt})
	err := Run(ctx, slowClose{node}, Service{StopTimeout: 10 * time.Millisecond})
	if StatusOf(ctx, err) != StatusHangs || !strings.Contains(err.Error(), "the node is not closed after 10ms: the apply lane hangs") {
		t.Errorf("status %d: %v", StatusOf(ctx, err), err)
	}
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	err = Run(t.Context(), node, Service{Ops: busy.Addr().String()})
	if StatusOf(t.Context(), err) != StatusFailed || !strings.Contains(err.Error(), "listen for operators") {
		t.Errorf("status %d: %v", StatusOf(t.Context(), err), err)
	}
	if node.Err() == nil {
		t.Error("Run has not closed the node")
	}
	broken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	broken.Close()
	if err = Run(t.Context(), openNode(t, alone()), Service{Listener: broken}); err == nil || !strings.Contains(err.Error(), "ops: serve clients: ") {
		t.Errorf("%v", err)
	}
}

// An end during the start is no failure.
func TestStatusOf(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(&SignalError{os.Interrupt})
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, StatusDone},
		{ErrPrinted, StatusDone},
		{fmt.Errorf("open: %w", context.Cause(ctx)), StatusDone},
		{&UsageError{errors.New("no")}, StatusUsage},
		{errors.Join(errors.New("no"), &HangError{errors.New("hangs")}), StatusHangs},
		{errors.New("no"), StatusFailed},
	} {
		if have := StatusOf(ctx, c.err); have != c.want {
			t.Errorf("%v: status %d, want %d", c.err, have, c.want)
		}
	}
}
