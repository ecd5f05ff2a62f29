package transporttest

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/transport"
)

// The lives of hosts: restarts, admission, closing.

// pauseBetweenTries keeps a loop that sends until something arrives from using a processor alone.
func pauseBetweenTries() { <-time.After(time.Millisecond) }

// restart: a peer goes away, the sender learns of it, the peer comes back under its address, and everything
// works as before.
func restart(k *kit) {
	hosts, inboxes := k.cluster(2)
	index := k.reach(hosts[0], 1, 2, inboxes[1], 0)
	for range 3 {
		addr := hosts[1].Addr()
		inboxes[0].forgetReports()
		if err := hosts[1].Close(); err != nil {
			k.Fatal(err)
		}
		peer := until(k, "report of a closed peer", inboxes[0].unreachable, func() { sendOne(hosts[0], numbered(1, 2, index)) })
		if peer != 2 {
			k.Fatalf("host %d reported as unreachable, want 2", peer)
		}
		hosts[1], inboxes[1] = k.host(2, addr), k.newInbox()
		hosts[1].SetPeer(1, hosts[0].Addr())
		hosts[1].Start(inboxes[1])
		index = k.reach(hosts[0], 1, 2, inboxes[1], index+1)
		for _, kind := range []transport.Kind{transport.Pulse, transport.Control, transport.Bulk} {
			until(k, fmt.Sprintf("%v after a restart", kind), inboxes[1].only(kind), func() { hosts[0].SendBytes(2, kind, []byte("x")) })
		}
	}
}

// removePeer: nothing is sent to a peer that was removed, until it is in the address book again.
func removePeer(k *kit) {
	hosts, inboxes := k.cluster(2)
	k.reach(hosts[0], 1, 2, inboxes[1], 0)
	hosts[0].RemovePeer(2)
	if sendOne(hosts[0], numbered(1, 2, 0)) {
		k.Error("a send to a removed peer was accepted")
	}
	for _, kind := range []transport.Kind{transport.Pulse, transport.Control, transport.Bulk} {
		if hosts[0].SendBytes(2, kind, []byte("x")) {
			k.Errorf("%v to a removed peer was accepted", kind)
		}
	}
	hosts[0].SetPeer(2, hosts[1].Addr())
	k.reach(hosts[0], 1, 2, inboxes[1], 1)
}

// admission: a host's introduction reaches the hosts that it speaks to. Whatever a host that is not admitted
// sends is lost, in every class, and it learns of that; a later life that is admitted is heard.
func admission(k *kit) {
	want := transport.Introduction{
		ID: 1, Cluster: 4, Derived: true, Incarnation: transport.Incarnation{9}, Generation: 3, Life: 8, Past: []uint32{4, 5}, Addr: "here",
		Members: []transport.Member{{ID: 1, Addr: "a"}, {ID: 2, Addr: "b"}},
	}
	lie := [32]byte{0xee} // a transport alone says which key a peer has proved
	want.Key = lie
	const refused, admitted = 99, 7
	var asked atomic.Uint64
	choosy := k.newInbox()
	choosy.admit = func(peer transport.Introduction) error {
		asked.Add(1)
		if peer.Key == lie {
			return errors.New("the key is one that the peer chose")
		}
		if peer.Key, peer.Channel = want.Key, want.Channel; !equal(peer, want) {
			return fmt.Errorf("host %d is not who it was: %+v", peer.ID, peer)
		}
		return nil
	}
	one, two := k.host(1, ""), k.host(2, "")
	one.SetPeer(2, two.Addr())
	two.SetPeer(1, one.Addr())
	two.Start(choosy)
	other := k.newInbox()
	other.self = want
	other.self.Incarnation[3]++
	one.Start(other)
	for range 3 {
		peer := until(k, "report of a refusal", other.unreachable, func() {
			sendOne(one, numbered(1, 2, refused))
			for _, kind := range []transport.Kind{transport.Pulse, transport.Control, transport.Bulk} {
				one.SendBytes(2, kind, number(refused))
			}
		})
		if peer != 2 {
			k.Fatalf("host %d reported as unreachable, want 2", peer)
		}
	}
	if asked.Load() == 0 {
		k.Error("the receiver was not asked whether host 1 is admitted")
	}
	addr := one.Addr()
	one.Close()
	one = k.host(1, addr)
	one.SetPeer(2, two.Addr())
	mine := k.newInbox()
	mine.self = want
	one.Start(mine)
	for heard := [transport.Kinds]bool{}; heard != [transport.Kinds]bool{true, true, true, true}; {
		a := until(k, "a host that is admitted", choosy.arrivals, func() {
			sendOne(one, numbered(1, 2, admitted))
			for _, kind := range []transport.Kind{transport.Pulse, transport.Control, transport.Bulk} {
				one.SendBytes(2, kind, number(admitted))
			}
		})
		for _, n := range numbersOf(a) {
			if n != admitted {
				k.Fatalf("%v %d arrived from a host that was not admitted", a.kind, n)
			}
		}
		heard[a.kind] = true
	}
	if c, ok := two.(counted); ok && c.Stats().Refusals == 0 {
		k.Error("no refusal was counted")
	}
}

// proof: what a host proves arrives with its introduction, bound to a channel that both ends have in common.
func proof(k *kit) {
	proven := make(chan transport.Introduction, 100)
	one, two := k.host(1, ""), k.host(2, "")
	one.SetPeer(2, two.Addr())
	two.SetPeer(1, one.Addr())
	there := k.newInbox()
	there.admit = func(peer transport.Introduction) error {
		select {
		case proven <- peer:
		default:
		}
		return nil
	}
	two.Start(there)
	mine := k.newInbox()
	mine.proof = []byte("a token")
	mine.self.Proof = []byte("a lie") // what a receiver has said once is bound to no channel
	one.Start(mine)
	peer := until(k, "an introduction", proven, func() { sendOne(one, numbered(1, 2, 1)) })
	if want := append(bytes.Clone(peer.Channel[:]), "a token"...); !bytes.Equal(peer.Proof, want) {
		k.Errorf("the proof is %x, on channel %x", peer.Proof, peer.Channel)
	}
}

// keeper: a receiver that changes its mind about a host gets nothing more of it after Review, in any class,
// until it admits the host again.
func keeper(k *kit) {
	one, two := k.host(1, ""), k.host(2, "")
	one.SetPeer(2, two.Addr())
	two.SetPeer(1, one.Addr())
	in := k.newInbox()
	var refuses atomic.Bool
	in.admit = func(transport.Introduction) error {
		if refuses.Load() {
			return errors.New("not now")
		}
		return nil
	}
	two.Start(in)
	one.Start(k.newInbox())
	send := func() {
		sendOne(one, numbered(1, 2, 1))
		for _, kind := range []transport.Kind{transport.Pulse, transport.Control, transport.Bulk} {
			one.SendBytes(2, kind, number(1))
		}
	}
	hear := func() {
		for heard := [transport.Kinds]bool{}; heard != [transport.Kinds]bool{true, true, true, true}; {
			heard[until(k, "what a host sends", in.arrivals, send).kind] = true
		}
	}
	hear()
	reviewer, ok := two.(transport.Reviewer)
	if !ok {
		return
	}
	refuses.Store(true)
	in.drops.Store(true)
	k.within("Review", func() { reviewer.Review(1) })
	in.closed.Store(true) // anything that comes now is late
	for range 20 {
		send()
		pauseBetweenTries()
	}
	if in.late.Load() {
		k.Error("something arrived from a host that is not kept any more")
	}
	in.closed.Store(false)
	refuses.Store(false)
	in.drops.Store(false)
	for len(in.arrivals) > 0 {
		<-in.arrivals
	}
	hear()
}

// closeWhileSending: Close in the middle of traffic of every kind returns, nothing is delivered after it, and
// later sends are refused.
func closeWhileSending(k *kit) {
	hosts, inboxes := make([]Host, 2), make([]*inbox, 2)
	for i := range hosts {
		hosts[i], inboxes[i] = k.host(uint64(i+1), ""), k.newInbox()
		inboxes[i].sink = true
	}
	hosts[0].SetPeer(2, hosts[1].Addr())
	hosts[1].SetPeer(1, hosts[0].Addr())
	var stop atomic.Bool
	var senders sync.WaitGroup
	for i, h := range hosts {
		from, to := uint64(i+1), uint64(2-i)
		h.Start(inboxes[i])
		senders.Go(func() {
			for n := 1; !stop.Load(); n++ {
				if sendOne(h, numbered(from, to, 0)); n%64 == 0 {
					pauseBetweenTries()
				}
			}
		})
		senders.Go(func() {
			for n := 1; !stop.Load(); n++ {
				if h.SendBytes(to, transport.Kind(1+n%3), []byte("x")); n%64 == 0 {
					pauseBetweenTries()
				}
			}
		})
	}
	k.Cleanup(func() { stop.Store(true); senders.Wait() })
	const traffic = 100
	for deadline := time.Now().Add(k.maxWait); inboxes[0].calls.Load() < traffic || inboxes[1].calls.Load() < traffic; pauseBetweenTries() {
		if time.Now().After(deadline) {
			k.Fatalf("after %v only %d and %d calls of the receivers", k.maxWait, inboxes[0].calls.Load(), inboxes[1].calls.Load())
		}
	}
	k.all("Close while sending", func() { hosts[1].Close() }, func() { hosts[1].Close() })
	inboxes[1].closed.Store(true)
	if sendOne(hosts[1], numbered(2, 1, 0)) || hosts[1].SendBytes(1, transport.Control, nil) {
		k.Error("a send after Close was accepted")
	}
	k.within("Close", func() { hosts[0].Close() })
	inboxes[0].closed.Store(true)
	for range 20 { // a transport that delivers after Close does so now
		pauseBetweenTries()
	}
	stop.Store(true)
	k.within("the end of the senders", senders.Wait)
	for i, in := range inboxes {
		if in.late.Load() {
			k.Errorf("host %d was given something after Close", i+1)
		}
	}
}

// closeUnstarted: a host that was never started, and one that is started after Close, do nothing.
func closeUnstarted(k *kit) {
	h := k.host(1, "")
	h.SetPeer(2, "127.0.0.1:1")
	for range 2 {
		if err := h.Close(); err != nil {
			k.Error(err)
		}
	}
	h.Start(k.newInbox())
	h.SetPeer(3, "127.0.0.1:1")
	h.RemovePeer(3)
	if sendOne(h, numbered(1, 3, 0)) {
		k.Error("a send after Close was accepted")
	}
}
