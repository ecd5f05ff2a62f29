package history

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/scratch"
	"github.com/millrace/millrace/snapshot"
	"github.com/millrace/millrace/vfs"
)

var (
	kills    = flag.Int("kills", 10, "TestSnapshotKills: how many processes are killed")
	killSeed = flag.Uint64("kill-seed", 0, "TestSnapshotKills: of the moments; 0: drawn")
)

// The phases in which a process is killed. A kill counts for each phase that the process has said to be in.
var phases = []string{"opening", "taking", "sending", "receiving", "installing"}

// TestSnapshotKills kills real processes that take, send and install snapshots all the time, at moments drawn
// from a seed. After each kill no snapshot on that disk may be damaged, and the newest is not older than what
// the process has said; after some, and at the end, all members are open, agree on the state, and have
// everything that was acknowledged, once. What a power cut leaves is the subject of other tests.
func TestSnapshotKills(t *testing.T) {
	seed := *killSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-kills %d -kill-seed %d", *kills, seed)
	d := startKills(t, rand.New(rand.NewPCG(seed, 1)))
	for next := 10; d.kills < *kills; {
		switch d.random.IntN(7) {
		case 0:
			d.killAnytime()
		case 1, 2:
			d.killWhile("taking", 10*time.Millisecond, d.members...)
		case 3:
			d.killWhileOneCatchesUp("sending", 250*time.Millisecond)
		case 4:
			d.killWhileOneCatchesUp("receiving", 250*time.Millisecond)
		case 5:
			d.killWhileOneCatchesUp("installing", 5*time.Millisecond)
		case 6:
			for _, m := range d.members {
				d.kill(m)
			}
			for _, m := range d.members {
				d.start(m)
			}
		}
		if d.kills >= next {
			d.agree()
			next = d.kills + 10
		}
	}
	d.agree()
	t.Logf("%d kills, in these phases: %s; %d idle. %d writes acknowledged, %d snapshots verified, %d times all states compared",
		d.kills, d.hits(), d.during["none"], d.ackedTotal, d.verified, d.agreed)
}

// killing is the processes, and what they have said.
type killing struct {
	t      *testing.T
	random *rand.Rand

	members []*member
	lives   uint32

	kills, verified, agreed int
	during                  map[string]int

	mu         sync.Mutex
	changed    *sync.Cond
	acked      map[uint32]map[uint64]bool // by client
	ackedTotal int
}

// member is one host, and its process.
type member struct {
	setup memberSetup
	cmd   *exec.Cmd
	stdin io.WriteCloser
	read  chan struct{} // closed at the end of its output
	log   *os.File

	// Guarded by killing.mu.
	active    map[string]bool
	begun     map[string]int
	published uint64
	publishes int
	paused    bool
	state     string
}

func startKills(t *testing.T, random *rand.Rand) *killing {
	t.Helper()
	d := &killing{t: t, random: random, during: map[string]int{}, acked: map[uint32]map[uint64]bool{}}
	d.changed = sync.NewCond(&d.mu)
	dir := t.TempDir()
	addresses := map[uint64]string{}
	for id := uint64(1); id <= 3; id++ {
		addresses[id] = scratch.Address(t)
	}
	t.Cleanup(d.end)
	for id := uint64(1); id <= 3; id++ {
		log, err := os.Create(filepath.Join(dir, fmt.Sprintf("log-%d", id)))
		if err != nil {
			t.Fatal(err)
		}
		m := &member{setup: memberSetup{ID: id, Dir: filepath.Join(dir, fmt.Sprint(id)), Members: addresses}, log: log, begun: map[string]int{}}
		d.members = append(d.members, m)
		d.start(m)
	}
	d.agree()
	return d
}

func (d *killing) end() {
	for _, m := range d.members {
		if m.cmd != nil {
			_ = m.cmd.Process.Kill()
			<-m.read
			_ = m.cmd.Wait()
		}
		if d.t.Failed() {
			b, _ := os.ReadFile(m.log.Name())
			d.t.Logf("host %d logged last:\n%s", m.setup.ID, b[max(0, len(b)-3000):])
		}
		_ = m.log.Close()
	}
}

// start starts the process of a member.
func (d *killing) start(m *member) {
	d.t.Helper()
	m.setup.Clients = nil
	for range 2 {
		m.setup.Clients = append(m.setup.Clients, d.lives)
		d.lives++
	}
	setup, err := json.Marshal(m.setup)
	if err != nil {
		d.t.Fatal(err)
	}
	m.cmd = exec.Command(os.Args[0])
	m.cmd.Env = append(os.Environ(), envMember+"="+string(setup))
	m.cmd.Stderr = m.log
	if m.stdin, err = m.cmd.StdinPipe(); err != nil {
		d.t.Fatal(err)
	}
	out, err := m.cmd.StdoutPipe()
	if err != nil {
		d.t.Fatal(err)
	}
	d.mu.Lock()
	m.active, m.paused, m.state = map[string]bool{"opening": true}, false, ""
	m.begun["opening"]++
	d.mu.Unlock()
	if err := m.cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	m.read = make(chan struct{})
	go d.listen(m, out, m.read)
}

// listen reads what a process says, until it ends.
func (d *killing) listen(m *member, out io.Reader, done chan struct{}) {
	defer func() {
		close(done)
		d.changed.Broadcast()
	}()
	for lines := bufio.NewReader(out); ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			return // what has no end was not said
		}
		d.hear(m, strings.Fields(line))
	}
}

func (d *killing) hear(m *member, words []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	number := func(i int) (n uint64) {
		if _, err := fmt.Sscan(words[i], &n); err != nil {
			d.t.Errorf("host %d said %q", m.setup.ID, words)
		}
		return n
	}
	switch {
	case words[0] == "open":
		delete(m.active, "opening")
	case words[0] == "begin":
		m.active[words[1]] = true
		m.begun[words[1]]++
	case words[0] == "end":
		delete(m.active, words[1])
	case words[0] == "published":
		m.published = max(m.published, number(1))
		m.publishes++
	case words[0] == "paused":
		m.paused = true
	case words[0] == "state":
		m.state = strings.Join(words[1:], " ")
	case words[0] == "ack":
		client := uint32(number(1))
		if d.acked[client] == nil {
			d.acked[client] = map[uint64]bool{}
		}
		d.acked[client][number(2)] = true
		d.ackedTotal++
		return
	default:
		d.t.Errorf("host %d said %q", m.setup.ID, words)
	}
	d.changed.Broadcast()
}

// await waits until is returns true, which is called with mu held. It reports false after a while.
func (d *killing) await(wait time.Duration, is func() bool) bool {
	late := false
	timer := time.AfterFunc(wait, func() {
		d.mu.Lock()
		late = true
		d.mu.Unlock()
		d.changed.Broadcast()
	})
	defer timer.Stop()
	d.mu.Lock()
	defer d.mu.Unlock()
	for !is() {
		if late {
			return false
		}
		d.changed.Wait()
	}
	return true
}

// must is await for what must happen.
func (d *killing) must(what string, is func() bool) {
	d.t.Helper()
	if !d.await(maxWait, is) {
		d.t.Fatalf("waited %v until %s", maxWait, what)
	}
}

// pause lets some time pass, up to most.
func (d *killing) pause(most time.Duration) {
	<-time.After(time.Duration(d.random.Int64N(int64(most))))
}

// kill kills a process, and looks at its snapshots.
func (d *killing) kill(m *member) {
	d.t.Helper()
	if err := m.cmd.Process.Kill(); err != nil {
		d.t.Fatalf("host %d: %v", m.setup.ID, err)
	}
	<-m.read
	var exit *exec.ExitError
	if err := m.cmd.Wait(); !errors.As(err, &exit) || exit.Exited() {
		d.t.Fatalf("host %d had ended by itself: %v", m.setup.ID, err)
	}
	m.cmd = nil
	d.kills++
	d.mu.Lock()
	if len(m.active) == 0 {
		d.during["none"]++
	}
	for phase := range m.active {
		d.during[phase]++
	}
	said := m.published
	d.mu.Unlock()
	d.lookAtDisk(m, said)
}

// lookAtDisk is what millrace snapshot verify does, on the disk of a host that was killed.
func (d *killing) lookAtDisk(m *member, said uint64) {
	d.t.Helper()
	found, err := snapshot.Find(context.Background(), vfs.OS(), m.setup.Dir)
	if said == 0 && (errors.Is(err, snapshot.ErrNotFound) || errors.Is(err, os.ErrNotExist)) {
		return // it was killed before the first one
	}
	if err != nil {
		d.t.Fatalf("host %d: %v", m.setup.ID, err)
	}
	newest := uint64(0)
	for i := range found {
		f := &found[i]
		if err := f.Verify(context.Background()); err != nil {
			d.t.Fatalf("host %d: %v", m.setup.ID, err)
		}
		switch f.State {
		case snapshot.Damaged:
			d.t.Errorf("host %d: %s is damaged: %v", m.setup.ID, f.Dir, f.Damage)
		case snapshot.Published:
			d.verified++
			newest = max(newest, f.ID.Index)
		}
	}
	if newest < said {
		d.t.Errorf("host %d said that the snapshot of entry %d is published, and the newest on its disk is of entry %d", m.setup.ID, said, newest)
	}
}

func (d *killing) any() *member { return d.members[d.random.IntN(len(d.members))] }

func (d *killing) others(m *member) []*member {
	return slices.DeleteFunc(slices.Clone(d.members), func(o *member) bool { return o == m })
}

// killAnytime kills one at any moment, and starts it again.
func (d *killing) killAnytime() {
	m := d.any()
	d.pause(200 * time.Millisecond)
	d.kill(m)
	d.start(m)
}

// killWhile kills the first of some that begins a phase, some time later.
func (d *killing) killWhile(phase string, most time.Duration, of ...*member) {
	var hit *member
	d.mu.Lock()
	before := map[*member]int{}
	for _, m := range of {
		before[m] = m.begun[phase]
	}
	d.mu.Unlock()
	d.await(5*time.Second, func() bool {
		for _, m := range of {
			if m.begun[phase] > before[m] {
				hit = m
				return true
			}
		}
		return false
	})
	if hit == nil {
		hit = of[0] // it did not happen; then any moment will do
	}
	d.pause(most)
	d.kill(hit)
	d.start(hit)
}

// killWhileOneCatchesUp kills a process and keeps it away until the others have forgotten what it needs. Then
// it, or one of the others if the phase is theirs, is killed while it catches up.
func (d *killing) killWhileOneCatchesUp(phase string, most time.Duration) {
	m := d.any()
	d.kill(m)
	others := d.others(m)
	d.mu.Lock()
	before := map[*member]int{}
	for _, o := range others {
		before[o] = o.publishes
	}
	d.mu.Unlock()
	d.await(10*time.Second, func() bool {
		return !slices.ContainsFunc(others, func(o *member) bool { return o.publishes < before[o]+2 })
	})
	targets := []*member{m}
	if phase == "sending" {
		targets = others
	}
	d.start(m)
	d.killWhile(phase, most, targets...)
}

// agree pauses all clients, and compares the states of all members with each other and with what was
// acknowledged.
func (d *killing) agree() {
	d.t.Helper()
	tell := func(command string) {
		for _, m := range d.members {
			if _, err := io.WriteString(m.stdin, command+"\n"); err != nil {
				d.t.Fatalf("host %d: %v", m.setup.ID, err)
			}
		}
	}
	each := func(is func(*member) bool) func() bool {
		return func() bool { return !slices.ContainsFunc(d.members, func(m *member) bool { return !is(m) }) }
	}
	d.must("all are open", each(func(m *member) bool { return !m.active["opening"] }))
	tell("pause")
	d.must("all clients pause", each(func(m *member) bool { return m.paused }))
	tell("state")
	d.must("all have answered", each(func(m *member) bool { return m.state != "" }))
	d.compare()
	d.mu.Lock()
	for _, m := range d.members {
		m.paused, m.state = false, ""
	}
	d.mu.Unlock()
	tell("resume")
	d.agreed++
}

// compare compares the states that all members have said.
func (d *killing) compare() {
	d.t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	first := strings.Fields(d.members[0].state + " ")
	for _, m := range d.members[1:] {
		if m.state != d.members[0].state {
			d.t.Fatalf("hosts 1 and %d have different states: %.80s, and %.80s", m.setup.ID, d.members[0].state, m.state)
		}
	}
	if first[2] != "0" {
		d.t.Errorf("%s writes were applied twice", first[2])
	}
	var form string
	if len(first) > 3 {
		form = first[3]
	}
	b, err := base64.StdEncoding.DecodeString(form)
	if err != nil {
		d.t.Fatal(err)
	}
	writes, err := decodeWrites(b)
	if err != nil {
		d.t.Fatal(err)
	}
	for client, acked := range d.acked {
		words := writes[client]
		for seq := range acked {
			if seq/64 >= uint64(len(words)) || words[seq/64]&(1<<(seq%64)) == 0 {
				d.t.Fatalf("write %d of client %d was acknowledged, and is gone", seq, client)
			}
		}
	}
}

// hits renders how many kills hit which phase.
func (d *killing) hits() string {
	var all []string
	for _, phase := range phases {
		all = append(all, fmt.Sprintf("%s %d", phase, d.during[phase]))
	}
	if other := slices.Sorted(maps.Keys(d.during)); len(other) > len(phases)+1 {
		all = append(all, fmt.Sprint(other))
	}
	return strings.Join(all, ", ")
}
