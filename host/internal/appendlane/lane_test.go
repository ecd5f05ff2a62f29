package appendlane

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/host/internal/sched"
	"github.com/millrace/millrace/host/internal/workqueue"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal"
)

// laneOf returns a lane with so many groups besides theGroup, and their queues.
func laneOf(t *testing.T, groups int) (*testLane, []*testQueue) {
	s := newTestLane(t)
	var queues []*testQueue
	for i := range groups {
		queues = append(queues, s.add(uint64(theGroup+1+i)))
	}
	return s, queues
}

// sized is an append message of one entry with n bytes.
func sized(index, bytes uint64) raftpb.Message {
	m := appendMessage(index, index+1, 1, 0, 0)
	m.Entries[0].Data = make([]byte, bytes)
	return m
}

// last returns the index through which a group's log is written.
func (s *testLane) last(q *testQueue) uint64 { return s.wal.Group(q.group).LastIndex() }

// answered returns the index through which a group's durable entries were answered to the group.
func answered(q *testQueue) (through uint64) {
	for _, m := range q.answers {
		through = max(through, m.Index)
	}
	return through
}

// One group has 64 MiB queued. Nine others come with 1 KiB each, before the first round or in the middle of
// one: each of them is written and answered within two rounds, and no round is larger
// than allowed.
func TestRoundsAreFairBetweenGroups(t *testing.T) {
	for _, before := range []int{0, 1, 2, 3, 4, 5} { // pieces of work: a write, then its sync
		t.Run(fmt.Sprint(before), func(t *testing.T) {
			s, others := laneOf(t, 9)
			s.replaceLog(t, 32<<20)
			for i := range uint64(64) {
				s.put(sized(i+1, 1<<20))
			}
			for range before {
				s.RunOnce()
			}
			at := s.last(s.q)
			for _, q := range others {
				s.putFor(q, sized(1, 1<<10))
			}
			s.put(sized(65, 1<<20)) // the large one goes on as well
			for range 2 {
				wrote := s.last(s.q)
				s.RunOnce()
				s.RunOnce()
				if bytes := (s.last(s.q) - wrote) << 20; bytes > workqueue.MaxRoundBytes {
					t.Errorf("a round wrote %d bytes, at most %d are allowed", bytes, workqueue.MaxRoundBytes)
				}
			}
			for _, q := range others {
				if s.last(q) != 1 || answered(q) != 1 {
					t.Errorf("group %d is written through %d and answered through %d, two rounds after it came", q.group, s.last(q), answered(q))
				}
			}
			if s.last(s.q) == at {
				t.Error("the group with much to write has stopped")
			}
			s.run()
			if s.last(s.q) != 65 || answered(s.q) != 65 {
				t.Errorf("in the end the large group is written through %d and answered through %d of 65", s.last(s.q), answered(s.q))
			}
		})
	}
}

// While others wait, a group gets a share of each round, and all of it when it is alone.
func TestShareOfARound(t *testing.T) {
	s, others := laneOf(t, 1)
	s.replaceLog(t, 32<<20)
	for i := range uint64(16) {
		s.put(sized(i+1, 512<<10))
		s.putFor(others[0], sized(i+1, 512<<10))
	}
	s.RunOnce()
	if a, b := s.last(s.q), s.last(others[0]); a < 1 || b < 1 || a<<19 > workqueue.MaxShareBytes || b<<19 > workqueue.MaxShareBytes {
		t.Errorf("a round of two groups took %d and %d messages of 512 KiB", a, b)
	}
	s.run()
	for i := range uint64(16) {
		s.put(sized(i+17, 512<<10))
	}
	s.RunOnce()
	if bytes := (s.last(s.q) - 16) << 19; bytes <= workqueue.MaxShareBytes {
		t.Errorf("a group alone gets %d bytes of a round", bytes)
	}
}

// calls records the calls of a transport.
type calls struct {
	batches map[uint64][][]transport.Envelope
}

func (c *calls) Send(to uint64, batch []transport.Envelope) bool {
	c.batches[to] = append(c.batches[to], slices.Clone(batch))
	return true
}

// testShard returns a shard that nothing advances, with its worker, which has that task.
func testShard(task env.Task) (s *sched.Shard, w *sched.Worker) {
	s = sched.New(sched.Settings{Now: func() time.Duration { return 0 }, LongTurn: time.Second, Hasten: func() {}, Outbox: func() sched.Outbox { return noOutbox{} }})
	s.Start(func(worker env.Worker) env.Task {
		w = worker.(*sched.Worker)
		return task
	})
	return s, w
}

// noOutbox is for turns that send nothing.
type noOutbox struct{}

func (noOutbox) Flush() {}

// wakes counts the wakes of a task.
type wakes struct{ n int }

func (w *wakes) Wake() { w.n++ }
func (w *wakes) Stop() {}

// What many groups have queued costs one append, one sync, one call of the transport for each peer, and one
// wake of each shard.
func TestManyGroupsInOneRound(t *testing.T) {
	s, queues := laneOf(t, 50)
	sent := &calls{map[uint64][][]transport.Envelope{}}
	s.outgoing.To = sent
	tasks := []*wakes{{}, {}}
	var shards []*sched.Shard
	var workers []*sched.Worker
	for _, task := range tasks {
		shard, worker := testShard(task)
		shards, workers = append(shards, shard), append(workers, worker)
	}
	for i, q := range queues {
		q.sit(shards[i%2])
	}
	for _, w := range workers {
		for seat, _, _ := w.Begin(); seat != nil; seat, _, _ = w.Begin() {
			w.End(seat, false, 1<<60)
		}
	}
	tasks[0].n, tasks[1].n = 0, 0
	for _, q := range queues {
		m := sized(1, 10)
		m.Responses = append(m.Responses, raftpb.Message{Type: raftpb.MsgAppResp, From: 1, To: 3, Term: 1, Index: 1})
		s.putFor(q, m)
	}
	before := s.wal.Stats()
	syncs := s.run()
	if after := s.wal.Stats(); after.Appends-before.Appends != 1 || syncs != 1 {
		t.Errorf("%d appends and %d syncs, want one of each", after.Appends-before.Appends, syncs)
	}
	for peer := uint64(2); peer <= 3; peer++ {
		if n := len(sent.batches[peer]); n != 1 || len(sent.batches[peer][0]) != len(queues) {
			t.Errorf("%d calls of the transport for host %d, want one with %d messages", n, peer, len(queues))
		}
	}
	for _, q := range queues {
		if answered(q) != 1 || s.last(q) != 1 {
			t.Errorf("group %d is written through %d and answered through %d", q.group, s.last(q), answered(q))
		}
	}
	if tasks[0].n != 1 || tasks[1].n != 1 {
		t.Errorf("%d and %d wakes of two shards, want one of each", tasks[0].n, tasks[1].n)
	}
}

// One group's write is invalid: it has a gap. This group stops with the cause and is answered nothing; the
// others of the round are written and answered, and go on.
func TestInvalidWriteStopsItsGroupOnly(t *testing.T) {
	s, queues := laneOf(t, 3)
	for i, q := range queues {
		m := sized(1, 10)
		if i == 1 {
			m = sized(5, 10)
		}
		s.putFor(q, m)
	}
	s.run()
	for round := uint64(1); round <= 2; round++ {
		for i, q := range queues {
			err := q.err
			switch {
			case i == 1 && (!errors.Is(err, wal.ErrInvalidWrite) || s.last(q) != 0 || answered(q) != 0):
				t.Errorf("the invalid group stopped with %v, is written through %d and answered through %d", err, s.last(q), answered(q))
			case i != 1 && (err != nil || s.last(q) != round || answered(q) != round):
				t.Errorf("round %d: group %d stopped with %v, is written through %d and answered through %d", round, q.group, err, s.last(q), answered(q))
			}
		}
		s.putFor(queues[0], sized(2, 10))
		s.putFor(queues[2], sized(2, 10))
		s.run()
	}
	if s.failure != nil {
		t.Errorf("the lane stopped: %v", s.failure)
	}
}

// A disk without new space refuses what does not fit. Only the groups of these writes wait; small writes of
// others go on, and the votes of each group that waits overtake its entries. With space again, all is written
// in order and answered once.
func TestFullDiskParksOnlyWhatIsRefused(t *testing.T) {
	s, queues := laneOf(t, 4)
	small, large := queues[:2], queues[2:]
	for _, q := range queues {
		s.putFor(q, sized(1, 10))
	}
	s.run()
	s.disk.SetHook(noNewSegments)
	for i := range queues { // in one round, refused and taken in turns
		s.putFor(small[i%2], sized(uint64(2+i/2), 10))
		s.putFor(large[i%2], sized(uint64(2+i/2), 100<<10))
	}
	s.run()
	for _, q := range small {
		if s.last(q) != 3 || answered(q) != 3 {
			t.Errorf("group %d fits, and is written through %d and answered through %d of 3", q.group, s.last(q), answered(q))
		}
	}
	if want := []uint64{large[0].group, large[1].group}; !slices.Equal(slices.Sorted(slices.Values(s.refused)), want) {
		t.Errorf("groups %v were reported for a full disk, want %v", s.refused, want)
	}
	s.peers.sent = nil
	for i, q := range large {
		if s.last(q) != 1 || answered(q) != 1 {
			t.Errorf("group %d does not fit, and is written through %d and answered through %d", q.group, s.last(q), answered(q))
		}
		s.putFor(q, voteFor(3, uint64(5+i), 2))
	}
	s.run()
	if len(s.peers.sent) != 2 || s.peers.sent[0].Term+s.peers.sent[1].Term != 11 {
		t.Errorf("peers heard %v, want the votes of both groups", s.peers.sent)
	}
	after := openLog(t, s.disk.Image(crashfs.LoseAll, nil))
	for i, q := range large {
		if hs := after.Group(q.group).HardState(); hs.Term != uint64(5+i) || hs.Vote != 3 || hs.Commit != 0 {
			t.Errorf("group %d: a power cut leaves %+v, want term %d, the vote for 3 and no newer commit index", q.group, hs, 5+i)
		}
	}
	s.disk.SetHook(nil)
	s.Tick()
	s.run()
	for i, q := range large {
		hs := s.wal.Group(q.group).HardState()
		if s.last(q) != 3 || answered(q) != 3 || hs.Term != uint64(5+i) || hs.Vote != 3 || q.Held() != 0 {
			t.Errorf("with space again group %d is written through %d and answered through %d of 3, with %+v; %d bytes are held", q.group, s.last(q), answered(q), hs, q.Held())
		}
	}
	if n := len(s.refused); n != 2 {
		t.Errorf("a full disk was reported %d times for two groups", n)
	}
}

// What a group has queued when it leaves is neither written nor answered. If it is removed, the lane has done
// with it when it is deleted durably. Other groups of the round are as they were.
func TestLeavingGroupIsNotWritten(t *testing.T) {
	for _, deletes := range []bool{false, true} {
		t.Run(fmt.Sprintf("removed: %t", deletes), func(t *testing.T) {
			s, queues := laneOf(t, 2)
			leaves, stays := queues[0], queues[1]
			for _, q := range queues {
				s.putFor(q, sized(1, 10))
			}
			s.run()
			s.peers.sent, leaves.answers = nil, nil
			for _, q := range queues {
				s.putFor(q, sized(2, 10))
			}
			s.Leave(leaves.Queue, deletes)
			for more := true; more; {
				more = s.RunOnce()
				if !leaves.released {
					continue
				}
				after := openLog(t, s.disk.Image(crashfs.LoseAll, nil)).Group(leaves.group)
				if deletes && (after.LastIndex() != 0 || after.HardState().Term != 0) {
					t.Fatalf("the lane has done with the removed group, and a power cut leaves a log through %d with %+v", after.LastIndex(), after.HardState())
				}
			}
			if !leaves.released {
				t.Fatal("the lane has not done with the group")
			}
			want := uint64(1)
			if deletes {
				want = 0
			}
			if s.last(leaves) != want || answered(leaves) != 0 || len(s.peers.sent) != 1 {
				t.Errorf("the group that leaves is written through %d, want %d, and answered through %d; peers heard %v", s.last(leaves), want, answered(leaves), s.peers.sent)
			}
			if s.last(stays) != 2 || answered(stays) != 2 {
				t.Errorf("the other group is written through %d and answered through %d of 2", s.last(stays), answered(stays))
			}
			if used := s.budget.Used(); used != 0 {
				t.Errorf("%d bytes count as waiting for the disk", used)
			}
		})
	}
}

// Whatever groups queue at the same time, on a disk that is full now and then, each group's log ends as if it
// had a lane for itself and a disk with space, and each is answered as far.
func TestLaneBesideLanesOfOne(t *testing.T) {
	refusals := 0
	for seed := range uint64(150) {
		rng := rand.New(rand.NewPCG(seed, 11))
		s, queues := laneOf(t, 1+rng.IntN(4))
		alone := make([]*testLane, len(queues))
		hard, last := make([]raftpb.HardState, len(queues)), make([]uint64, len(queues))
		for i := range queues {
			alone[i], hard[i] = newTestLane(t), raftpb.HardState{Term: 1}
		}
		for range 60 {
			switch i := rng.IntN(len(queues)); rng.IntN(6) {
			case 0:
				s.disk.SetHook(noNewSegments)
			case 1:
				s.disk.SetHook(nil)
				s.Tick()
			case 2:
				s.RunOnce()
			case 3:
				hard[i] = raftpb.HardState{Term: hard[i].Term + 1, Vote: 3, Commit: hard[i].Commit}
				s.putFor(queues[i], voteFor(3, hard[i].Term, hard[i].Commit))
				alone[i].put(voteFor(3, hard[i].Term, hard[i].Commit))
			default:
				lo := max(hard[i].Commit+1, last[i]+1-min(last[i], rng.Uint64N(3)))
				m := appendMessage(lo, lo+1+rng.Uint64N(3), hard[i].Term, hard[i].Vote, hard[i].Commit)
				m.Entries[0].Data = make([]byte, rng.IntN(30<<10))
				last[i] = m.Entries[len(m.Entries)-1].Index
				hard[i].Commit += rng.Uint64N(last[i] - hard[i].Commit + 1)
				s.putFor(queues[i], m)
				alone[i].put(m)
			}
		}
		refusals += len(s.refused)
		s.disk.SetHook(nil)
		s.Tick()
		s.run()
		if s.failure != nil {
			t.Fatalf("seed %d: the lane stopped: %v", seed, s.failure)
		}
		for i, q := range queues {
			alone[i].run()
			have, want := s.wal.Group(q.group), alone[i].wal.Group(theGroup)
			if have.LastIndex() != want.LastIndex() || raft.MustSync(have.HardState(), want.HardState(), 0) {
				t.Fatalf("seed %d: group %d ends at %d with %+v; alone at %d with %+v", seed, q.group, have.LastIndex(), have.HardState(), want.LastIndex(), want.HardState())
			}
			for index := uint64(1); index <= want.LastIndex(); index++ {
				a, _ := have.Term(index)
				if b, _ := want.Term(index); a != b {
					t.Fatalf("seed %d: group %d has entry %d of term %d, alone of term %d", seed, q.group, index, a, b)
				}
			}
			if x, y := lastAccept(q.answers), lastAccept(alone[i].toGroup()); x.Index != y.Index || x.Term != y.Term {
				t.Fatalf("seed %d: group %d was answered %v last, alone %v", seed, q.group, x, y)
			}
			if held := q.Held(); held != 0 {
				t.Fatalf("seed %d: group %d holds %d bytes in the end", seed, q.group, held)
			}
			_ = alone[i].wal.Close()
		}
		_ = s.wal.Close()
	}
	if refusals < 20 {
		t.Errorf("only %d refusals were seen", refusals)
	}
}
