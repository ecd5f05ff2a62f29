package loopback

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
)

// What only this network has: links that are cut. The rest is tested in conformance_test.go.

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type ledger struct{ got, unreachable chan uint64 }

func (l ledger) Receive(_ uint64, batch []transport.Envelope) {
	for i := range batch {
		l.got <- batch[i].Message.Index
	}
}
func (l ledger) Deliver(uint64, transport.Kind, []byte)     {}
func (l ledger) Unreachable(peer uint64)                    { l.unreachable <- peer }
func (l ledger) Introduce() transport.Introduction          { return transport.Introduction{} }
func (l ledger) Admit(transport.Introduction, string) error { return nil }

func next(t *testing.T, c <-chan uint64, what string) uint64 {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(20 * time.Second):
		t.Fatalf("%s: nothing", what)
		panic("unreachable")
	}
}

func pair(t *testing.T) (n *Network, hosts [2]*Transport, ledgers [2]ledger) {
	n = NewNetwork()
	for i := range hosts {
		hosts[i], ledgers[i] = n.Host(uint64(i+1)), ledger{make(chan uint64, 100), make(chan uint64, 100)}
		t.Cleanup(func() { hosts[i].Close() })
	}
	for i, h := range hosts {
		h.SetPeer(uint64(2-i), "")
		h.Start(ledgers[i])
	}
	return n, hosts, ledgers
}

func send(t *Transport, to, index uint64) bool {
	return t.Send(to, []transport.Envelope{{Group: 1, Message: raftpb.Message{From: t.id, To: to, Index: index}}})
}

// refusing refuses every directory, and refused is told so.
type refusing struct{ ledger }

func (r refusing) Admit(transport.Introduction, string) error {
	return &transport.DirectoryRefused{Why: "another directory"}
}

type refused struct {
	ledger
	by chan uint64
}

func (r refused) RefusedBy(by uint64, why string) {
	if why == "another directory" {
		r.by <- by
	}
}

func (r refused) AdmittedBy(by uint64) { r.by <- by }

// A host that is admitted is told so: a refusal that it was told before has ended.
func TestAdmissionIsTold(t *testing.T) {
	n, hosts, _ := pair(t)
	three := n.Host(3)
	defer three.Close()
	r := refused{ledger{make(chan uint64, 100), make(chan uint64, 100)}, make(chan uint64, 100)}
	three.SetPeer(2, "")
	hosts[1].SetPeer(3, "")
	three.Start(r)
	send(three, 2, 1)
	if by := next(t, r.by, "admission"); by != 2 {
		t.Errorf("admitted by host %d, want 2", by)
	}
}

// A host whose directory is refused is told so.
func TestRefusedDirectoryIsTold(t *testing.T) {
	n, made := NewNetwork(), func() ledger { return ledger{make(chan uint64, 100), make(chan uint64, 100)} }
	one, two := n.Host(1), n.Host(2)
	defer two.Close()
	defer one.Close()
	r := refused{made(), make(chan uint64, 100)}
	one.SetPeer(2, "")
	two.SetPeer(1, "")
	two.Start(refusing{made()})
	one.Start(r)
	send(one, 2, 1)
	if by := next(t, r.by, "refusal"); by != 2 {
		t.Errorf("refused by host %d, want 2", by)
	}
}

// A cut loses one direction, reports it to the sender, and can be healed.
func TestCut(t *testing.T) {
	n, hosts, ledgers := pair(t)
	n.Cut(1, 2)
	send(hosts[0], 2, 1)
	if peer := next(t, ledgers[0].unreachable, "report"); peer != 2 {
		t.Errorf("host %d reported, want 2", peer)
	}
	send(hosts[1], 1, 2)
	if index := next(t, ledgers[0].got, "the way back"); index != 2 {
		t.Errorf("message %d, want 2", index)
	}
	n.Heal(1, 2)
	send(hosts[0], 2, 3)
	if index := next(t, ledgers[1].got, "after the cut"); index != 3 {
		t.Errorf("message %d, want 3", index)
	}
}

// A receiver that does not take its messages fills its inlet; then the sender is refused and gets a report.
func TestFullInlet(t *testing.T) {
	n, hosts, _ := pair(t)
	slow := n.Host(3)
	slow.bounds[transport.Consensus] = 10_000
	slow.SetPeer(1, "")
	l := ledger{make(chan uint64), make(chan uint64, 1)}
	slow.Start(l)
	hosts[0].SetPeer(3, "")
	accepted := uint64(0)
	for ; accepted < 10_000 && send(hosts[0], 3, accepted); accepted++ {
	}
	if s := hosts[0].Stats().Kinds[transport.Consensus]; s.DroppedFull != 1 {
		t.Errorf("%d messages dropped, want 1", s.DroppedFull)
	}
	for want := uint64(0); want < accepted; want++ {
		if index := next(t, l.got, "accepted messages"); index != want {
			t.Fatalf("message %d, want %d", index, want)
		}
	}
	slow.Close()
}
