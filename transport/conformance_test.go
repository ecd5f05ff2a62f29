package transport_test

import (
	"bytes"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
	"github.com/millrace/millrace/transport/loopback"
	"github.com/millrace/millrace/transport/tcp"
)

// The contract of package transport, tested on every implementation.

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// host is the part that the implementations have in common.
type host interface {
	Addr() string
	Start(transport.Receiver)
	SetPeer(id uint64, addr string)
	RemovePeer(id uint64)
	Send(to, group uint64, msgs []raftpb.Message) bool
	Stats() transport.Stats
	Close() error
}

// network makes hosts. A host with a known id and address is a restart.
type network func(t *testing.T, id uint64, addr string) host

var networks = map[string]func() network{
	"tcp": func() network {
		return func(t *testing.T, id uint64, addr string) host {
			h, err := tcp.Listen(tcp.Options{ID: id, Listen: addr, BackoffMin: time.Millisecond, BackoffMax: 20 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			return h
		}
	},
	"loopback": func() network {
		n := loopback.NewNetwork()
		return func(_ *testing.T, id uint64, _ string) host { return n.Host(id) }
	},
}

// each runs a test on every implementation.
func each(t *testing.T, test func(t *testing.T, n network)) {
	for name, make := range networks {
		t.Run(name, func(t *testing.T) { test(t, make()) })
	}
}

// cluster makes and starts hosts 1 … n that know each other.
func cluster(t *testing.T, n network, size int) ([]host, []*inbox) {
	t.Helper()
	hosts, inboxes := make([]host, size), make([]*inbox, size)
	for i := range hosts {
		h := n(t, uint64(i+1), "")
		t.Cleanup(func() { h.Close() })
		hosts[i], inboxes[i] = h, newInbox()
	}
	for i, h := range hosts {
		for j, p := range hosts {
			if i != j {
				h.SetPeer(uint64(j+1), p.Addr())
			}
		}
	}
	for i, h := range hosts {
		h.Start(inboxes[i])
	}
	return hosts, inboxes
}

type arrival struct {
	from  uint64
	batch []transport.Envelope
}

// inbox keeps what arrives, and detects calls for one peer that overlap.
type inbox struct {
	arrivals    chan arrival
	unreachable chan uint64
	busy        [10]atomic.Bool
	overlap     atomic.Bool
	// admit decides which hosts are admitted; nil means every host. It is set before Start.
	admit func(transport.Introduction) error
	self  transport.Introduction
}

func newInbox() *inbox {
	return &inbox{arrivals: make(chan arrival, 1<<16), unreachable: make(chan uint64, 1<<16)}
}

func (in *inbox) Receive(from uint64, batch []transport.Envelope) {
	if in.busy[from].Swap(true) {
		in.overlap.Store(true)
	}
	in.arrivals <- arrival{from, append([]transport.Envelope(nil), batch...)}
	in.busy[from].Store(false)
}

func (in *inbox) Unreachable(peer uint64) { in.unreachable <- peer }

func (in *inbox) Introduce() transport.Introduction { return in.self }

func (in *inbox) Admit(peer transport.Introduction, _ string) error {
	if in.admit == nil {
		return nil
	}
	return in.admit(peer)
}

const maxWait = 20 * time.Second

func next[T any](t *testing.T, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(maxWait):
		t.Fatalf("%s: nothing within %v", what, maxWait)
		panic("unreachable")
	}
}

func numbered(from, to, index uint64) raftpb.Message {
	return raftpb.Message{Type: raftpb.MsgHeartbeat, From: from, To: to, Index: index}
}

// Three hosts talk to each other at once, in sends of one to five messages of several groups. Everything
// arrives once and in order.
func TestOrder(t *testing.T) {
	const each3 = 3000
	each(t, func(t *testing.T, n network) {
		hosts, inboxes := cluster(t, n, 3)
		var senders sync.WaitGroup
		for i, h := range hosts {
			for j := range hosts {
				if i == j {
					continue
				}
				from, to := uint64(i+1), uint64(j+1)
				senders.Go(func() {
					for index := uint64(0); index < each3; {
						var msgs []raftpb.Message
						for range 1 + index%5 {
							if index < each3 {
								m := numbered(from, to, index)
								if index%7 == 0 {
									m.Entries = []raftpb.Entry{{Index: index, Data: bytes.Repeat([]byte{byte(index)}, int(index%3000))}}
								}
								msgs = append(msgs, m)
								index++
							}
						}
						if !h.Send(to, index%3, msgs) {
							t.Errorf("%d → %d: send refused", from, to)
							return
						}
					}
				})
			}
		}
		senders.Wait()
		for i, in := range inboxes {
			want := map[uint64]uint64{}
			for total := 0; total < 2*each3; {
				a := next(t, in.arrivals, fmt.Sprintf("host %d after %d messages", i+1, total))
				for _, e := range a.batch {
					m := e.Message
					if m.Index != want[a.from] {
						t.Fatalf("%d → %d: message %d, want %d", a.from, i+1, m.Index, want[a.from])
					}
					if m.Index%7 == 0 && !bytes.Equal(m.Entries[0].Data, bytes.Repeat([]byte{byte(m.Index)}, int(m.Index%3000))) {
						t.Fatalf("%d → %d: message %d has other data", a.from, i+1, m.Index)
					}
					want[a.from]++
					total++
				}
			}
			if in.overlap.Load() {
				t.Errorf("host %d: calls for one peer overlap", i+1)
			}
		}
	})
}

// Every field arrives, the sender may reuse what it sent, and the receiver may keep what it received.
func TestContent(t *testing.T) {
	sizes := []int{0, 1, 100, 5000, 64 << 10, 200 << 10, 3 << 20}
	build := func(size int) raftpb.Message {
		return raftpb.Message{Type: raftpb.MsgApp, From: 1, To: 2, Term: 3, LogTerm: 4, Index: 5, Commit: 6, Vote: 7, RejectHint: 8,
			Reject: true, Context: []byte("context"),
			Entries:  []raftpb.Entry{{Term: 9, Index: 10, Data: bytes.Repeat([]byte("x"), size)}, {Type: raftpb.EntryConfChangeV2}},
			Snapshot: &raftpb.Snapshot{Data: bytes.Repeat([]byte("s"), size), Metadata: raftpb.SnapshotMetadata{Index: 1, ConfState: raftpb.ConfState{Voters: []uint64{1, 2}}}}}
	}
	each(t, func(t *testing.T, n network) {
		hosts, inboxes := cluster(t, n, 2)
		for i, size := range sizes {
			m := []raftpb.Message{build(size)}
			if !hosts[0].Send(2, uint64(i), m) {
				t.Fatalf("send of %d bytes refused", size)
			}
			clear(m[0].Entries[0].Data)
			clear(m[0].Snapshot.Data)
			clear(m[0].Context)
		}
		var have []transport.Envelope
		for len(have) < len(sizes) {
			have = append(have, next(t, inboxes[1].arrivals, "content").batch...)
		}
		for i, size := range sizes {
			want := transport.Envelope{Group: uint64(i), Message: build(size)}
			if !reflect.DeepEqual(want, have[i]) { // cmp takes seconds for megabytes
				t.Errorf("message with %d bytes arrived changed", size)
			}
		}
	})
}

func TestStrangers(t *testing.T) {
	each(t, func(t *testing.T, n network) {
		hosts, inboxes := cluster(t, n, 3)
		if hosts[0].Send(9, 1, []raftpb.Message{numbered(1, 9, 0)}) {
			t.Error("a send to an unknown host was accepted")
		}
		if hosts[0].Send(1, 1, []raftpb.Message{numbered(1, 1, 0)}) {
			t.Error("a send to oneself was accepted")
		}
		if s := hosts[0].Stats(); s.DroppedUnknown != 2 {
			t.Errorf("%d messages dropped as unknown, want 2", s.DroppedUnknown)
		}
		// From another sender, to another receiver, and forwarded for another host: only the last is legal.
		forwarded := raftpb.Message{Type: raftpb.MsgTransferLeader, From: 3, To: 2, Index: 2}
		hosts[0].Send(2, 1, []raftpb.Message{numbered(3, 2, 0), numbered(1, 3, 1), forwarded, numbered(1, 2, 3)})
		a := next(t, inboxes[1].arrivals, "honest messages")
		if len(a.batch) != 2 || a.batch[0].Message.Index != 2 || a.batch[1].Message.Index != 3 {
			t.Errorf("arrived %+v, want messages 2 and 3", a.batch)
		}
		if s := hosts[1].Stats(); s.DroppedSender != 2 || s.MessagesReceived != 4 {
			t.Errorf("%d of %d messages dropped, want 2 of 4", s.DroppedSender, s.MessagesReceived)
		}
	})
}

// reach sends messages from index on until one arrives, and returns the first unused index.
func reach(t *testing.T, from host, to uint64, in *inbox, index uint64) uint64 {
	t.Helper()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for deadline := time.After(maxWait); ; index++ {
		from.Send(to, 1, []raftpb.Message{numbered(1, to, index)})
		select {
		case <-in.arrivals:
			return index + 1
		case <-again.C:
		case <-deadline:
			t.Fatalf("host %d cannot be reached within %v", to, maxWait)
		}
	}
}

// A peer goes away, the sender learns of it, the peer comes back under its address, and everything works as
// before.
func TestRestart(t *testing.T) {
	each(t, func(t *testing.T, n network) {
		hosts, inboxes := cluster(t, n, 2)
		index := reach(t, hosts[0], 2, inboxes[1], 0)
		for range 3 {
			addr := hosts[1].Addr()
			if err := hosts[1].Close(); err != nil {
				t.Fatal(err)
			}
			hosts[0].Send(2, 1, []raftpb.Message{numbered(1, 2, index)})
			if peer := next(t, inboxes[0].unreachable, "report"); peer != 2 {
				t.Fatalf("host %d reported as unreachable, want 2", peer)
			}
			hosts[1], inboxes[1] = n(t, 2, addr), newInbox()
			hosts[1].SetPeer(1, hosts[0].Addr())
			hosts[1].Start(inboxes[1])
			t.Cleanup(func() { hosts[1].Close() })
			index = reach(t, hosts[0], 2, inboxes[1], index+1)
		}
	})
}

func TestRemovePeer(t *testing.T) {
	each(t, func(t *testing.T, n network) {
		hosts, inboxes := cluster(t, n, 2)
		reach(t, hosts[0], 2, inboxes[1], 0)
		hosts[0].RemovePeer(2)
		if hosts[0].Send(2, 1, []raftpb.Message{numbered(1, 2, 0)}) {
			t.Error("a send to a removed peer was accepted")
		}
		hosts[0].SetPeer(2, hosts[1].Addr())
		reach(t, hosts[0], 2, inboxes[1], 1)
	})
}

// A host's introduction reaches the hosts that it speaks to. Messages of a host that is not admitted are
// lost, and it learns of that; a later life that is admitted is heard.
func TestAdmission(t *testing.T) {
	each(t, func(t *testing.T, n network) {
		want := transport.Introduction{ID: 1, Cluster: 4, Derived: true, Incarnation: transport.Incarnation{9}, Generation: 3, Life: 8, Addr: "here",
			Members: []transport.Member{{ID: 1, Addr: "a"}, {ID: 2, Addr: "b"}}}
		var asked atomic.Uint64
		choosy := newInbox()
		choosy.admit = func(peer transport.Introduction) error {
			asked.Add(1)
			if !reflect.DeepEqual(peer, want) {
				return fmt.Errorf("host %d is not who it was: %+v", peer.ID, peer)
			}
			return nil
		}
		one, two := n(t, 1, ""), n(t, 2, "")
		t.Cleanup(func() { two.Close() })
		one.SetPeer(2, two.Addr())
		two.SetPeer(1, one.Addr())
		two.Start(choosy)
		other := newInbox()
		other.self = want
		other.self.Incarnation[3]++
		one.Start(other)
		for refused := 0; refused < 3; refused++ {
			one.Send(2, 1, []raftpb.Message{numbered(1, 2, 99)})
			if peer := next(t, other.unreachable, "report of a refusal"); peer != 2 {
				t.Fatalf("host %d reported as unreachable, want 2", peer)
			}
		}
		if asked.Load() == 0 {
			t.Error("the receiver was not asked whether host 1 is admitted")
		}
		addr := one.Addr()
		one.Close()
		one = n(t, 1, addr)
		t.Cleanup(func() { one.Close() })
		one.SetPeer(2, two.Addr())
		mine := newInbox()
		mine.self = want
		one.Start(mine)
		for again := time.NewTicker(5 * time.Millisecond); ; {
			one.Send(2, 1, []raftpb.Message{numbered(1, 2, 7)})
			select {
			case a := <-choosy.arrivals:
				if index := a.batch[0].Message.Index; index != 7 {
					t.Fatalf("message %d arrived from a host that was not admitted", index)
				}
				if s := two.Stats(); s.Refusals == 0 {
					t.Error("no refusal was counted")
				}
				again.Stop()
				return
			case <-again.C:
			}
		}
	})
}

// Close in the middle of traffic: it returns, nothing is delivered after it, and later sends are refused.
func TestCloseWhileSending(t *testing.T) {
	each(t, func(t *testing.T, n network) {
		hosts, inboxes := cluster(t, n, 2)
		var stop atomic.Bool
		var senders sync.WaitGroup
		for i := range hosts {
			for range 2 {
				senders.Go(func() {
					for !stop.Load() {
						hosts[i].Send(uint64(2-i), 1, []raftpb.Message{numbered(uint64(i+1), uint64(2-i), 0)})
					}
				})
			}
		}
		drained := make(chan struct{})
		go func() {
			defer close(drained)
			for range inboxes[1].arrivals {
			}
		}()
		go func() {
			for range inboxes[0].arrivals {
			}
		}()
		var closers sync.WaitGroup
		for range 2 {
			closers.Go(func() { hosts[1].Close() })
		}
		closers.Wait()
		close(inboxes[1].arrivals) // a delivery after Close would panic
		<-drained
		if hosts[1].Send(1, 1, []raftpb.Message{numbered(2, 1, 0)}) {
			t.Error("a send after Close was accepted")
		}
		stop.Store(true)
		senders.Wait()
		hosts[0].Close()
		close(inboxes[0].arrivals)
	})
}

// A host that was never started, and one that is started after Close, leave no goroutine behind.
func TestCloseUnstarted(t *testing.T) {
	each(t, func(t *testing.T, n network) {
		h := n(t, 1, "")
		h.SetPeer(2, "127.0.0.1:1")
		for range 2 {
			if err := h.Close(); err != nil {
				t.Error(err)
			}
		}
		h.Start(newInbox())
		h.SetPeer(3, "127.0.0.1:1")
		h.RemovePeer(3)
	})
}
