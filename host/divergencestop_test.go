package host

import (
	"slices"
	"testing"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/divergence"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
)

// A member that differs is told to stop only while the others are a quorum by themselves. The member with
// which the leader agrees may have crashed since it reported.
func TestNoOrderToStopBelowAQuorum(t *testing.T) {
	out := &controlTransport{recordingTransport: &recordingTransport{}}
	l := openTestHostWith(t, 3, func(*Config) {}, WithTransport(out))
	l.out = out.recordingTransport
	g, err := l.OpenGroup(t.Context(), GroupConfig{ID: 2}, Commands(&listMachine{}, statemachine.CommandOptions{StopDiverged: true}))
	if err != nil {
		t.Fatal(err)
	}
	l.manual.runIdle()
	l.leadGroup(g)
	reports := func(from, digest uint64) {
		r := g.machine.divergence.Report()
		r.Checkpoints = []divergence.Checkpoint{{Index: 7, Digest: digest, HasDigest: true}}
		if err := l.Host.control(from, transport.Control, r.Encode()); err != nil {
			t.Fatal(err)
		}
	}
	g.machine.divergence.Record(divergence.Checkpoint{Index: 7, Digest: 4, HasDigest: true})
	reports(2, 4)
	order := (&divergence.Order{Group: 2, Index: 7, In: event.DivergedState, Sum: 4}).Encode()
	ordered := func() []uint64 {
		out.told(nil)
		reports(3, 5)
		return out.told(order)
	}
	hears := func(id uint64) {
		m := raftpb.Message{Type: raftpb.MsgAppResp, Term: 1, Index: begun, From: id, To: 1}
		(*inbound)(l.Host).Receive(id, envelopes(2, m))
		l.manual.runIdle()
	}
	if to := ordered(); !slices.Equal(to, []uint64{3}) {
		t.Fatalf("ordered hosts %v to stop, want host 3, while all members are there", to)
	}
	for range 4 * l.config.electionTicks() { // host 2 is silent: it has crashed
		l.manual.tick()
		hears(3)
	}
	if s := g.Status(); s.Leader != 1 {
		t.Fatalf("the host does not lead: %+v", s)
	}
	if to := ordered(); len(to) > 0 {
		t.Errorf("ordered hosts %v to stop, and then one of three members is left", to)
	}
	hears(2)
	l.manual.tick()
	if to := ordered(); !slices.Equal(to, []uint64{3}) {
		t.Errorf("ordered hosts %v to stop, want host 3, when host 2 is back", to)
	}
}
