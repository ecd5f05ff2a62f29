package host

import (
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/env"
	pb "github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal"
)

// stage is a world that moves only when the test says so: workers run in settle, timers ring in ring, ticks come by tick.
type stage struct {
	tasks  []*stageTask
	timers []*stageTimer
	every  []func()
	period time.Duration // of every
	now    time.Duration
}

func (s *stage) env() env.Env { return env.Env{Clock: s, Rand: s, Scheduler: s} }

func (s *stage) Now() time.Duration { return s.now }
func (s *stage) Uint64() uint64     { return 7 }

func (s *stage) Every(period time.Duration, f func()) func() {
	s.every, s.period = append(s.every, f), period
	return func() {}
}

func (s *stage) Timer(f func()) env.Timer {
	t := &stageTimer{f: f}
	s.timers = append(s.timers, t)
	return t
}

func (s *stage) Go(_ string, _ env.Kind, w env.Worker) env.Task {
	t := &stageTask{worker: w}
	s.tasks = append(s.tasks, t)
	return t
}

type stageTimer struct {
	f   func()
	set bool
}

func (t *stageTimer) Set(time.Duration) { t.set = true }
func (t *stageTimer) Stop()             { t.set = false }

type stageTask struct {
	worker      env.Worker
	woken, dead bool
}

func (t *stageTask) Wake() { t.woken = true }
func (t *stageTask) Stop() { t.dead = true }

// settle runs whoever wants to until nobody does.
func (s *stage) settle() {
	for range 10_000 {
		idle := true
		for _, t := range s.tasks {
			if t.woken && !t.dead {
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
	panic("the workers do not come to rest")
}

func (s *stage) tick() { s.tickLate(1) }

// tickLate lets the time of so many ticks pass, and then one tick come.
func (s *stage) tickLate(ticks int) {
	s.now += time.Duration(ticks) * s.period
	for _, f := range s.every {
		f()
	}
	s.settle()
}

// ring lets the timers that are set ring, and reports how many did.
func (s *stage) ring() (rang int) {
	for _, t := range s.timers {
		if t.set {
			t.set = false
			t.f()
			rang++
		}
	}
	s.settle()
	return rang
}

// outbound is a transport to nobody that remembers what was sent.
type outbound struct {
	mu     sync.Mutex
	sent   []pb.Message
	calls  int
	closed bool
}

func (o *outbound) Start(transport.Receiver) {}
func (o *outbound) Close() error             { o.closed = true; return nil }

func (o *outbound) Send(_, _ uint64, messages []pb.Message) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sent = append(o.sent, slices.Clone(messages)...)
	o.calls++
	return true
}

// take returns what was sent since the last take, of one type.
func (o *outbound) take(t pb.MessageType) []pb.Message {
	o.mu.Lock()
	defer o.mu.Unlock()
	var found []pb.Message
	for _, m := range o.sent {
		if m.Type == t {
			found = append(found, m)
		}
	}
	o.sent = nil
	return found
}

// commands is a state machine that remembers.
type commands struct {
	entries []Entry
	fail    func(Entry) error
}

func (c *commands) Apply(entries []Entry) error {
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

// lone is a host on a stage: host 1 of the given voters, and the test plays the others.
type lone struct {
	*Host
	t       *testing.T
	stage   *stage
	disk    *crashfs.FS
	out     *outbound
	machine *commands
}

func openLone(t *testing.T, voters int, options ...Option) *lone {
	t.Helper()
	l := &lone{t: t, stage: &stage{}, disk: crashfs.New(), out: &outbound{}, machine: &commands{}}
	c := Config{ID: 1, Dir: "data", Peers: map[uint64]string{}, SegmentBytes: 64 << 10, MaxCommandBytes: 1 << 10, MaxProposalBytes: 4 * (1<<10 + overheadBytes), MaxInboxBytes: 4 << 10}
	for id := range uint64(voters) {
		c.Peers[id+1] = "nowhere"
	}
	h, err := Open(c, l.machine, append([]Option{WithEnv(l.stage.env()), WithFS(l.disk), WithTransport(l.out), WithLogger(quiet)}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	l.Host = h
	l.stage.timers = l.stage.timers[1:] // the first is the log's, for what it does when nothing comes
	l.stage.settle()
	return l
}

// hear delivers messages from host 2.
func (l *lone) hear(messages ...pb.Message) {
	batch := make([]transport.Envelope, len(messages))
	for i, m := range messages {
		m.From, m.To = 2, 1
		batch[i] = transport.Envelope{Group: theGroup, Message: m}
	}
	(*inbound)(l.Host).Receive(2, batch)
	l.stage.settle()
}

// lead makes the host leader of term 1, with its first entry committed.
func (l *lone) lead() {
	l.t.Helper()
	l.group.Campaign()
	l.stage.settle()
	if len(l.group.node.Status().Config.Voters[0]) > 1 {
		l.hear(pb.Message{Type: pb.MsgPreVoteResp, Term: 1})
		l.hear(pb.Message{Type: pb.MsgVoteResp, Term: 1})
		l.hear(pb.Message{Type: pb.MsgAppResp, Term: 1, Index: 1})
	}
	if s := l.group.Status(); s.Committed != 1 || s.Leader != 1 {
		l.t.Fatalf("the host does not lead: %+v", s)
	}
	l.stage.ring()
	l.out.take(pb.MsgApp)
}

func (l *lone) submit(command string) Pending {
	l.t.Helper()
	p, err := l.group.Submit([]byte(command))
	if err != nil {
		l.t.Fatal(err)
	}
	return p
}

// poll returns the outcome, which must be known.
func poll(t *testing.T, p Pending) (Receipt, error) {
	t.Helper()
	r, done, err := p.Poll()
	if !done {
		t.Fatal("nobody has answered")
	}
	return r, err
}

// openLog opens a log on a disk of its own.
func openLog(t *testing.T, s *stage, disk vfs.FS) *wal.Log {
	t.Helper()
	log, err := wal.Open(wal.Options{FS: disk, Dir: "log", Scheduler: s, Clock: &stage{}, Owner: 1, SegmentBytes: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	s.settle()
	return log
}
