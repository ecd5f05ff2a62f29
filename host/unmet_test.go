package host

import (
	"errors"
	"strings"
	"testing"

	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/internal/identity"
	"github.com/millrace/millrace/host/internal/plans"
	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs/crashfs"
)

// The host that a plan adds in these tests. Only the host that plans has met it.
const stranger = 4

// addStranger brings the plan of host 2, which adds the stranger as a learner, to the leader.
func (l *testHost) addStranger() {
	l.t.Helper()
	r := l.group.roster()
	stages, err := r.Make([]membership.Want{{Op: membership.Add, Learner: true, Member: membership.Member{ID: stranger, Incarnation: incarnationOf(stranger)}}})
	if err != nil {
		l.t.Fatal(err)
	}
	p := membership.Plan{ID: membership.PlanID{7}, Base: r.Changed, Stages: stages}
	l.control(2, plans.RequestOf(2, append([]byte{entry.PlanKind}, p.Encode()...)).Encode(theGroup))
	l.agree(12)
}

// agree lets time pass while host 2 acknowledges all that it is sent.
func (l *testHost) agree(beats int) {
	for range beats {
		if l.group.Err() != nil {
			return
		}
		st := l.group.core.node.BasicStatus()
		l.deliver(raftpb.Message{Type: raftpb.MsgAppResp, Term: st.Term, Index: st.LastIndex})
		l.manual.tick()
		l.manual.runIdle()
	}
}

// openKept opens a host on a disk, with a group whose machine takes snapshots.
func openKept(t *testing.T, disk *crashfs.FS) *testHost {
	t.Helper()
	l := &testHost{t: t, manual: &manualEnv{}, disk: disk, out: &recordingTransport{}}
	c := Config{ID: 1, Dir: "data", Members: map[uint64]string{1: "nowhere", 2: "nowhere", 3: "nowhere"}, SegmentBytes: 64 << 10, MemoryBytes: 4 << 20, LogCacheBytes: -1}
	h, err := Open(t.Context(), c, WithEnv(l.manual.env()), WithFS(disk), WithTransport(l.out), WithLogger(quiet))
	if err != nil {
		t.Fatal(err)
	}
	l.Host = h
	l.manual.timers = l.manual.timers[1:] // the first is the log's idle timer
	l.meet()
	l.group = l.open(theGroup, Commands(&keeper{}, statemachine.CommandOptions{}))
	return l
}

// restartedWithStranger is a leader that knows the stranger from its snapshot only: a founded group gets the
// stranger as a learner and takes a snapshot, the host starts again after a power cut, and leads again.
func restartedWithStranger(t *testing.T) *testHost {
	t.Helper()
	before := openKept(t, crashfs.New())
	before.lead()
	before.addStranger()
	s := before.group.StartSnapshot()
	before.agree(20)
	if _, done, err := s.Poll(); !done || err != nil {
		t.Fatalf("the snapshot: done %t, %v", done, err)
	}
	l := openKept(t, before.disk.Image(crashfs.LoseAll, nil))
	if role := l.group.roster().Role(stranger); role != membership.Learner || !l.knows(stranger) {
		t.Errorf("host %d is %v after the start, and is known: %t", stranger, role, l.knows(stranger))
	}
	l.group.Campaign()
	l.manual.runIdle()
	term := l.group.core.node.BasicStatus().Term + 1
	l.deliver(raftpb.Message{Type: raftpb.MsgPreVoteResp, Term: term})
	l.deliver(raftpb.Message{Type: raftpb.MsgVoteResp, Term: term})
	l.agree(10)
	if s := l.group.Status(); s.Role != event.RoleLeader || l.group.roster().Role(stranger) != membership.Learner {
		t.Fatalf("the host is %v of a group with %v", s.Role, l.group.roster().Conf)
	}
	return l
}

// A leader that adds a host which it has never met reads for it from its disk, as for every member: nothing
// that the new member needs is in memory.
func TestUnmetHostIsAdded(t *testing.T) {
	l := openTestHostWith(t, 3, func(c *Config) { c.LogCacheBytes = -1 })
	l.lead()
	l.out.take(raftpb.MsgApp)
	l.addStranger()
	if err := l.group.Err(); err != nil {
		t.Fatal(err)
	}
	if role := l.group.roster().Role(stranger); role != membership.Learner {
		t.Fatalf("host %d is %v", stranger, role)
	}
	for _, m := range l.out.take(raftpb.MsgApp) {
		if m.To == stranger {
			return
		}
	}
	t.Errorf("host %d was sent nothing", stranger)
}

// A member that only the snapshot names is known after a restart: Explain judges it.
func TestMemberOfASnapshotIsExplained(t *testing.T) {
	l := restartedWithStranger(t)
	l.agree(5 * l.config.electionTicks())
	for _, c := range l.group.Explain().Causes {
		if c.Code == diagnosis.CodeMemberUnreachable && c.Member == stranger {
			return
		}
	}
	t.Errorf("Explain does not say that host %d is unreachable: %v", stranger, l.group.Explain())
}

// Such a member comes back by a transport without addresses, and gets what it lacks.
func TestMemberOfASnapshotCatchesUp(t *testing.T) {
	l := restartedWithStranger(t)
	in := (*inbound)(l.Host)
	peer := in.Introduce()
	peer.ID, peer.Incarnation, peer.Addr, peer.Members = stranger, incarnationOf(stranger), "", nil
	if err := in.Admit(peer, "test"); err != nil {
		t.Fatal(err)
	}
	l.out.take(raftpb.MsgApp)
	last := l.group.core.node.BasicStatus().LastIndex
	for index := last; index+4 > last; index-- {
		in.Receive(stranger, envelopes(theGroup, raftpb.Message{Type: raftpb.MsgAppResp, Term: l.group.Status().Term, From: stranger, To: 1, Index: index, Reject: true, RejectHint: last - 1}))
		l.manual.runIdle()
	}
	l.agree(3)
	if err := l.group.Err(); err != nil {
		t.Fatal(err)
	}
	for _, m := range l.out.take(raftpb.MsgApp) {
		if m.To == stranger && len(m.Entries) > 0 {
			return
		}
	}
	t.Errorf("host %d was sent no entries", stranger)
}

// A host that says no address is known when it was admitted.
func TestHostWithoutAddressIsKnown(t *testing.T) {
	l := openTestHost(t, 3)
	in := (*inbound)(l.Host)
	peer := in.Introduce()
	peer.ID, peer.Incarnation, peer.Addr, peer.Members = stranger, incarnationOf(stranger), "", nil
	if err := in.Admit(peer, "test"); err != nil {
		t.Fatal(err)
	}
	in.Receive(stranger, nil)
	if !l.knows(stranger) || !l.network.handshakes.Has(stranger) {
		t.Errorf("host %d is known: %t; was met: %t", stranger, l.knows(stranger), l.network.handshakes.Has(stranger))
	}
}

// A host that knows too many others adds no more: the plan is refused. A member that another leader has added
// is a member all the same, and Explain says why it cannot be reached.
func TestTooManyHosts(t *testing.T) {
	l := openTestHostWith(t, 3, func(c *Config) { c.LogCacheBytes = -1 })
	l.lead()
	for id := uint64(100); len(l.others()) < identity.MaxHosts; id++ {
		if err := l.SetPeer(id, "nowhere"); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.SetPeer(stranger, "nowhere"); !errors.Is(err, identity.ErrTooManyHosts) {
		t.Errorf("one host more: %v", err)
	}
	r := l.group.roster()
	want := membership.Want{Op: membership.Add, Learner: true, Member: membership.Member{ID: stranger, Incarnation: incarnationOf(stranger)}}
	stages, err := r.Make([]membership.Want{want})
	if err != nil {
		t.Fatal(err)
	}
	p := membership.Plan{ID: membership.PlanID{7}, Base: r.Changed, Stages: stages}
	if err := plans.RejectStages(r, p, (*planWiring)(l.group)); !errors.Is(err, outcome.ErrMembersUnchanged) || !strings.Contains(err.Error(), "knows 4096 others") {
		t.Errorf("the plan: %v", err)
	}
	if _, err := l.group.Plan(AddMember(stranger)); !errors.Is(err, outcome.ErrMembersUnchanged) {
		t.Errorf("a plan that is made here: %v", err)
	}
	l.group.proposeHost(append([]byte{entry.PlanKind}, p.Encode()...))
	l.agree(5 * l.config.electionTicks())
	if err := l.group.Err(); err != nil {
		t.Fatal(err)
	}
	for _, c := range l.group.Explain().Causes {
		if c.Code == diagnosis.CodeMemberUnreachable && c.Member == stranger && strings.Contains(c.Evidence, "knows 4096 others") {
			return
		}
	}
	t.Errorf("Explain does not say why host %d is unreachable: %v", stranger, l.group.Explain())
}
