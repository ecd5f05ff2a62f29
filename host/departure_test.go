package host

import (
	"slices"
	"testing"

	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/host/internal/peers"
	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
)

// restingTransport records which hosts are dialed only for what is sent.
type restingTransport struct {
	recordingTransport
	rests map[uint64]bool
}

func (r *restingTransport) SetPeer(id uint64, _ string) { r.rests[id] = false }
func (r *restingTransport) DialOnDemand(id uint64)      { r.rests[id] = true }

// remove puts a roster in force from which a member is removed.
func (l *testHost) remove(id uint64) {
	next := *l.group.roster()
	at := slices.IndexFunc(next.Members, func(m membership.Member) bool { return m.ID == id })
	next.Removed = append(slices.Clone(next.Removed), next.Members[at])
	next.Members = slices.Delete(slices.Clone(next.Members), at, at+1)
	next.Conf = raftpb.ConfState{Voters: next.IDs()}
	next.Version++
	l.group.members.commits.SetRoster(&next)
}

// silence lets election timeouts pass in which nothing is heard.
func (l *testHost) silence(timeouts int) {
	for range timeouts * l.config.electionTicks() {
		l.manual.tick()
	}
}

// A member that was removed is not refused, and is forgotten when it is silent: it is dialed no more, and
// nothing names it. If it speaks it is known again. A member that is silent is never forgotten.
func TestRemovedHostIsForgotten(t *testing.T) {
	out := &restingTransport{rests: map[uint64]bool{}}
	l := openTestHostWith(t, 3, func(c *Config) { c.Members = map[uint64]string{1: "a:1", 2: "a:2", 3: "a:3"} }, WithTransport(out))
	defer func() { _ = l.Close(over()) }()
	l.lead()
	l.remove(3)
	if d := l.group.Explain(); !d.Healthy || len(l.group.Founding().Refused) > 0 {
		t.Fatalf("host 3 was removed, and it is %v; refused: %v", d, l.group.Founding().Refused)
	}
	l.silence(departedTimeouts - 2)
	if !slices.Equal(l.others(), []uint64{2, 3}) || out.rests[3] {
		t.Errorf("it is forgotten after %d election timeouts", departedTimeouts-2)
	}
	l.silence(4)
	if !slices.Equal(l.others(), []uint64{2}) || !out.rests[3] || out.rests[2] || len(l.Metrics().Peers) != 1 {
		t.Errorf("others %v, at rest %v, want host 3 forgotten", l.others(), out.rests)
	}
	gone := transport.Member{ID: 3, Addr: "a:3"}
	l.control(2, peers.Location{Said: gone.Addr, Incarnation: incarnationOf(3), Generation: 9}.Append([]byte{control.Addresses}, gone.ID))
	if !out.rests[3] {
		t.Error("another host says where it is, and it is dialed")
	}
	l.control(3, []byte{control.Greeting, 0})
	if !slices.Equal(l.others(), []uint64{2, 3}) || out.rests[3] || !l.network.handshakes.Has(3) {
		t.Errorf("it speaks, and the others are %v, at rest %v", l.others(), out.rests)
	}
	l.silence(departedTimeouts + 2)
	if !slices.Equal(l.others(), []uint64{2}) {
		t.Errorf("it is silent again, and the others are %v", l.others())
	}
}

// A removed host that another group here needs is known for good.
func TestRemovedHostIsNeeded(t *testing.T) {
	l := openTestHost(t, 3)
	defer func() { _ = l.Close(over()) }()
	l.lead()
	l.remove(3)
	l.open(2, &commands{})
	l.silence(2 * departedTimeouts)
	if !slices.Equal(l.others(), []uint64{2, 3}) {
		t.Errorf("group 2 is not founded without host 3, and the others are %v", l.others())
	}
}

// A refusal ends with a welcome: a follower that has refused this host has nothing else to say to it.
func TestRefusalEndsWithAWelcome(t *testing.T) {
	l := openSecond(t)
	in := (*inbound)(l.Host)
	in.RefusedBy(3, "another directory")
	if d := l.group.Explain(); !d.Has(diagnosis.CodeIdentityRefused) || !l.Metrics().Peers[1].Refuses {
		t.Fatalf("setup: %v", d)
	}
	in.AdmittedBy(3)
	if d := l.group.Explain(); d.Has(diagnosis.CodeIdentityRefused) || l.Metrics().Peers[1].Refuses {
		t.Errorf("host 3 has admitted this host, and %v", d)
	}
}
