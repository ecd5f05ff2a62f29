package host

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/host/internal/proposals"
	"github.com/millrace/millrace/host/internal/reports"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs/crashfs"
)

// Every outcome of a proposal is counted once, under its name.
func TestMetricsCountOutcomes(t *testing.T) {
	l := openTestHostWith(t, 3, littleMemory)
	defer l.Close(context.Background())
	fresh := l.group.Metrics()
	if p := fresh.Proposals; p != (ProposalMetrics{}) || fresh.Founded || fresh.Leads {
		t.Errorf("a new group counts %+v", fresh)
	}
	_, _ = l.group.Submit(nil)
	_, _ = l.group.Submit(make([]byte, 1<<20))
	early := l.submit("before there is a leader")
	l.manual.runIdle()
	if _, err := poll(t, early); !errors.Is(err, outcome.ErrNotFounded) {
		t.Fatal(err)
	}
	l.lead()
	first := l.submit("one")
	l.manual.runIdle()
	l.deliver(raftpb.Message{Type: raftpb.MsgAppResp, Term: 1, Index: begun + 1})
	if _, err := poll(t, first); err != nil {
		t.Fatal(err)
	}
	var err error
	for range 1000 {
		if _, err = l.group.Submit(make([]byte, 500)); err != nil {
			break
		}
	}
	if !errors.Is(err, outcome.ErrOverloaded) {
		t.Fatal(err)
	}
	l.manual.runIdle()
	w := proposals.NewWaiter()
	if err := l.group.submit([]byte("withdrawn"), w); err != nil || !w.Withdraw() {
		t.Fatal(err)
	}
	l.manual.runIdle()
	m := l.group.Metrics()
	have := m.Proposals
	if r := have.Refused; r.Empty != 1 || r.TooLarge != 1 || r.NotFounded != 1 || r.Overloaded < 1 || r.Withdrawn != 1 || r.Other != 0 || r.NotLeader != 0 {
		t.Errorf("refused: %+v", r)
	}
	if have.Committed != 1 || have.Batches < 2 || have.Commands < 2 || have.Bytes < 503 || have.Indeterminate != 0 {
		t.Errorf("proposals: %+v", have)
	}
	if !m.Leads || !m.Founded || m.Elected != 1 || m.Campaigns != 1 || m.LeaderChanges != 1 || m.Queues.Proposed == 0 || m.Queues.Writing < 0 {
		t.Errorf("group: %+v", m)
	}
	pending := have.Commands - have.Committed
	l.deliver(raftpb.Message{Type: raftpb.MsgHeartbeat, Term: 3})
	l.deliver(raftpb.Message{Type: raftpb.MsgApp, Term: 3, Index: begun + 1, LogTerm: 1, Entries: span(begun+2, begun+3, 3), Commit: begun + 2})
	late := l.submit("to a follower")
	l.manual.runIdle()
	if _, err := poll(t, late); !errors.Is(err, outcome.ErrNotLeader) {
		t.Fatal(err)
	}
	if m = l.group.Metrics(); m.Proposals.Refused.Dropped != pending || m.Proposals.Refused.NotLeader != 1 || m.LeaderChanges != 2 || m.Queues.Proposed != 0 {
		t.Errorf("after another leader: %+v, %d were pending", m, pending)
	}
}

// What was pending when a group stops counts as indeterminate, what waited as refused.
func TestMetricsOfAStoppedGroup(t *testing.T) {
	l := openTestHost(t, 3)
	defer l.Close(context.Background())
	l.lead()
	l.submit("one")
	l.manual.runIdle()
	l.disk.SetHook(crashfs.FailNth(crashfs.OpSync, 1, errBroken))
	l.submit("two")
	l.manual.runIdle()
	if l.group.Err() == nil {
		t.Fatal("the group has not stopped")
	}
	m, h := l.group.Metrics(), l.Host.Metrics()
	if p := m.Proposals; !m.Stopped || p.Indeterminate+p.Committed+p.Refused.Stopped != 2 || p.Indeterminate == 0 {
		t.Errorf("%+v", m)
	}
	if h.Groups != 1 || h.StoppedGroups != 1 || h.Leading != 0 {
		t.Errorf("%+v", h)
	}
}

// A host counts its groups, its lanes, its peers and the time in which it did not run.
func TestHostMetrics(t *testing.T) {
	l := openTestHost(t, 3)
	defer l.Close(context.Background())
	l.lead()
	l.manual.tickLate(40)
	l.submit("one")
	m := l.Host.Metrics()
	if m.Host != 1 || m.Groups != 1 || m.Leading != 1 || m.Pauses != 1 || m.Paused != 36*l.config.tickPeriod() {
		t.Errorf("%+v", m)
	}
	if len(m.Peers) != 2 || m.Peers[0].Host != 2 || !m.Peers[0].Met || m.Peers[1].Host != 3 {
		t.Errorf("peers: %+v", m.Peers)
	}
	if m.Lanes.Turns == 0 || m.Lanes.AppendWork == 0 || m.Lanes.ApplyLanes == 0 || m.Lanes.ApplyHung != 0 || m.Log.Appends == 0 {
		t.Errorf("lanes: %+v, log %+v", m.Lanes, m.Log)
	}
	for i := range 2 * reports.MaxBacklog {
		l.reports.logWriter.Logger().Info(fmt.Sprint(i))
	}
	if have := l.Host.Metrics().LogLinesDropped; have < reports.MaxBacklog {
		t.Errorf("%d lines dropped", have)
	}
}

// Reads are counted by kind, when they are answered.
func TestMetricsCountReads(t *testing.T) {
	c := openCallCluster(t, 1, GroupConfig{Leases: true})
	g := c.groups[0]
	if _, err := g.WaitLeader(t.Context()); err != nil {
		t.Fatal(err)
	}
	var linearizable, bounded, applied, never Read
	g.StartRead(&linearizable, 0)
	at, err := linearizable.Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	g.StartRead(&bounded, time.Hour)
	g.StartApplied(&applied, at.Index)
	for _, r := range []*Read{&bounded, &applied} {
		if _, err := r.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	g.StartApplied(&never, at.Index+1000)
	served := uint64(0)
	if l, ok := g.Lease(0, 0); ok && l.Holds() {
		served = 1
	}
	(Lease{}).Holds()
	m := g.Metrics().Reads
	if m.Linearizable != 1 || m.Bounded != 1 || m.AtLeast != 1 || m.Rounds == 0 || m.LeaseServed != served || m.LeaseServed+m.LeaseMissed != 1 || m.Refused != 0 {
		t.Errorf("%+v, %d leases served", m, served)
	}
}
