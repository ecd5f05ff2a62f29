package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/scratch"
)

// Three processes count. Each is killed and started again, while the others continue. Each command makes a
// sum of its own, what a process reads never goes back, not even across its restart, and includes
// everything that the test had seen acknowledged before the process was started.
func TestThreeProcesses(t *testing.T) {
	c := &cluster{t: t, dir: t.TempDir(), made: map[int64]int{}, grown: make(chan struct{})}
	c.binary = build(t, c.dir)
	for i := range c.processes {
		c.start(i)
	}
	defer func() {
		for i := range c.processes {
			c.kill(i)
		}
		c.check()
	}()
	for i := range c.processes {
		c.waitFor(i, 5)
	}
	for i := range c.processes {
		c.kill(i)
		for j := range c.processes {
			if j != i {
				c.waitFor(j, 5)
			}
		}
		c.start(i)
		c.waitFor(i, 5)
	}
}

// build compiles the program with other ports, and with more commands in a second.
func build(t *testing.T, dir string) (binary string) {
	source, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(source), "time.Tick(time.Second)", "time.Tick(20*time.Millisecond)", 1)
	for _, port := range []string{"7001", "7002", "7003"} {
		text = strings.Replace(text, "127.0.0.1:"+port, scratch.Address(t), 1)
	}
	program := filepath.Join(dir, "main.go")
	if err := os.WriteFile(program, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	binary = filepath.Join(dir, "counter")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, program).CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return binary
}

type cluster struct {
	t           *testing.T
	dir, binary string
	processes   [3]process

	mu      sync.Mutex
	grown   chan struct{} // closed and replaced with each line
	made    map[int64]int // sum -> process whose command made it
	largest int64         // that was made or read
}

type process struct {
	cmd       *exec.Cmd
	ended     chan struct{} // its output has ended
	adds      int           // commands that were acknowledged in this life
	reads     int           // reads of this life
	latest    int64         // read by it, in all lives
	atLeast   int64         // what its reads in this life must include
	last      []string      // lines
	badOutput []string
}

func (c *cluster) start(i int) {
	p := &c.processes[i]
	p.cmd = exec.CommandContext(c.t.Context(), c.binary, "-id", strconv.Itoa(i+1))
	p.cmd.Dir = c.dir
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	c.mu.Lock()
	p.adds, p.reads, p.atLeast = 0, 0, c.largest
	c.mu.Unlock()
	if err := p.cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	ended := make(chan struct{})
	p.ended = ended
	go func() {
		defer close(ended)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			c.hear(i, lines.Text())
		}
	}()
}

// kill ends a process without warning.
func (c *cluster) kill(i int) {
	p := &c.processes[i]
	_ = p.cmd.Process.Kill()
	<-p.ended
	_ = p.cmd.Wait()
}

// hear takes one line of a process: "… added one: 5 <nil> <nil>" or "… 5".
func (c *cluster) hear(i int, line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := &c.processes[i]
	p.last = append(p.last, line)
	words := strings.Fields(line)
	_, after, isAdd := strings.Cut(line, "added one: ")
	switch {
	case isAdd:
		var sum int64
		if n, _ := fmt.Sscanf(after, "%d <nil>", &sum); n == 1 && strings.HasPrefix(after, fmt.Sprint(sum, " <nil>")) {
			if other, taken := c.made[sum]; taken {
				p.badOutput = append(p.badOutput, fmt.Sprintf("command of process %d made %d, which one of process %d has made", i+1, sum, other+1))
			}
			c.made[sum] = i
			c.largest = max(c.largest, sum)
			p.adds++
		}
	case len(words) == 3: // date, time, sum
		sum, err := strconv.ParseInt(words[2], 10, 64)
		if err != nil {
			return
		}
		if sum < p.latest || sum < p.atLeast {
			p.badOutput = append(p.badOutput, fmt.Sprintf("process %d reads %d, after %d, and at least %d was acknowledged before it started", i+1, sum, p.latest, p.atLeast))
		}
		p.latest = sum
		c.largest = max(c.largest, sum)
		p.reads++
	}
	close(c.grown)
	c.grown = make(chan struct{})
}

// waitFor returns when a process has had more commands acknowledged, and has read as often.
func (c *cluster) waitFor(i, more int) {
	c.t.Helper()
	deadline := time.After(30 * time.Second)
	p := &c.processes[i]
	c.mu.Lock()
	adds, reads := p.adds+more, p.reads+more
	c.mu.Unlock()
	for {
		c.mu.Lock()
		done, grown := p.adds >= adds && p.reads >= reads, c.grown
		said := strings.Join(p.last, "\n")
		c.mu.Unlock()
		if done {
			return
		}
		select {
		case <-grown:
		case <-deadline:
			c.t.Fatalf("process %d does not go on; it said:\n%s", i+1, said)
		}
	}
}

func (c *cluster) check() {
	for i := range c.processes {
		for _, bad := range c.processes[i].badOutput {
			c.t.Error(bad)
		}
	}
	if c.t.Failed() {
		return
	}
	if n := int64(len(c.made)); n < 45 || n > c.largest {
		c.t.Errorf("%d commands were acknowledged, and the sum is %d", n, c.largest)
	}
}
