package history

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/scratch"
	"github.com/millrace/millrace/tests/history/proxy"
)

// What runs: three processes of examples/kv (or of examples/kv-pebble: -program), how each is started and
// ended, and what they answer.

// process is one host: its flags, and its life if it runs.
type process struct {
	id      int
	dir     string
	raft    string // address for other hosts
	address string // for clients
	binary  string
	founded []string // arguments of the first start
	args    []string // of later ones
	cmd     *exec.Cmd
	ended   chan error
	mu      sync.Mutex
	log     bytes.Buffer // standard error of this life
	before  bytes.Buffer // and of those before
}

// cluster is three processes, and the ways between them.
type cluster struct {
	hosts []*process
	ways  map[[2]int]*proxy.Proxy // from a host to another one, by ids
}

// programs is the directory of the binary.
var programs string

// program is the store that is judged: kv has its state in memory, kv-pebble on the disk.
var program = flag.String("program", "kv", "the `example` that the processes run: kv or kv-pebble")

// snapshotBytes makes the processes take snapshots all the time.
var snapshotBytes = flag.Int64("snapshot-bytes", 0, "how many `bytes` the log of a process grows between two snapshots; 0: its default")

// build builds the program once.
var build = sync.OnceValues(func() (string, error) { return buildWith("") })

// buildWith builds the program with a build tag: "planted" for one in which the environment names a bug.
func buildWith(tag string) (string, error) { return buildExample(*program, tag) }

func buildExample(name, tag string) (string, error) {
	binary := filepath.Join(programs, name+tag)
	cmd := exec.Command("go", "build", "-tags", tag, "-o", binary, ".")
	cmd.Dir = filepath.Join("..", "..", "examples", name)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build in %s: %w\n%s", cmd.Dir, err, out)
	}
	return binary, nil
}

func TestMain(m *testing.M) {
	if setup := os.Getenv(envMember); setup != "" {
		fmt.Fprintln(os.Stderr, runMember(setup))
		os.Exit(3)
	}
	var err error
	if programs, err = os.MkdirTemp("", "millrace-history"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(programs)
	os.Exit(code)
}

// startCluster founds a cluster, ends it, and starts it again with a proxy on each way from one host to
// another. The hosts are founded with their real addresses because the founding list is the same on all, and
// a proxy belongs to one way. Hosts 1 and 2 forward changes, host 3 sends clients to the leader.
func startCluster(t *testing.T, flags ...string) *cluster {
	t.Helper()
	binary, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return startClusterOf(t, binary, flags...)
}

func startClusterOf(t *testing.T, binary string, flags ...string) *cluster {
	t.Helper()
	return startClusterWith(t, binary, func(int) []string { return flags })
}

// startClusterWith takes the flags of each host.
func startClusterWith(t *testing.T, binary string, flags func(id int) []string) *cluster {
	t.Helper()
	c := &cluster{ways: map[[2]int]*proxy.Proxy{}}
	dir := t.TempDir()
	for id := 1; id <= 3; id++ {
		c.hosts = append(c.hosts, &process{
			id: id, binary: binary, dir: filepath.Join(dir, strconv.Itoa(id)), raft: scratch.Address(t), address: scratch.Address(t),
		})
	}
	t.Cleanup(func() { c.end(t) })
	clients := list(c.hosts, func(p *process) string { return p.address })
	for _, p := range c.hosts {
		common := append([]string{"-id", strconv.Itoa(p.id), "-dir", p.dir, "-heartbeat", "50ms", "-http", clients,
			fmt.Sprint("-redirect=", p.id == 3), fmt.Sprint("-snapshot-bytes=", *snapshotBytes)}, flags(p.id)...)
		p.founded = append([]string{"-peers", list(c.hosts, func(p *process) string { return p.raft })}, common...)
		p.args = append([]string{"-peers", list(c.hosts, func(to *process) string {
			if to == p {
				return p.raft
			}
			way, err := proxy.New(to.raft)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(way.Close)
			c.ways[[2]int{p.id, to.id}] = way
			return way.Address()
		})}, common...)
	}
	for _, p := range c.hosts {
		p.start(t, p.founded)
	}
	c.leader(t)
	for _, p := range c.hosts {
		p.terminate(t)
	}
	for _, p := range c.hosts {
		p.start(t, p.args)
	}
	c.leader(t)
	return c
}

func list(hosts []*process, address func(*process) string) string {
	var items []string
	for _, p := range hosts {
		items = append(items, fmt.Sprintf("%d=%s", p.id, address(p)))
	}
	return strings.Join(items, ",")
}

func (c *cluster) end(t *testing.T) {
	for _, p := range c.hosts {
		if p.cmd != nil {
			_ = p.cmd.Process.Kill()
			<-p.ended
		}
		if t.Failed() {
			t.Logf("host %d logged last:\n%s", p.id, p.tail())
		}
	}
}

func (p *process) start(t *testing.T, args []string) {
	t.Helper()
	p.mu.Lock()
	p.before.Write(p.log.Bytes())
	p.log.Reset()
	p.mu.Unlock()
	p.cmd, p.ended = exec.Command(p.binary, args...), make(chan error, 1)
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

func (p *process) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatalf("host %d: %v: %v\n%s", p.id, s, err, p.tail())
	}
}

// kill ends the process with SIGKILL. One that has ended by itself before fails the test.
func (p *process) kill(t *testing.T) {
	t.Helper()
	if err := p.endBy(t, syscall.SIGKILL); err == nil || err.ProcessState == nil || err.Exited() {
		t.Fatalf("host %d had ended by itself: %v\n%s", p.id, err, p.tail())
	}
}

// terminate ends the process with SIGTERM, in good order.
func (p *process) terminate(t *testing.T) {
	t.Helper()
	if err := p.endBy(t, syscall.SIGTERM); err != nil {
		t.Fatalf("host %d ended with %v after SIGTERM, want status 0\n%s", p.id, err, p.tail())
	}
}

func (p *process) endBy(t *testing.T, s syscall.Signal) *exec.ExitError {
	t.Helper()
	p.signal(t, s)
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

// between returns what the process logged between two times, also in its lives before.
func (p *process) between(from, to time.Time) (lines []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for line := range strings.Lines(p.before.String() + p.log.String()) {
		stamp, _, _ := strings.Cut(strings.TrimPrefix(line, "time="), " ")
		if at, err := time.Parse(time.RFC3339, stamp); err == nil && at.After(from) && at.Before(to) {
			lines = append(lines, fmt.Sprintf("host %d: %s", p.id, strings.TrimSpace(line)))
		}
	}
	return lines
}

func (p *process) tail() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.log.Bytes()
	return string(b[max(0, len(b)-4000):])
}

// status is the part of examples/kv's status that the tests need.
type status struct {
	ID, Term, Leader, Applied uint64
	Cluster                   json.Number // a string, or a number as of before
	Keys                      int
	Bytes                     int64
	DuplicatesSuppressed      uint64
}

// plain asks a host without a part in a run. A paused host answers late.
var plain = &http.Client{Timeout: 5 * time.Second}

// status asks a host for its status. The error says that it does not answer.
func (p *process) status() (s status, err error) {
	r, err := plain.Get("http://" + p.address + "/status")
	if err != nil {
		return s, err
	}
	defer r.Body.Close()
	return s, json.NewDecoder(r.Body).Decode(&s)
}

// metrics returns the metrics whose names begin with prefix, as they are.
func (p *process) metrics(prefix string) (found string) {
	r, err := plain.Get("http://" + p.address + "/metrics")
	if err != nil {
		return err.Error()
	}
	defer r.Body.Close()
	text, _ := io.ReadAll(r.Body)
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, prefix) {
			found += strings.TrimPrefix(strings.TrimSpace(line), prefix) + "; "
		}
	}
	return found
}

// get reads a key with a consistency, given as a query.
func (p *process) get(key, query string) (value string, found bool, err error) {
	r, err := plain.Get("http://" + p.address + "/keys/" + key + "?" + query)
	if err != nil {
		return "", false, err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	switch {
	case err != nil:
		return "", false, err
	case r.StatusCode == http.StatusNotFound:
		return "", false, nil
	case r.StatusCode != http.StatusOK:
		return "", false, fmt.Errorf("host %d: %s: %s", p.id, r.Status, b)
	}
	return string(b), true, nil
}

// leader returns the process that all hosts name as the leader of the newest term.
func (c *cluster) leader(t *testing.T) *process { return c.leaderOf(t, c.hosts) }

func (c *cluster) leaderOf(t *testing.T, hosts []*process) (leader *process) {
	t.Helper()
	eventually(t, "the hosts agree on a leader", func() error {
		leader = nil
		var terms, leaders []uint64
		for _, p := range hosts {
			s, err := p.status()
			if err != nil {
				return err
			}
			terms, leaders = append(terms, s.Term), append(leaders, s.Leader)
			if s.Leader == uint64(p.id) {
				leader = p
			}
		}
		if leader == nil || slices.Min(terms) != slices.Max(terms) || slices.Min(leaders) != slices.Max(leaders) {
			return fmt.Errorf("terms %v, leaders %v", terms, leaders)
		}
		return nil
	})
	return leader
}

// without returns the other hosts.
func (c *cluster) without(p *process) []*process {
	return slices.DeleteFunc(slices.Clone(c.hosts), func(q *process) bool { return p == q })
}

// waitLevel waits until a host has applied what the others had applied when it began to wait.
func (c *cluster) waitLevel(t *testing.T, p *process, others []*process) {
	t.Helper()
	var want uint64
	for _, other := range others {
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

// maxWait is the longest wait for something that must happen.
const maxWait = 60 * time.Second

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
