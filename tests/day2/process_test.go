package day2

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// What runs: processes of ./member, how each is started and ended, and what it answers.

// process is one member: how it is started, and its life if it runs.
type process struct {
	id    uint64
	cwd   string // its working directory,
	dir   string // and its own directory, relative to that
	raft  string // address for other members
	http  string // for clients
	extra []string
	env   []string // beside that of the test
	root  string   // the root of its filesystem, if it has one of its own: cwd and dir are in it
	as    string   // the program, if it is not programs/member

	cmd   *exec.Cmd
	ended chan error

	mu  sync.Mutex
	log bytes.Buffer // standard error, of all lives
}

// Write takes what the process writes to standard error.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.Write(b)
}

// logged returns what the process has written since a place in its log.
func (p *process) logged(since int) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return string(p.log.Bytes()[since:])
}

// mark is the present place in the log.
func (p *process) mark() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.Len()
}

func (p *process) tail() string {
	text := p.logged(0)
	return text[max(0, len(text)-6000):]
}

// path is the directory of the member, from everywhere.
func (p *process) path() string { return filepath.Join(p.cwd, p.dir) }

// begin starts the process with a list of members.
func (p *process) begin(t *testing.T, members string) {
	t.Helper()
	args := append([]string{"-id", fmt.Sprint(p.id), "-dir", p.dir, "-members", members, "-http", p.http}, p.extra...)
	program := filepath.Join(programs, "member")
	if p.as != "" {
		program = p.as
	}
	p.cmd, p.ended = exec.Command(program, args...), make(chan error, 1)
	p.cmd.Dir, p.cmd.Stderr = p.cwd, p
	if p.env != nil {
		p.cmd.Env = append(os.Environ(), p.env...)
	}
	if p.root != "" {
		p.cmd.Dir, p.cmd.Env = "/", []string{}
		p.cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: p.root}
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	cmd, ended := p.cmd, p.ended
	go func() { ended <- cmd.Wait() }()
}

// end ends the process by a signal. SIGTERM must end it with status 0.
func (p *process) end(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatalf("member %d: %v: %v\n%s", p.id, s, err, p.tail())
	}
	if err := p.exits(t); s == syscall.SIGTERM && err != nil {
		t.Fatalf("member %d ended with %v after SIGTERM, want status 0\n%s", p.id, err, p.tail())
	}
}

// exits waits until the process has ended.
func (p *process) exits(t *testing.T) error {
	t.Helper()
	select {
	case err := <-p.ended:
		p.cmd = nil
		return err
	case <-time.After(maxWait):
		t.Fatalf("member %d still runs after %v\n%s", p.id, maxWait, p.tail())
		return nil
	}
}

// browser asks a member. It never waits for long: a member whose disk hangs must not hold up the test.
var browser = &http.Client{Timeout: 5 * time.Second}

// refusal is an answer of a member that is no success.
type refusal struct {
	text         string
	mayHaveBegun bool
}

func (r *refusal) Error() string { return strings.TrimSpace(r.text) }

// post sends a request and returns the body of its answer.
func (p *process) post(path string, form url.Values) (string, error) {
	r, err := browser.PostForm("http://"+p.http+path, form)
	return body(r, err)
}

// slowly posts a request that may take long.
func (p *process) slowly(path string) (string, error) {
	r, err := (&http.Client{Timeout: maxWait}).PostForm("http://"+p.http+path, nil)
	return body(r, err)
}

func (p *process) get(path string) (string, error) {
	r, err := browser.Get("http://" + p.http + path)
	return body(r, err)
}

func body(r *http.Response, err error) (string, error) {
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err == nil && r.StatusCode != http.StatusOK {
		err = &refusal{string(b), r.Header.Get("May-Have-Committed") == "true"}
	}
	return string(b), err
}

// diagnosis is what GET /explain returns.
type diagnosis struct {
	Healthy bool
	Role    string
	Leader  uint64
	Causes  []string
	Text    string
}

func (p *process) explain() (d diagnosis, err error) {
	text, err := p.get("/explain")
	if err == nil {
		err = json.Unmarshal([]byte(text), &d)
	}
	return d, err
}

// millrace runs the command line tool. It returns what it has printed, and its exit status.
func millrace(t *testing.T, args ...string) (out string, status int) {
	t.Helper()
	b, err := exec.Command(filepath.Join(programs, "millrace"), args...).CombinedOutput()
	exit := (*exec.ExitError)(nil)
	switch {
	case errors.As(err, &exit):
		status = exit.ExitCode()
	case err != nil:
		t.Fatal(err)
	}
	return string(b), status
}

// mustMillrace runs the command line tool, which must succeed.
func mustMillrace(t *testing.T, args ...string) string {
	t.Helper()
	out, status := millrace(t, args...)
	if status != 0 {
		t.Fatalf("millrace %s: status %d\n%s", strings.Join(args, " "), status, out)
	}
	return out
}

// build builds the program and the tool into a directory.
func build(into string) error {
	for _, program := range []struct{ from, as, pkg string }{{".", "member", "./member"}, {filepath.Join("..", ".."), "millrace", "./cmd/millrace"}} {
		cmd := exec.Command("go", "build", "-o", filepath.Join(into, program.as), program.pkg)
		cmd.Dir = program.from
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("go build %s: %w\n%s", program.pkg, err, out)
		}
	}
	return nil
}

const (
	maxWait  = 60 * time.Second // the longest wait for what must happen at all
	promised = 10 * time.Second // and for what Explain, a log or a tool must say
)

// within polls until done returns nil, for at most a time.
func within(limit time.Duration, done func() error) error {
	late, again := time.After(limit), time.NewTicker(20*time.Millisecond)
	defer again.Stop()
	for {
		err := done()
		if err == nil {
			return nil
		}
		select {
		case <-again.C:
		case <-late:
			return fmt.Errorf("after %v: %w", limit, err)
		}
	}
}

// has returns the first line of a text in which all words stand, or "".
func has(text string, words ...string) string {
	for line := range strings.Lines(text) {
		if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) }) {
			return strings.TrimSpace(line)
		}
	}
	return ""
}
