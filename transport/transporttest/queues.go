package transporttest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
)

// What waits: bounds, what replaces what, and what must not wait for what.

// brake holds the deliveries of a receiver that match, until release.
type brake struct {
	held    chan arrival
	once    sync.Once
	release chan struct{}
}

// brakeOn makes in hold deliveries for which match is true. It is called before Start.
func brakeOn(k *kit, in *inbox, match func(arrival) bool) *brake {
	b := &brake{held: make(chan arrival, 1), release: make(chan struct{})}
	in.hold = func(a arrival) {
		if !match(a) {
			return
		}
		select {
		case b.held <- a:
		default:
		}
		<-b.release
	}
	k.Cleanup(b.off) // runs before the hosts are closed, which wait for their deliveries
	return b
}

func (b *brake) off() { b.once.Do(func() { close(b.release) }) }

// braked makes hosts 1 … n of which the last has a brake, and reaches it from each, up to the brake.
func (k *kit) braked(size int, match func(arrival) bool) (hosts []Host, in *inbox, b *brake) {
	in = k.newInbox()
	last := uint64(size)
	for id := range last {
		hosts = append(hosts, k.host(id+1, ""))
	}
	b = brakeOn(k, in, match)
	for i, h := range hosts[:size-1] {
		h.SetPeer(last, hosts[size-1].Addr())
		hosts[size-1].SetPeer(uint64(i+1), h.Addr())
	}
	hosts[size-1].Start(in)
	for _, h := range hosts[:size-1] {
		h.Start(k.newInbox())
	}
	return hosts, in, b
}

// until sends again and again until done is ready.
func until[T any](k *kit, what string, done <-chan T, send func()) T {
	k.Helper()
	stop := make(chan struct{})
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for {
			select {
			case <-stop:
				return
			default:
			}
			send()
			pauseBetweenTries()
		}
	}()
	defer func() { close(stop); <-sent }()
	return next(k, done, what)
}

const numberBytes = 8

func number(n uint64) []byte { return binary.LittleEndian.AppendUint64(nil, n) }

// latestPulse: while a receiver is held, pulses to it replace each other: none is refused, the last one
// arrives, and no pulse arrives after a newer one.
func latestPulse(k *kit) {
	const pulses, bodyBytes = 2000, 100_000
	hosts, in, b := k.braked(2, func(a arrival) bool { return a.kind == transport.Pulse })
	until(k, "a pulse", b.held, func() { hosts[0].SendBytes(2, transport.Pulse, number(0)) })
	body := make([]byte, bodyBytes)
	k.within("sending pulses to a receiver that is held", func() {
		for n := range uint64(pulses) {
			binary.LittleEndian.PutUint64(body, n+1)
			if !hosts[0].SendBytes(2, transport.Pulse, body) {
				k.Errorf("pulse %d was refused", n+1)
				return
			}
		}
	})
	if c, ok := hosts[0].(counted); ok {
		if s := c.Stats().Kinds[transport.Pulse]; s.QueuedBytes > transport.MaxPulseBytes+transport.HeaderBytes {
			k.Errorf("%d bytes of pulses wait, want the latest only", s.QueuedBytes)
		}
	}
	b.off()
	arrived := 0
	for last := uint64(0); last < pulses; {
		a := next(k, in.arrivals, fmt.Sprintf("the last of %d pulses; pulse %d was the last to arrive", pulses, last))
		if a.kind != transport.Pulse {
			continue
		}
		if n := binary.LittleEndian.Uint64(a.body); n < last || n == last && n > 0 {
			k.Fatalf("pulse %d arrived after pulse %d", n, last)
		} else {
			last = n
		}
		arrived++
	}
	// What the transport cannot replace any more is in the kernel: a few megabytes.
	if maxBytes := 64 << 20; arrived*bodyBytes > maxBytes {
		k.Errorf("%d pulses of %d bytes waited, and a newer one replaces an older one", arrived, bodyBytes)
	}
}

// pulsesKeepMoving: pulses that come all the time do not keep consensus from arriving, in order.
func pulsesKeepMoving(k *kit) {
	const messages = 300
	hosts, inboxes := []Host{k.host(1, ""), k.host(2, "")}, []*inbox{k.newInbox(), k.newInbox()}
	var sent atomic.Uint64 // pulses; 0 before the test begins and after it has ended
	inboxes[1].hold = func(a arrival) {
		// While a pulse is delivered the next one is sent, so there is always one that could go first.
		if before := sent.Load(); a.kind == transport.Pulse && before > 0 {
			for sent.Load() == before {
				pauseBetweenTries()
			}
		}
	}
	for i, h := range hosts {
		h.SetPeer(uint64(2-i), hosts[1-i].Addr())
	}
	for i, h := range hosts {
		h.Start(inboxes[i])
	}
	k.meet(hosts, inboxes)
	stop := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		body := make([]byte, 10_000)
		for {
			select {
			case <-stop:
				return
			default:
				hosts[0].SendBytes(2, transport.Pulse, body)
				sent.Add(1)
				pauseBetweenTries()
			}
		}
	}()
	defer func() { close(stop); <-stopped; sent.Store(0) }()
	for index := range uint64(messages) {
		e := numbered(1, 2, index)
		e.Message.Entries = []raftpb.Entry{{Data: patterned(index, int(index)*500)}}
		if !sendOne(hosts[0], e) {
			k.Fatalf("message %d was refused", index)
		}
	}
	for index := uint64(0); index < messages; {
		a := next(k, inboxes[1].only(transport.Consensus), fmt.Sprintf("message %d beside pulses", index))
		for _, e := range a.batch {
			if e.Message.Index != index || !equal(e.Message.Entries[0].Data, patterned(index, int(index)*500)) {
				k.Fatalf("message %d arrived, want %d, or it has other data", e.Message.Index, index)
			}
			index++
		}
	}
	if inboxes[1].overlap.Load() {
		k.Error("calls for one peer and class overlap")
	}
}

// classesDoNotWait: a receiver that is held in one class, with a full queue behind it, takes what comes in
// the others.
func classesDoNotWait(k *kit) {
	for _, class := range []transport.Class{transport.ClassConsensus, transport.ClassControl, transport.ClassBulk} {
		hosts, in, b := k.braked(2, func(a arrival) bool { return a.kind.Class() == class })
		fill := func(body []byte) bool {
			switch class {
			case transport.ClassControl:
				return hosts[0].SendBytes(2, transport.Control, body)
			case transport.ClassBulk:
				return hosts[0].SendBytes(2, transport.Bulk, body)
			}
			e := numbered(1, 2, 0)
			e.Message.Entries = []raftpb.Entry{{Data: body}}
			return sendOne(hosts[0], e)
		}
		until(k, fmt.Sprintf("something of class %v", class), b.held, func() { fill(nil) })
		k.within("filling a queue", func() {
			body := make([]byte, 1<<20)
			for sent := 0; sent < 8<<20; sent += len(body) {
				fill(body)
			}
		})
		for kind := range transport.Kind(transport.Kinds) {
			if kind.Class() == class {
				continue
			}
			until(k, fmt.Sprintf("%v while class %v is held", kind, class), in.only(kind), func() {
				if kind == transport.Consensus {
					sendOne(hosts[0], numbered(1, 2, 1))
				} else {
					hosts[0].SendBytes(2, kind, []byte("x"))
				}
			})
		}
		b.off()
		for _, h := range hosts {
			h.Close()
		}
	}
}

// only returns a channel on which the next arrival of a kind comes; others are dropped.
func (in *inbox) only(kind transport.Kind) <-chan arrival {
	found := make(chan arrival, 1)
	go func() {
		for {
			select {
			case a := <-in.arrivals:
				if a.kind == kind {
					found <- a
					return
				}
			case <-in.quit:
				return
			}
		}
	}()
	return found
}

// sendersDoNotWait: a receiver that is held with a message of one host takes those of another.
func sendersDoNotWait(k *kit) {
	hosts, in, b := k.braked(3, func(a arrival) bool { return a.from == 1 })
	until(k, "a message of host 1", b.held, func() { sendOne(hosts[0], numbered(1, 3, 0)) })
	arrived := make(chan arrival, 1)
	go func() {
		select {
		case a := <-in.arrivals:
			arrived <- a
		case <-in.quit:
		}
	}()
	until(k, "a message of host 2 while one of host 1 is held", arrived, func() { sendOne(hosts[1], numbered(2, 3, 0)) })
}

// bounds: a receiver that takes nothing fills each queue, and then the sender is refused, at once. What was
// accepted arrives in order, once, as far as it is not lost, and later messages do. A loss of consensus
// messages is reported.
func bounds(k *kit) {
	for _, row := range []struct {
		kind transport.Kind
		most int // bytes that may be accepted: the bound, and what the network holds
	}{
		{transport.Consensus, transport.DefaultQueueBytes + 64<<20},
		{transport.Control, transport.DefaultControlBytes + 64<<20},
		{transport.Bulk, transport.DefaultBulkBytes + 64<<20},
	} {
		hosts, in, b := k.braked(2, func(a arrival) bool { return a.kind == row.kind })
		body := make([]byte, 1<<20)
		var last atomic.Uint64
		send := func(size int) bool {
			n := last.Load() + 1
			binary.LittleEndian.PutUint64(body, n)
			accepted := false
			if row.kind != transport.Consensus {
				accepted = hosts[0].SendBytes(2, row.kind, body[:size])
			} else {
				e := numbered(1, 2, n)
				e.Message.Entries = []raftpb.Entry{{Data: bytes.Clone(body[:size])}} // which does not change any more
				accepted = sendOne(hosts[0], e)
			}
			if accepted {
				last.Store(n)
			}
			return accepted
		}
		until(k, row.kind.String(), b.held, func() { send(numberBytes) })
		k.within(fmt.Sprintf("filling the queue of kind %v", row.kind), func() {
			for sent := 0; send(len(body)); sent += len(body) {
				if sent > row.most {
					k.Errorf("%v: %d bytes accepted for a receiver that takes nothing, want at most %d", row.kind, sent, row.most)
					return
				}
			}
		})
		if k.Failed() {
			return
		}
		if c, ok := hosts[0].(counted); ok && c.Stats().Kinds[row.kind].DroppedFull == 0 {
			k.Errorf("%v: a refusal was not counted", row.kind)
		}
		filled := last.Load()
		b.off()
		inOrder := make(chan string, 1)
		go func() {
			for before := uint64(0); before <= filled; {
				var a arrival
				select {
				case a = <-in.arrivals:
				case <-in.quit:
					return
				}
				if a.kind != row.kind {
					continue
				}
				for _, n := range numbersOf(a) {
					if n <= before {
						inOrder <- fmt.Sprintf("message %d arrived after message %d", n, before)
						return
					}
					before = n
				}
			}
			inOrder <- ""
		}()
		if wrong := until(k, fmt.Sprintf("%v: a message after the refusal", row.kind), inOrder, func() { send(numberBytes) }); wrong != "" {
			k.Fatalf("%v: %s", row.kind, wrong)
		}
		for _, h := range hosts {
			h.Close()
		}
	}
}

func numbersOf(a arrival) (numbers []uint64) {
	if a.kind != transport.Consensus {
		return []uint64{binary.LittleEndian.Uint64(a.body)}
	}
	for _, e := range a.batch {
		numbers = append(numbers, e.Message.Index)
	}
	return numbers
}

// largerThanTheQueue: a body that is larger than its whole queue goes, also behind others that wait; a second
// one is refused as long as the first waits.
func largerThanTheQueue(k *kit) {
	const large = transport.DefaultFrameBytes - 1<<20 // the network holds less of it than what is beyond the bound
	hosts, in, b := k.braked(2, func(a arrival) bool { return a.kind == transport.Bulk })
	until(k, "a body", b.held, func() { hosts[0].SendBytes(2, transport.Bulk, number(0)) })
	hosts[0].SendBytes(2, transport.Bulk, number(0))
	body := make([]byte, large)
	if !hosts[0].SendBytes(2, transport.Bulk, body) {
		k.Errorf("a body of %d bytes was refused by a queue of %d with next to nothing in it", large, transport.DefaultBulkBytes)
	}
	if hosts[0].SendBytes(2, transport.Bulk, body) {
		k.Errorf("a second body of %d bytes was accepted while the first waits", large)
	}
	if hosts[0].SendBytes(2, transport.Bulk, number(0)) {
		k.Error("a small body was accepted although more than the bound waits")
	}
	b.off()
	for {
		a := next(k, in.arrivals, fmt.Sprintf("a body of %d bytes", large))
		if a.kind == transport.Bulk && len(a.body) == large {
			return
		}
	}
}

// tooLarge: what can never be sent is refused; a message that is too large does not take the others of its
// batch with it.
func tooLarge(k *kit) {
	hosts, inboxes := k.cluster(2)
	k.meet(hosts, inboxes)
	huge := make([]byte, transport.DefaultFrameBytes+1)
	for _, kind := range []transport.Kind{transport.Pulse, transport.Control, transport.Bulk} {
		if hosts[0].SendBytes(2, kind, huge) {
			k.Errorf("a body of kind %v with %d bytes was accepted", kind, len(huge))
		}
	}
	if hosts[0].SendBytes(2, transport.Pulse, huge[:transport.MaxPulseBytes+1]) {
		k.Errorf("a pulse of %d bytes was accepted", transport.MaxPulseBytes+1)
	}
	inboxes[0].forgetReports()
	batch := []transport.Envelope{numbered(1, 2, 1), numbered(1, 2, 2), numbered(1, 2, 3)}
	batch[1].Message.Entries = []raftpb.Entry{{Data: huge}}
	if hosts[0].Send(2, batch) {
		k.Errorf("a message of %d bytes was accepted", len(huge))
	}
	if peer := next(k, inboxes[0].unreachable, "report"); peer != 2 {
		k.Errorf("host %d reported as unreachable, want 2", peer)
	}
	var have []uint64
	for len(have) < 2 {
		if a := next(k, inboxes[1].arrivals, "the others of its batch"); a.kind == transport.Consensus {
			have = append(have, numbersOf(a)...)
		}
	}
	if !equal(have, []uint64{1, 3}) {
		k.Errorf("messages %d arrived, want 1 and 3", have)
	}
}
