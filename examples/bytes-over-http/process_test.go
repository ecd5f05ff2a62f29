package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// What runs: three processes, how each is started and ended, and what they answer.

// process is one host: its flags, and its life if it runs.
type process struct {
	id          int
	binary, dir string
	address     string // for clients
	args        []string
	cmd         *exec.Cmd
	ended       chan error
	mu          sync.Mutex
	log         bytes.Buffer // standard error of this life
}

type processes []*process

func startProcesses(t *testing.T) (c processes) {
	t.Helper()
	dir := t.TempDir()
	binary := filepath.Join(dir, "bytes-over-http")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	var peers, clients []string
	for id := 1; id <= 3; id++ {
		p := &process{id: id, binary: binary, dir: filepath.Join(dir, strconv.Itoa(id)), address: freeAddress(t)}
		peers = append(peers, fmt.Sprintf("%d=%s", id, freeAddress(t)))
		clients = append(clients, fmt.Sprintf("%d=%s", id, p.address))
		c = append(c, p)
	}
	for _, p := range c {
		p.args = []string{"-id", strconv.Itoa(p.id), "-dir", p.dir, "-heartbeat", "50ms", "-peers", strings.Join(peers, ","), "-http", strings.Join(clients, ",")}
		p.start(t)
	}
	t.Cleanup(func() {
		for _, p := range c {
			if p.cmd != nil {
				_ = p.cmd.Process.Kill()
				<-p.ended
			}
			if t.Failed() {
				t.Logf("host %d logged last:\n%s", p.id, p.tail())
			}
		}
	})
	return c
}

// freeAddress returns an address on which no process listens. Its port is below those that kernels give to
// connections, so it stays free while a host is down.
func freeAddress(t *testing.T) string {
	t.Helper()
	for range 1000 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 12_000+rand.IntN(20_000)))
		if err == nil {
			defer l.Close()
			return l.Addr().String()
		}
	}
	t.Fatal("no free port from 12000 to 32000")
	return ""
}

func (p *process) start(t *testing.T) {
	t.Helper()
	p.mu.Lock()
	p.log.Reset()
	p.mu.Unlock()
	p.cmd, p.ended = exec.CommandContext(t.Context(), p.binary, p.args...), make(chan error, 1)
	p.cmd.Stderr = p
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	cmd, ended := p.cmd, p.ended
	go func() { ended <- cmd.Wait() }()
}

// Write takes what the process writes to standard error.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.Write(b)
}

// kill ends the process with SIGKILL. One that has ended by itself before fails the test.
func (p *process) kill(t *testing.T) {
	t.Helper()
	if err := p.end(t, syscall.SIGKILL); err == nil || err.ProcessState == nil || err.Exited() {
		t.Fatalf("host %d had ended by itself: %v\n%s", p.id, err, p.tail())
	}
}

// terminate ends the process with SIGTERM, in good order.
func (p *process) terminate(t *testing.T) {
	t.Helper()
	if err := p.end(t, syscall.SIGTERM); err != nil {
		t.Fatalf("host %d ended with %v after SIGTERM, want status 0\n%s", p.id, err, p.tail())
	}
}

func (p *process) end(t *testing.T, s syscall.Signal) *exec.ExitError {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatalf("host %d: %v: %v\n%s", p.id, s, err, p.tail())
	}
	select {
	case err := <-p.ended:
		p.cmd = nil
		exit := (*exec.ExitError)(nil)
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return exit
	case <-time.After(maxWait):
		t.Fatalf("host %d still runs, %v after %v\n%s", p.id, maxWait, s, p.tail())
		return nil
	}
}

// line returns the first line of the process's log that has all words, or "".
func (p *process) line(words ...string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	for line := range strings.Lines(p.log.String()) {
		if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) }) {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

func (p *process) logged(words ...string) bool { return p.line(words...) != "" }

func (p *process) tail() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.log.Bytes()
	return string(b[max(0, len(b)-4000):])
}

// status asks a host for its status. The error says that it does not answer.
func (p *process) status() (s status, err error) {
	r, err := client.Get("http://" + p.address + "/status")
	if err != nil {
		return s, err
	}
	defer r.Body.Close()
	return s, json.NewDecoder(r.Body).Decode(&s)
}

// checkEmpty checks that a host that lost its directory, if it answers at all, neither leads nor has a key,
// and takes no put.
func (p *process) checkEmpty(t *testing.T) {
	t.Helper()
	if s, err := p.status(); err == nil && (s.Leader != 0 || s.Keys != 0 || s.Applied != 0 || s.Committed != 0) {
		t.Fatalf("host %d, which lost its directory, takes part: %+v", p.id, s)
	}
	if o, index, err := put(p.address, "wiped", "x"); o == acknowledged {
		t.Fatalf("host %d, which lost its directory, acknowledged a put at index %d (%v)", p.id, index, err)
	}
}

// leader returns the process that all hosts that answer name as the leader of the newest term.
func (c processes) leader(t *testing.T) (leader *process) {
	t.Helper()
	eventually(t, "a leader is known", func() error {
		for _, p := range c {
			s, err := p.status()
			if err != nil {
				return err
			}
			if s.Leader == uint64(p.id) {
				leader = p
			}
		}
		if leader == nil {
			return errors.New("no host leads")
		}
		return nil
	})
	return leader
}

// waitLevel waits until a host that was started again has applied what the others had committed before.
func (c processes) waitLevel(t *testing.T, p *process) {
	t.Helper()
	var want uint64
	for _, other := range c {
		if s, err := other.status(); err == nil {
			want = max(want, s.Applied)
		}
	}
	eventually(t, fmt.Sprintf("host %d catches up", p.id), func() error {
		s, err := p.status()
		if err == nil && s.Applied < want {
			err = fmt.Errorf("it has applied %d of %d: %+v", s.Applied, want, s)
		}
		return err
	})
}

// get reads a key from a host's own state; nil if it has none.
func (p *process) get(key string) (value []byte, through uint64, err error) {
	r, err := client.Get("http://" + p.address + "/keys/" + key)
	if err != nil {
		return nil, 0, err
	}
	defer r.Body.Close()
	if value, err = io.ReadAll(r.Body); err != nil {
		return nil, 0, err
	}
	through, err = strconv.ParseUint(r.Header.Get("Millrace-Applied"), 10, 64)
	switch {
	case err != nil:
		return nil, 0, fmt.Errorf("%s %s: %w", r.Status, value, err)
	case r.StatusCode == http.StatusNotFound:
		return nil, through, nil
	case r.StatusCode != http.StatusOK:
		return nil, through, fmt.Errorf("%s: %s", r.Status, value)
	}
	return append([]byte{}, value...), through, nil
}

// maxWait is the longest wait for something that must happen.
const maxWait = 30 * time.Second

// eventually polls until done returns nil. It fails the test with done's error after maxWait.
func eventually(t *testing.T, what string, done func() error) {
	t.Helper()
	late, again := time.After(maxWait), time.NewTicker(10*time.Millisecond)
	defer again.Stop()
	for {
		err := done()
		if err == nil {
			return
		}
		select {
		case <-again.C:
		case <-late:
			t.Fatalf("waited %v until %s: %v", maxWait, what, err)
		}
	}
}
