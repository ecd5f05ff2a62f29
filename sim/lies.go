package sim

import (
	"encoding/binary"
	"slices"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
)

// The first bytes of what hosts tell each other about snapshots (host/snapshotcodec.go).
const firstSnapshotRecord, lastSnapshotRecord = 48, 51

// lie returns what a host sends in place of a record about a snapshot: the record, or, in a third of the
// cases, if the host is the liar, another one in a frame whose checksum is right. So numbers, lengths, hashes
// and contents are wrong, a record is cut off or too long, or one that was sent before comes in its place.
// A host that hears it must refuse it, or find out later, and the state that it restores must be right.
func (n *network) lie(from *life, body []byte) []byte {
	if kind := body[0]; kind < firstSnapshotRecord || kind > lastSnapshotRecord {
		return body
	}
	if n.liar != from.host.id {
		return body
	}
	n.told = append(n.told, slices.Clone(body))
	if len(n.told) > 64 {
		n.told = n.told[1:]
	}
	if n.rng.IntN(3) > 0 {
		return body
	}
	n.w.count(Lies)
	lie := slices.Clone(body)
	switch n.rng.IntN(5) {
	case 0, 1: // a wrong bit, near the front, where the numbers are, or anywhere
		at := 1 + n.rng.IntN(min(len(lie)-1, 60))
		if n.rng.IntN(2) == 0 {
			at = 1 + n.rng.IntN(len(lie)-1)
		}
		lie[at] ^= 1 << n.rng.IntN(8)
	case 2:
		lie = lie[:1+n.rng.IntN(len(lie)-1)]
	case 3:
		for range 1 + n.rng.IntN(20) {
			lie = append(lie, byte(n.rng.Uint32()))
		}
	case 4:
		lie = slices.Clone(n.told[n.rng.IntN(len(n.told))])
	}
	return lie
}

// lieInTerms adds a message with a term that no election reaches to what a liar sends, and tells the receiver
// that each of its groups has removed it. One host that says so must change nothing, and two may: so in each
// run there is one.
func (n *network) lieInTerms(from *life, to uint64, batch []transport.Envelope) []transport.Envelope {
	if n.liar != from.host.id || len(batch) == 0 || n.lies.IntN(4) > 0 || n.first != 0 && n.first != n.liar {
		return batch
	}
	n.first = n.liar
	n.w.count(Lies)
	e := batch[n.lies.IntN(len(batch))]
	types := []raftpb.MessageType{raftpb.MsgApp, raftpb.MsgAppResp, raftpb.MsgHeartbeat, raftpb.MsgHeartbeatResp, raftpb.MsgVote, raftpb.MsgVoteResp, raftpb.MsgPreVote, raftpb.MsgTimeoutNow}
	far := raftpb.Message{Type: types[n.lies.IntN(len(types))], From: e.Message.From, To: e.Message.To, Term: 1<<63 - 1 - n.lies.Uint64N(3)}
	if l := n.w.hosts[to-1].alive; l != nil && l.receiver != nil {
		body := binary.AppendUvarint(binary.AppendUvarint([]byte{removedRecord}, e.Group), n.lies.Uint64())
		incarnation := l.receiver.Introduce().Incarnation
		n.carry(from, to, transport.ClassControl, transport.AppendFrames(nil, transport.Control, append(body, incarnation[:]...)))
	}
	return append(slices.Clone(batch), transport.Envelope{Group: e.Group, Message: far})
}

// removedRecord is the first byte of a record that says that a member was removed (host/internal/members).
const removedRecord = 5
