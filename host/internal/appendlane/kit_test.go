package appendlane

import (
	"errors"
	"testing"
	"time"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/host/internal/budget"
	"github.com/millrace/millrace/host/internal/sched"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal"
)

const theGroup = 7

// testLane is a lane with its own log, and groups that record what they are told.
type testLane struct {
	*Lane
	q       *testQueue // of theGroup
	wal     *wal.Log
	disk    *crashfs.FS
	peers   recordingSender
	failure error
	refused []uint64 // the groups whose disk was reported full
	budget  budget.Budget
}

// testQueue is a queue, and its client.
type testQueue struct {
	*Queue
	lane     *testLane
	seat     sched.Seat
	answers  []raftpb.Message
	outcomes []Outcome
	restores []func()
	err      error
	released bool
}

func (q *testQueue) Appended() {}

func (q *testQueue) Answer(answers []raftpb.Message, woken *sched.Woken) {
	q.answers = append(q.answers, answers...)
	woken.Add(&q.seat)
}

func (q *testQueue) DiskFull(error) { q.lane.refused = append(q.lane.refused, q.group) }

func (q *testQueue) Restore(_ *raftpb.Snapshot, restored func()) {
	q.restores = append(q.restores, restored)
}
func (q *testQueue) Discarded(o Outcome) { q.outcomes = append(q.outcomes, o) }
func (q *testQueue) Fail(err error)      { q.err = errors.Join(q.err, err) }
func (q *testQueue) Released()           { q.released = true }

// turner is a group that has nothing to do in its turns.
type turner struct{}

func (turner) Turn(sched.Time, bool, sched.Outbox) (again bool, due int64) { return false, 1 << 60 }
func (turner) Begin(time.Duration, bool)                                   {}
func (turner) Left()                                                       {}
func (turner) Gathers() bool                                               { return false }
func (turner) Gathered(time.Duration)                                      {}
func (turner) Deadline(sched.Time) sched.Verdict                           { return sched.Verdict{} }
func (turner) Confirmed(sched.Time, int64) (due int64, sleeps bool)        { return 0, false }

func newTestLane(t *testing.T) *testLane {
	s := &testLane{disk: crashfs.New()}
	s.Lane = New(Settings{Self: 1, To: &s.peers, Ticks: func() int64 { return 0 }, Fail: func(err error) { s.failure = err }})
	s.Start(&wakes{}, &lateTimer{})
	s.use(openLog(t, s.disk))
	t.Cleanup(func() { _ = s.wal.Close() }) // some tests break it
	s.q = s.add(theGroup)
	return s
}

// use gives the lane another log.
func (s *testLane) use(log *wal.Log) { s.wal, s.Log = log, walLog{log} }

type walLog struct{ *wal.Log }

func (l walLog) TakeSync() (Flush, time.Duration, error) {
	f, wait, err := l.Log.TakeSync()
	if f == nil {
		return nil, wait, err
	}
	return f, wait, err
}

// add makes a group that has nothing but its queue to the lane.
func (s *testLane) add(id uint64) *testQueue {
	q := &testQueue{lane: s}
	q.Queue = s.NewQueue(id, q, s.wal.Group(id), raftpb.HardState{}, &s.budget)
	shard, _ := testShard(&wakes{})
	q.sit(shard)
	return q
}

func (q *testQueue) sit(s *sched.Shard) { s.Enter(&q.seat, turner{}, func(sched.Time) {}) }

// replaceLog opens another log in the place of the lane's.
func (s *testLane) replaceLog(t *testing.T, segmentBytes int64) {
	t.Helper()
	log, err := wal.Open(wal.Options{FS: s.disk, Dir: "large", Scheduler: &manual{}, Clock: &manual{}, Owner: 1, SegmentBytes: segmentBytes})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	s.use(log)
}

// put queues a message of theGroup.
func (s *testLane) put(m raftpb.Message) { s.putFor(s.q, m) }

func (s *testLane) putFor(q *testQueue, m raftpb.Message) {
	s.Hand(q.Queue, m)
}

// toGroup returns what theGroup was answered.
func (s *testLane) toGroup() []raftpb.Message { return s.q.answers }

func (s *testLane) forgetAnswers() { s.peers.sent, s.q.answers = nil, nil }

// run does pieces of work until there is none left, and returns how many syncs that cost.
func (s *testLane) run() (syncs uint64) {
	before := s.wal.Stats().Syncs
	for s.RunOnce() {
	}
	return s.wal.Stats().Syncs - before
}

// manual is a clock that stands still, and a scheduler whose workers run in runIdle only.
type manual struct{ tasks []*manualTask }

func (*manual) Now() time.Duration                         { return 0 }
func (*manual) Boottime() time.Duration                    { return 0 }
func (*manual) Every(time.Duration, func() int) env.Ticker { return nil }
func (*manual) Timer(func()) env.Timer                     { return &lateTimer{} }

func (m *manual) Go(_ string, _ env.Kind, w env.Worker) env.Task {
	t := &manualTask{worker: w}
	m.tasks = append(m.tasks, t)
	return t
}

type manualTask struct {
	worker env.Worker
	woken  bool
}

func (t *manualTask) Wake() { t.woken = true }
func (t *manualTask) Stop() { t.woken = false }

func (m *manual) runIdle() {
	for _, t := range m.tasks {
		for t.woken {
			t.woken = t.worker.RunOnce()
		}
	}
}

func openLog(t testing.TB, disk vfs.FS) *wal.Log {
	t.Helper()
	return openLogWith(t, &manual{}, disk, 64<<10)
}

func openLogWith(t testing.TB, m *manual, disk vfs.FS, segmentBytes int64) *wal.Log {
	t.Helper()
	log, err := wal.Open(wal.Options{FS: disk, Dir: "log", Scheduler: m, Clock: m, Owner: 1, SegmentBytes: segmentBytes})
	if err != nil {
		t.Fatal(err)
	}
	m.runIdle()
	return log
}

// recordingSender records what is sent to other hosts.
type recordingSender struct{ sent []raftpb.Message }

func (r *recordingSender) Send(_ uint64, batch []transport.Envelope) bool {
	for i := range batch {
		r.sent = append(r.sent, batch[i].Message)
	}
	return true
}

// span returns entries [lo, hi) of a term, without data.
func span(lo, hi, term uint64) (entries []raftpb.Entry) {
	for i := lo; i < hi; i++ {
		entries = append(entries, raftpb.Entry{Index: i, Term: term})
	}
	return entries
}

// appendMessage is an append message as the core makes them: entries [lo, hi) of a term, a hard state, an
// answer to a leader and one to this host.
func appendMessage(lo, hi, term, vote, commit uint64) raftpb.Message {
	m := raftpb.Message{Type: raftpb.MsgStorageAppend, To: raft.LocalAppendThread, Term: term, Vote: vote, Commit: commit, Entries: span(lo, hi, term)}
	m.Responses = []raftpb.Message{{Type: raftpb.MsgAppResp, From: 1, To: 2, Term: term, Index: hi - 1}}
	if hi > lo {
		m.Responses = append(m.Responses, raftpb.Message{Type: raftpb.MsgStorageAppendResp, From: raft.LocalAppendThread, To: 1, Term: term, Index: hi - 1})
	}
	return m
}

// lateTimer records what it was set to.
type lateTimer struct{ after time.Duration }

func (l *lateTimer) Set(d time.Duration) { l.after = d }
func (l *lateTimer) Stop()               {}
