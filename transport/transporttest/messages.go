package transporttest

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
)

// What is sent: order, content, bodies.

// order: three hosts talk to each other at once, in sends of one to five messages of several groups.
// Everything arrives once and in order, and calls for one sender do not overlap.
func order(k *kit) {
	const messages = 3000
	hosts, inboxes := k.cluster(3)
	k.meet(hosts, inboxes)
	var senders []func()
	for i, h := range hosts {
		for j := range hosts {
			if i == j {
				continue
			}
			from, to := uint64(i+1), uint64(j+1)
			senders = append(senders, func() {
				for index := uint64(0); index < messages; {
					var batch []transport.Envelope
					for range 1 + index%5 {
						if index < messages {
							e := numbered(from, to, index)
							e.Group = index % 3
							if index%7 == 0 {
								e.Message.Entries = []raftpb.Entry{{Index: index, Data: patterned(index, int(index%3000))}}
							}
							batch = append(batch, e)
							index++
						}
					}
					if !h.Send(to, batch) {
						k.Errorf("%d → %d: send refused", from, to)
						return
					}
				}
			})
		}
	}
	k.all("sending", senders...)
	for i, in := range inboxes {
		want := map[uint64]uint64{}
		for total := 0; total < 2*messages; {
			a := next(k, in.arrivals, fmt.Sprintf("host %d after %d messages", i+1, total))
			for _, e := range a.batch {
				m := e.Message
				if m.Index != want[a.from] || e.Group != m.Index%3 {
					k.Fatalf("%d → %d: message %d of group %d, want %d of group %d", a.from, i+1, m.Index, e.Group, want[a.from], want[a.from]%3)
				}
				if m.Index%7 == 0 && !bytes.Equal(m.Entries[0].Data, patterned(m.Index, int(m.Index%3000))) {
					k.Fatalf("%d → %d: message %d has other data", a.from, i+1, m.Index)
				}
				want[a.from]++
				total++
			}
		}
		if in.overlap.Load() {
			k.Errorf("host %d: calls for one peer overlap", i+1)
		}
	}
}

// manyGroups: one call carries messages of a thousand groups, small ones and some that are larger than a
// frame.
func manyGroups(k *kit) {
	hosts, inboxes := k.cluster(2)
	k.meet(hosts, inboxes)
	var batch []transport.Envelope
	for group := range uint64(1000) {
		e := numbered(1, 2, group)
		e.Group = 1 << 40 * group
		if group%100 == 3 {
			e.Message.Entries = []raftpb.Entry{{Data: patterned(group, 100_000)}}
		}
		batch = append(batch, e)
	}
	if !hosts[0].Send(2, batch) {
		k.Fatal("the send was refused")
	}
	var have []transport.Envelope
	for len(have) < len(batch) {
		have = append(have, next(k, inboxes[1].arrivals, fmt.Sprintf("after %d groups", len(have))).batch...)
	}
	for i := range batch {
		if !arrived(batch[i], have[i]) {
			k.Fatalf("message %d of group %d arrived as message %d of group %d, or changed", i, batch[i].Group, have[i].Message.Index, have[i].Group)
		}
	}
}

// content: every field arrives, the sender may reuse what it sent, except for the data of entries, and the
// receiver may keep what it received.
func content(k *kit) {
	sizes := []int{0, 1, 100, 5000, transport.FrameBodyBytes - 100, transport.FrameBodyBytes, transport.FrameBodyBytes + 100, 200 << 10, 3 << 20}
	build := func(size int) raftpb.Message {
		return raftpb.Message{
			Type: raftpb.MsgApp, From: 1, To: 2, Term: 3, LogTerm: 4, Index: 5, Commit: 6, Vote: 7, RejectHint: 8,
			Reject: true, Context: []byte("context"),
			Entries:  []raftpb.Entry{{Term: 9, Index: 10, Data: patterned(1, size)}, {Type: raftpb.EntryConfChangeV2}},
			Snapshot: &raftpb.Snapshot{Data: patterned(2, size), Metadata: raftpb.SnapshotMetadata{Index: 1, ConfState: raftpb.ConfState{Voters: []uint64{1, 2}}}},
		}
	}
	hosts, inboxes := k.cluster(2)
	k.meet(hosts, inboxes)
	for i, size := range sizes {
		batch := []transport.Envelope{{Group: uint64(i), Message: build(size)}}
		if !hosts[0].Send(2, batch) {
			k.Fatalf("send of %d bytes refused", size)
		}
		m := batch[0].Message
		batch[0] = transport.Envelope{}
		clear(m.Snapshot.Data)
		clear(m.Context)
		clear(m.Entries)
	}
	var have []transport.Envelope
	compare := func() {
		for i := range have {
			if want := (transport.Envelope{Group: uint64(i), Message: build(sizes[i])}); !arrived(want, have[i]) {
				k.Fatalf("message with %d bytes has changed", sizes[i])
			}
		}
	}
	for len(have) < len(sizes) {
		have = append(have, next(k, inboxes[1].arrivals, "content").batch...)
		compare() // the ones before again: they may be kept
	}
}

// bodies: control and bulk arrive once, whole and in order, of any size, while consensus goes on. The sender
// may reuse what it sent.
func bodies(k *kit) {
	sizes := []int{0, 1, 1000, transport.FrameBodyBytes - 1, transport.FrameBodyBytes, transport.FrameBodyBytes + 1, 4 << 20}
	hosts, inboxes := k.cluster(2)
	k.meet(hosts, inboxes)
	var want [transport.Kinds][][]byte
	scratch := make([]byte, 4<<20)
	for round := range 2 {
		for i, n := range sizes {
			for _, kind := range []transport.Kind{transport.Control, transport.Bulk} {
				body := patterned(uint64(100*round+10*i+int(kind)), n)
				want[kind] = append(want[kind], body)
				copy(scratch, body)
				if !hosts[0].SendBytes(2, kind, scratch[:n]) {
					k.Fatalf("%v body of %d bytes refused", kind, n)
				}
				clear(scratch[:n])
			}
			sendOne(hosts[0], numbered(1, 2, 7))
		}
	}
	for got := 0; got < 4*len(sizes); {
		a := next(k, inboxes[1].arrivals, fmt.Sprintf("after %d bodies", got))
		if a.kind == transport.Consensus {
			continue
		}
		if len(want[a.kind]) == 0 || !bytes.Equal(a.body, want[a.kind][0]) {
			k.Fatalf("%v body of %d bytes is not the next that was sent", a.kind, len(a.body))
		}
		want[a.kind] = want[a.kind][1:]
		got++
	}
	if inboxes[1].overlap.Load() {
		k.Error("calls for one peer and class overlap")
	}
}

// bodiesAreCopied: a body that waits is not the sender's memory, which the sender overwrites at once.
func bodiesAreCopied(k *kit) {
	hosts, inboxes := k.cluster(2)
	k.meet(hosts, inboxes)
	for _, kind := range []transport.Kind{transport.Pulse, transport.Control, transport.Bulk} {
		body := []byte("what was said")
		want := []string{string(body), "and what was said after it"}
		if kind == transport.Pulse {
			want = want[:1] // the second might replace the first
		}
		for _, text := range want {
			body = append(body[:0], text...)
			if !hosts[0].SendBytes(2, kind, body) {
				k.Fatalf("%v refused", kind)
			}
			clear(body)
		}
		for _, text := range want {
			if a := next(k, inboxes[1].arrivals, kind.String()); a.kind != kind || string(a.body) != text {
				k.Fatalf("%v: %v arrived, %q, want %q", kind, a.kind, a.body, text)
			}
		}
	}
}

// strangers: nothing is sent to a host that is not in the address book. A message that names another sender
// or receiver than its connection is dropped, except that a request that a follower forwards names the host
// that asked.
func strangers(k *kit) {
	hosts, inboxes := k.cluster(3)
	k.meet(hosts, inboxes)
	if sendOne(hosts[0], numbered(1, 9, 0)) {
		k.Error("a send to an unknown host was accepted")
	}
	if sendOne(hosts[0], numbered(1, 1, 0)) {
		k.Error("a send to oneself was accepted")
	}
	for _, kind := range []transport.Kind{transport.Pulse, transport.Control, transport.Bulk} {
		if hosts[0].SendBytes(9, kind, []byte("x")) || hosts[0].SendBytes(1, kind, []byte("x")) {
			k.Errorf("%v to an unknown host or to oneself was accepted", kind)
		}
	}
	before := transport.Stats{}
	if c, ok := hosts[1].(counted); ok {
		before = c.Stats()
	}
	forwarded := transport.Envelope{Group: 1, Message: raftpb.Message{Type: raftpb.MsgTransferLeader, From: 3, To: 2, Index: 2}}
	hosts[0].Send(2, []transport.Envelope{numbered(3, 2, 0), numbered(1, 3, 1), forwarded, numbered(1, 2, 3)})
	var have []uint64
	for len(have) < 2 {
		for _, e := range next(k, inboxes[1].arrivals, "honest messages").batch {
			have = append(have, e.Message.Index)
		}
	}
	if !slices.Equal(have, []uint64{2, 3}) {
		k.Errorf("messages %d arrived, want 2 and 3", have)
	}
	if c, ok := hosts[0].(counted); ok {
		s := c.Stats()
		for kind := range s.Kinds {
			if s.Kinds[kind].DroppedUnknown != 2 {
				k.Errorf("%d messages of kind %v dropped as unknown, want 2", s.Kinds[kind].DroppedUnknown, transport.Kind(kind))
			}
		}
	}
	if c, ok := hosts[1].(counted); ok {
		s := c.Stats()
		if received := s.Kinds[transport.Consensus].Received - before.Kinds[transport.Consensus].Received; s.DroppedSender != 2 || received != 4 {
			k.Errorf("%d of %d messages dropped, want 2 of 4", s.DroppedSender, received)
		}
	}
}
