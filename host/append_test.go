package host

import (
	"context"
	"testing"
	"time"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/host/internal/appendlane"
	"github.com/millrace/millrace/host/internal/proposals"
	"github.com/millrace/millrace/host/internal/pulse"
	"github.com/millrace/millrace/host/internal/reports"
	"github.com/millrace/millrace/host/internal/sched"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal"
)

// testLane is an append lane with its own log, and a group that has nothing but its queue to the lane.
// Nothing reads what it answers.
type testLane struct {
	*appendlane.Lane
	log   Log
	group *Group
	disk  *crashfs.FS
	peers recordingTransport
}

func newTestLane(t *testing.T) *testLane {
	s, manual := &testLane{disk: crashfs.New()}, &manualEnv{}
	s.log = NewLog(openLog(t, manual, s.disk))
	t.Cleanup(func() { _ = s.log.Close() })
	s.Lane = appendlane.New(appendlane.Settings{Log: laneLog{s.log}, Self: 1, To: &s.peers})
	s.Start(&manualTask{}, manual.Timer(func() {}))
	host := &Host{storage: hostStorage{log: s.log, lane: s.Lane}, reports: hostReports{events: new(reports.Events)}, network: hostNetwork{pulses: pulse.New(1, 0, nil, nil)}, env: environment{logger: quiet}}
	host.groups.init(nil)
	s.group = &Group{member: member{id: theGroup, self: 1, host: host}, proposals: groupProposals{Queue: proposals.NewQueue(proposals.Settings{Budget: &host.memory.proposed})}, life: newLife()}
	shard, _ := testShard(&manualTask{})
	s.group.inbox.memory, s.group.inbox.given = &host.memory.memory, shard.Guard()
	s.group.writes.append = s.NewQueue(theGroup, (*writer)(s.group), s.log.Group(theGroup), raftpb.HardState{}, nil)
	s.group.sit(shard)
	host.groups.set(theGroup, s.group)
	return s
}

// testShard returns a shard that nothing advances, with its worker, which has that task.
func testShard(task env.Task) (s *sched.Shard, w *sched.Worker) {
	s = sched.New(sched.Settings{Now: func() time.Duration { return 0 }, LongTurn: time.Second, Hasten: func() {}, Outbox: func() sched.Outbox { return &workerOutbox{} }})
	s.Start(func(worker env.Worker) env.Task {
		w = worker.(*sched.Worker)
		return task
	})
	return s, w
}

// put queues a message.
func (s *testLane) put(m raftpb.Message) {
	s.Hand(s.group.writes.append, m)
}

// toGroup returns what the group was answered.
func (s *testLane) toGroup() []raftpb.Message { return s.group.inbox.waiting.answers }

// run does pieces of work until there is none left.
func (s *testLane) run() {
	for s.RunOnce() {
	}
}

// The delays of a durability mode are measured with the host's clock.
func TestDurabilityRunsOnTheHostsClock(t *testing.T) {
	manual, disk := &manualEnv{}, crashfs.New()
	h, err := openOne(Config{ID: 1, Dir: "data", Members: map[uint64]string{1: "nowhere"}, Durability: wal.ModeUnsafeInterval(time.Second, 0)}, &commands{},
		WithEnv(manual.env()), WithFS(disk), WithTransport(&recordingTransport{}), WithLogger(quiet))
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close(context.Background())
	h.Group(theGroup).Campaign()
	manual.runIdle()
	manual.fireTimers()
	if _, err := h.Group(theGroup).Submit([]byte("x")); err != nil {
		t.Fatal(err)
	}
	manual.runIdle()
	before := h.LogStats().Syncs
	if manual.fireTimers(); h.LogStats().Syncs != before+1 {
		t.Errorf("%d syncs when the interval was over, want 1", h.LogStats().Syncs-before)
	}
}
