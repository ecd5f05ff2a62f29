package app

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// root is the root of the repository.
const root = "../../.."

// built is the directory of programs, if they were built.
var built string

// programs builds kv and millrace once, with the command of the image, and returns their directory.
var programs = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "millrace-deploy-")
	if err != nil {
		return "", err
	}
	built = dir
	command, err := buildCommand()
	if err != nil {
		return "", err
	}
	cmd := exec.Command("sh", "-euc", strings.ReplaceAll(command, "/out/", dir+"/"))
	cmd.Dir, cmd.Env = root, append(os.Environ(), "GOWORK=", "TARGETOS=", "TARGETARCH=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", command, err, out)
	}
	return dir, nil
})

// buildCommand is the command with which the image builds the programs.
func buildCommand() (string, error) {
	text, err := os.ReadFile(filepath.Join(root, "deploy/app/Dockerfile"))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if command, ok := strings.CutPrefix(strings.TrimSpace(line), "RUN "); ok && strings.Contains(command, "go build ") {
			return command, nil
		}
	}
	return "", fmt.Errorf("the Dockerfile has no RUN with go build")
}

func TestMain(m *testing.M) {
	status := m.Run()
	if built != "" {
		_ = os.RemoveAll(built) // a directory below the temporary one
	}
	os.Exit(status)
}

// program returns the path of kv or millrace.
func program(t *testing.T, name string) string {
	t.Helper()
	dir, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, name)
}

// place stands for what a member finds in its container or on its machine. Each name of a host is an address
// of the loopback network, and each directory one of the test.
type place struct {
	prefix string            // of addresses
	dirs   map[string]string // by path in the manifests
}

func newPlace(t *testing.T) place {
	t.Helper()
	for range 20 {
		p := place{fmt.Sprintf("127.%d.%d.", 64+rand.IntN(128), rand.IntN(256)), map[string]string{}}
		l, err := net.Listen("tcp", p.prefix+"1:7001")
		if err != nil {
			continue // another test has it
		}
		l.Close()
		return p
	}
	t.Skip("this machine has no loopback network 127.0.0.0/8")
	return place{}
}

// address is the address of a member, and a port of it.
func (p place) address(id, port int) string { return fmt.Sprintf("%s%d:%d", p.prefix, id, port) }

// translate replaces in a setting what only the place of the manifests has. The member has this id.
func (p place) translate(value string, id int, names map[string]int) string {
	for name, other := range names {
		value = strings.ReplaceAll(value, name+":", fmt.Sprintf("%s%d:", p.prefix, other))
	}
	for path, dir := range p.dirs {
		if value == path || strings.HasPrefix(value, path+"/") {
			value = dir + strings.TrimPrefix(value, path)
		}
	}
	if strings.HasPrefix(value, ":") {
		value = fmt.Sprintf("%s%d%s", p.prefix, id, value)
	}
	return value
}

// process is a process that a test has started.
type process struct {
	cmd  *exec.Cmd
	mu   sync.Mutex
	text bytes.Buffer
	done chan struct{}
}

// Write takes what the process prints.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

func (p *process) said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

func start(t *testing.T, env []string, program string, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(program, args...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.Env = p, p, env
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait() // the state says how
		close(p.done)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it may have ended
		<-p.done
	})
	return p
}

// stop sends SIGTERM, and wants status 0.
func (p *process) stop(t *testing.T, within time.Duration) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	select {
	case <-p.done:
	case <-time.After(within):
		t.Fatalf("%v has not ended within %v\n%s", p.cmd.Args, within, p.said())
	}
	if have := p.cmd.ProcessState.ExitCode(); have != 0 {
		t.Errorf("%v: status %d, want 0\n%s", p.cmd.Args, have, p.said())
	}
}

// eventually polls until holds returns nil. The processes must run meanwhile.
func eventually(t *testing.T, what string, holds func() error, running ...*process) {
	t.Helper()
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	late := time.After(90 * time.Second)
	for {
		err := holds()
		if err == nil {
			return
		}
		for _, p := range running {
			select {
			case <-p.done:
				t.Fatalf("%v has ended before %s: %v\n%s", p.cmd.Args, what, p.cmd.ProcessState, p.said())
			default:
			}
		}
		select {
		case <-late:
			var all strings.Builder
			for _, p := range running {
				fmt.Fprintf(&all, "\n%v:\n%s", p.cmd.Args, p.said())
			}
			t.Fatalf("no %s within 90 seconds: %v%s", what, err, all.String())
		case <-look.C:
		}
	}
}

// get returns the body of a page with status 200.
func get(url string) (string, error) {
	client := http.Client{Timeout: 5 * time.Second}
	r, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err == nil && r.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", url, r.Status, body)
	}
	return string(body), err
}

// output runs a program to its end, with status 0, and returns what it printed.
func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s%s", name, args, err, out, errs.String())
	}
	return string(out)
}

// makePKI makes certificates for members, as the documents say.
func makePKI(t *testing.T, members int) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "pki")
	output(t, program(t, "millrace"), "cert", "ca", "--dir", dir, "--name", "kv")
	for id := 1; id <= members; id++ {
		output(t, program(t, "millrace"), "cert", "member", "--dir", dir, "--id", fmt.Sprint(id))
	}
	return dir
}

// copyFile copies a file, with its directory.
func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, data, 0o600); err != nil {
		t.Fatal(err)
	}
}
