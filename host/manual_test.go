package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/host/internal/sched"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal"
)

// manualEnv is an environment that moves only when the test says so: workers run in runIdle, timers fire in
// fireTimers, ticks come by tick.
type manualEnv struct {
	tasks    []*manualTask
	timers   []*manualTimer
	every    []func() int
	period   time.Duration // of every
	pause    int           // in ticks, until the last call of every wants the next
	hastened int
	lastTurn bool // turns run when no other worker is woken
	now      time.Duration
	reads    atomic.Int64 // of the clock
}

// oneGoroutine skips a long test of a manualEnv under -race -short. All of it runs on one goroutine: the race
// detector would make it take minutes, and find nothing.
func oneGoroutine(t *testing.T) {
	if raceEnabled && testing.Short() {
		t.Skip("one goroutine, for long: not for the race detector")
	}
}

func (s *manualEnv) env() env.Env { return env.Env{Clock: s, Rand: s, Scheduler: s} }

func (s *manualEnv) Now() time.Duration      { s.reads.Add(1); return s.now }
func (s *manualEnv) Boottime() time.Duration { return s.now }
func (s *manualEnv) Uint64() uint64          { return 7 }

// Every calls f at each tick, however long a pause it asks for.
func (s *manualEnv) Every(period time.Duration, f func() int) env.Ticker {
	s.every, s.period = append(s.every, f), period
	return (*manualTicker)(s)
}

type manualTicker manualEnv

func (t *manualTicker) Hasten() { t.hastened++ }
func (t *manualTicker) Stop()   {}

func (s *manualEnv) Timer(f func()) env.Timer {
	t := &manualTimer{env: s, f: f}
	s.timers = append(s.timers, t)
	return t
}

func (s *manualEnv) Go(_ string, _ env.Kind, w env.Worker) env.Task {
	t := &manualTask{worker: w}
	s.tasks = append(s.tasks, t)
	return t
}

type manualTimer struct {
	env *manualEnv
	f   func()
	set bool
	at  time.Duration
}

func (t *manualTimer) Set(after time.Duration) { t.set, t.at = true, t.env.now+after }
func (t *manualTimer) Stop()                   { t.set = false }

type manualTask struct {
	worker      env.Worker
	woken, dead bool
}

func (t *manualTask) Wake() { t.woken = true }
func (t *manualTask) Stop() { t.dead = true }

// runIdle runs all woken workers until none is woken.
func (s *manualEnv) runIdle() {
	for range 10_000 {
		idle := true
		for _, t := range s.tasks {
			if _, turns := t.worker.(*sched.Worker); t.woken && !t.dead && !(turns && s.lastTurn && s.othersWoken()) {
				t.woken, idle = false, false
				if t.worker.RunOnce() {
					t.woken = true
				}
			}
		}
		if idle {
			return
		}
	}
	panic("the workers do not become idle")
}

// turns returns how many turns the shard of the group has run.
func (l *testHost) turns() uint64 {
	turns, _ := l.group.seat.Shard().Counts()
	return turns
}

// worker returns the worker that runs the turns of the group at present.
func (l *testHost) worker() *sched.Worker { return l.group.seat.Shard().Workers()[0] }

// othersWoken reports whether a worker is woken that does no turns.
func (s *manualEnv) othersWoken() bool {
	return slices.ContainsFunc(s.tasks, func(t *manualTask) bool {
		_, turns := t.worker.(*sched.Worker)
		return t.woken && !t.dead && !turns
	})
}

func (s *manualEnv) tick() { s.tickLate(1) }

// tickLate advances the clock by a number of ticks, and then delivers one tick.
func (s *manualEnv) tickLate(ticks int) {
	s.pass(ticks)
	s.runIdle()
}

// pass is tickLate before any worker runs.
func (s *manualEnv) pass(ticks int) {
	s.now += time.Duration(ticks) * s.period
	for _, f := range s.every {
		s.pause = f()
	}
}

// fireTimers advances the clock until the timers that are set have fired, and returns how many did.
func (s *manualEnv) fireTimers() (fired int) {
	for _, t := range s.timers {
		if t.set {
			t.set, s.now = false, max(s.now, t.at)
			t.f()
			fired++
		}
	}
	s.runIdle()
	return fired
}

// recordingTransport is a transport without peers that records what is sent.
type recordingTransport struct {
	mu     sync.Mutex
	sent   []raftpb.Message
	calls  int
	closed bool
	load   uint64 // the number of the latest question about load
}

func (o *recordingTransport) Start(transport.Receiver) {}
func (o *recordingTransport) Close() error             { o.closed = true; return nil }

func (o *recordingTransport) SendBytes(_ uint64, kind transport.Kind, body []byte) bool {
	if kind == transport.Control && body[0] == control.LoadQuestion {
		o.mu.Lock()
		defer o.mu.Unlock()
		_ = control.DecodeNumbers(body, "a question about load", &o.load)
	}
	return false
}

func (o *recordingTransport) Send(_ uint64, batch []transport.Envelope) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range batch {
		o.sent = append(o.sent, batch[i].Message)
	}
	o.calls++
	return true
}

// take returns the messages of one type that were sent since the last take.
func (o *recordingTransport) take(t raftpb.MessageType) []raftpb.Message {
	o.mu.Lock()
	defer o.mu.Unlock()
	var found []raftpb.Message
	for _, m := range o.sent {
		if m.Type == t {
			found = append(found, m)
		}
	}
	o.sent = nil
	return found
}

// commands is a state machine that records.
type commands struct {
	entries []statemachine.Entry
	fail    func(statemachine.Entry) error
}

func (c *commands) Apply(entries []statemachine.Entry) error {
	for _, e := range entries {
		if c.fail != nil {
			if err := c.fail(e); err != nil {
				return err
			}
		}
		c.entries = append(c.entries, e)
	}
	return nil
}

var quiet = slog.New(slog.DiscardHandler)

// theGroup is the group of the tests that need only one.
const theGroup = 1

// openOne opens a host with one group, theGroup.
func openOne(c Config, machine statemachine.Machine, options ...Option) (*Host, error) {
	h, err := Open(context.Background(), c, options...)
	if err != nil {
		return nil, err
	}
	if _, err := h.OpenGroup(context.Background(), GroupConfig{ID: theGroup}, machine); err != nil {
		return nil, errors.Join(err, h.Close(context.Background()))
	}
	return h, nil
}

// testHost is a host in a manualEnv, with one group of the given voters. The test plays the other hosts.
type testHost struct {
	*Host
	group   *Group // theGroup
	t       *testing.T
	manual  *manualEnv
	disk    *crashfs.FS
	out     *recordingTransport
	machine *commands
}

func openTestHost(t *testing.T, voters int, options ...Option) *testHost {
	t.Helper()
	return openTestHostWith(t, voters, func(*Config) {}, options...)
}

// openTestHostWith opens a testHost with a changed configuration.
func openTestHostWith(t *testing.T, voters int, change func(*Config), options ...Option) *testHost {
	t.Helper()
	l := &testHost{t: t, manual: &manualEnv{}, disk: crashfs.New(), out: &recordingTransport{}, machine: &commands{}}
	// These scripts name entries: each has one command.
	c := Config{ID: 1, Dir: "data", Members: map[uint64]string{}, SegmentBytes: 64 << 10, MemoryBytes: 4 << 20, SingleEntries: true}
	for id := range uint64(voters) {
		c.Members[id+1] = "nowhere"
	}
	change(&c)
	h, err := Open(t.Context(), c, append([]Option{WithEnv(l.manual.env()), WithFS(l.disk), WithTransport(l.out), WithLogger(quiet)}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	l.Host = h
	l.manual.timers = l.manual.timers[1:] // the first is the log's idle timer
	l.meet()
	l.group = l.open(theGroup, l.machine)
	return l
}

// open opens a group in which commands of at most 1 KiB are taken.
func (l *testHost) open(id uint64, machine statemachine.Machine) *Group {
	l.t.Helper()
	g, err := l.OpenGroup(l.t.Context(), GroupConfig{ID: id, MaxCommandBytes: 1 << 10}, machine)
	if err != nil {
		l.t.Fatal(err)
	}
	l.manual.runIdle()
	return g
}

// deliver passes messages from host 2 to the group.
func (l *testHost) deliver(messages ...raftpb.Message) { l.deliverTo(theGroup, messages...) }

// deliverTo passes messages from host 2 to a group.
func (l *testHost) deliverTo(group uint64, messages ...raftpb.Message) {
	batch := make([]transport.Envelope, len(messages))
	for i, m := range messages {
		m.From, m.To = 2, 1
		batch[i] = transport.Envelope{Group: group, Message: m}
	}
	(*inbound)(l.Host).Receive(2, batch)
	l.manual.runIdle()
}

// meet makes the other hosts admitted and met. The test plays them.
func (l *testHost) meet() {
	l.t.Helper()
	for _, id := range l.others() {
		meet(l.t, l.Host, id)
	}
	l.manual.runIdle()
}

// meet makes a host admit another one, and hear from it.
func meet(t *testing.T, h *Host, id uint64) {
	t.Helper()
	in := (*inbound)(h)
	peer := in.Introduce()
	peer.ID, peer.Incarnation, peer.Addr = id, incarnationOf(id), fmt.Sprint("host ", id)
	if err := in.Admit(peer, "test"); err != nil {
		t.Fatal(err)
	}
	in.Receive(id, nil)
}

func incarnationOf(id uint64) transport.Incarnation { return transport.Incarnation{1, 15: byte(id)} }

// begun is the last index of a new group whose leader takes commands: the leader's first entry, found,
// founded.
const begun = 3

// lead makes the host leader of term 1 in a founded group.
func (l *testHost) lead() {
	l.t.Helper()
	l.leadGroup(l.group)
}

func (l *testHost) leadGroup(g *Group) {
	l.t.Helper()
	g.Campaign()
	l.manual.runIdle()
	if len(g.core.node.Status().Config.Voters[0]) > 1 {
		l.deliverTo(g.id, raftpb.Message{Type: raftpb.MsgPreVoteResp, Term: 1})
		l.deliverTo(g.id, raftpb.Message{Type: raftpb.MsgVoteResp, Term: 1})
		for index := uint64(1); index <= begun; index++ {
			for _, id := range l.others() {
				m := raftpb.Message{Type: raftpb.MsgAppResp, Term: 1, Index: index, From: id, To: 1}
				if index == begun-1 || id == 2 { // found is on all disks
					(*inbound)(l.Host).Receive(id, envelopes(g.id, m))
				}
			}
			l.manual.runIdle()
		}
	}
	if s := g.Status(); s.Committed != begun || s.Leader != 1 || !g.Founding().Founded {
		l.t.Fatalf("the host does not lead: %+v", s)
	}
	l.manual.fireTimers()
	l.out.take(raftpb.MsgApp)
}

// littleMemory makes the bounds of a testHost small.
func littleMemory(c *Config) { c.MemoryBytes = minMemoryBytes }

func (l *testHost) submit(command string) Pending {
	l.t.Helper()
	p, err := l.group.Submit([]byte(command))
	if err != nil {
		l.t.Fatal(err)
	}
	return p
}

// poll returns the outcome, which must be known.
func poll(t *testing.T, p Pending) (outcome.Receipt, error) {
	t.Helper()
	r, done, err := p.Poll()
	if !done {
		t.Fatal("the proposal is not answered")
	}
	return r, err
}

// openLog opens a log of its own on a disk.
func openLog(t *testing.T, s *manualEnv, disk vfs.FS) *wal.Log {
	t.Helper()
	log, err := wal.Open(wal.Options{FS: disk, Dir: "log", Scheduler: s, Clock: &manualEnv{}, Owner: 1, SegmentBytes: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	s.runIdle()
	return log
}
