package raft

import (
	"fmt"
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
)

// Clusters that change their members and compact their logs. Some of seven hosts found the cluster, in either
// of the two ways, and any host may be added, demoted and removed, by simple changes or through joint
// configurations.
func TestRandomHistoriesOfMembers(t *testing.T) {
	for _, founders := range []int{1, 3} {
		for _, async := range []bool{true, false} {
			t.Run(fmt.Sprintf("founders=%d,async=%t", founders, async), func(t *testing.T) {
				t.Parallel()
				first, last := uint64(1), uint64(*seeds)
				if *theSeed != 0 {
					first, last = *theSeed, *theSeed
				}
				changes, joint, snapshots, gone := 0, 0, 0, 0
				for seed := first; seed <= last; seed++ {
					h := runHistory(t, 5, founders, async, seed)
					changes += len(h.judge.confs)
					gone += len(h.gone)
					for _, conf := range h.judge.confs {
						joint += min(1, len(conf.VotersOutgoing))
					}
					for _, host := range h.hosts {
						snapshots += host.installed
					}
				}
				// A history in which nothing happens proves nothing.
				if t.Logf("%d configurations, %d of them joint; %d snapshots; %d hosts replaced", changes, joint, snapshots, gone); *theSeed == 0 && *seeds >= 50 && (changes < *seeds || joint < *seeds/2 || snapshots < *seeds/2) {
					t.Error("too little has happened")
				}
			})
		}
	}
}

type snapshotReport struct {
	leader, follower uint64
	status           SnapshotStatus
}

// report is the transport's report on a snapshot, at some later time.
func (w *history) report(m raftpb.Message, status SnapshotStatus) {
	if m.Type == raftpb.MsgSnap {
		w.reports = append(w.reports, snapshotReport{m.From, m.To, status})
	}
}

func (w *history) sayReports(n int) {
	for _, r := range w.reports[:n] {
		w.tell("%d hears of its snapshot for %d: %d", r.leader, r.follower, r.status)
		_ = w.host(r.leader).input(func(rn *RawNode) error { rn.ReportSnapshot(r.follower, r.status); return nil })
	}
	w.reports = w.reports[n:]
}

// stepOfMembers is an event that only happens in a growing cluster.
func (w *history) stepOfMembers(h *host) {
	kind := w.chance.IntN(100)
	switch {
	case kind < 20:
		w.sayReports(min(1, len(w.reports)))
	case kind < 30:
		w.calm()
	case kind < 33:
		w.replace()
	case h.node == nil:
	case kind < 60:
		if log := h.node.raft.log; h.applied > 0 && h.applied <= log.applied {
			through := 1 + w.chance.Uint64N(h.applied)
			w.tell("%d compacts through %d, applied %d", h.id(), through, h.applied)
			h.compact(through)
		}
	default:
		if leader := w.leader(); leader != nil && w.chance.IntN(4) > 0 {
			h = leader
		}
		c := w.anyChange()
		err := h.input(func(rn *RawNode) error { return rn.ProposeConfChange(c) })
		w.tell("%d proposes %+v: %v", h.id(), c, err)
	}
}

// replace wipes a host that no member counts any more, and sets up a new one with a new id. It waits until
// all members have it on their disks that they are members and the host is not, and no proposal to the
// contrary is under way.
func (w *history) replace() {
	leader := w.leader()
	if leader == nil || len(w.hosts) >= 8 {
		return
	}
	w.cut = 0
	w.runIdle(func(m raftpb.Message) bool { w.report(m, SnapshotFinish); return false })
	var idle *host
	last := leader.node.raft.log.lastIndex()
	for _, h := range w.hosts {
		member := leader.node.raft.conf.IsMember(h.id())
		switch {
		case w.gone[h.id()]:
		case h.node == nil:
			return
		case !member:
			idle = h
		case h.node.raft.log.applied != last || h.node.raft.log.lastIndex() != last:
			return
		default:
			h.sync() // and the commit index with it
		}
	}
	if idle == nil {
		return
	}
	w.tell("%d is gone for ever", idle.id())
	idle.crash()
	idle.disk, idle.unsynced = NewMemoryStorage(), nil
	w.gone[idle.id()] = true
	h := &host{cluster: w.testCluster, cfg: testConfig(uint64(len(w.hosts)+1), nil), disk: NewMemoryStorage()}
	w.newConfig(&h.cfg)
	w.hosts = append(w.hosts, h)
	h.restart(0, 0)
}

func (w *history) anyChange() raftpb.ConfChangeI {
	kinds := []raftpb.ConfChangeType{raftpb.ConfChangeAddNode, raftpb.ConfChangeAddNode, raftpb.ConfChangeRemoveNode, raftpb.ConfChangeAddLearnerNode, raftpb.ConfChangeUpdateNode}
	single := func() raftpb.ConfChangeSingle {
		return raftpb.ConfChangeSingle{Type: kinds[w.chance.IntN(len(kinds))], NodeID: w.anyID()}
	}
	if w.chance.IntN(3) == 0 {
		s := single()
		return raftpb.ConfChange{Type: s.Type, NodeID: s.NodeID}
	}
	var c raftpb.ConfChangeV2
	for range w.chance.IntN(4) {
		c.Changes = append(c.Changes, single())
	}
	if len(c.Changes) > 0 {
		c.Transition = raftpb.ConfChangeTransition(w.chance.IntN(3))
	}
	return c
}
