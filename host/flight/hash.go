package flight

import (
	"encoding/binary"

	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
)

// hash sums up what a Ready hands out, so that a replay proves itself at every turn. It is no defence against
// a forger: it compares a core with itself. It looks at the first and the last of a list of entries, which
// came in as inputs and are contiguous, and never at their data, which may not be recorded.
type hash uint64

// The factors of a hash. Fields that belong together are multiplied and added up, which a processor does side
// by side, and then stirred once.
const (
	k0 = 0x9e3779b97f4a7c15
	k1 = 0xbf58476d1ce4e5b9
	k2 = 0x94d049bb133111eb
	k3 = 0xd6e8feb86659fd93
	k4 = 0xff51afd7ed558ccd
	k5 = 0xc4ceb9fe1a85ec53
	k6 = 0xa0761d6478bd642f
	k7 = 0xe7037ed1a0b428db
)

// stir makes v a part of the hash.
func (h *hash) stir(v uint64) {
	x := (uint64(*h) ^ v) * k0
	*h = hash(x ^ x>>29)
}

func (h *hash) bytes(b []byte) {
	if h.stir(uint64(len(b))); len(b) == 8 {
		h.stir(binary.LittleEndian.Uint64(b))
		return
	}
	for _, c := range b {
		h.stir(uint64(c))
	}
}

func (h *hash) entries(entries []raftpb.Entry) {
	n := len(entries)
	if n == 0 {
		return
	}
	first, last := &entries[0], &entries[n-1]
	h.stir(uint64(n)*k1 + first.Term*k2 + first.Index*k3 + uint64(len(first.Data))*k4 + last.Term*k5 + last.Index*k6 + uint64(last.Type)*k7)
}

func (h *hash) messages(messages []raftpb.Message) {
	h.stir(uint64(len(messages)))
	for i := range messages {
		m := &messages[i]
		v := uint64(m.Type)*k0 + m.To*k1 + m.From*k2 + m.Term*k3 + m.LogTerm*k4 + m.Index*k5 + m.Commit*k6 + (m.Vote+m.RejectHint)*k7
		if m.Reject {
			v = ^v
		}
		h.stir(v)
		if len(m.Context) > 0 {
			h.bytes(m.Context)
		}
		h.entries(m.Entries)
		if s := m.Snapshot; s != nil {
			h.stir(s.Metadata.Index*k1 + s.Metadata.Term*k2)
		}
		if len(m.Responses) > 0 {
			h.messages(m.Responses)
		}
	}
}

// hashOf returns the hash of a Ready. It is 0 for an empty one only by chance.
func hashOf(rd *raft.Ready) uint32 {
	h := hash(1)
	if rd.SoftState != nil {
		h.stir(rd.Lead*k1 + uint64(rd.RaftState)*k2 + 1)
	}
	h.stir(rd.Term*k1 + rd.Vote*k2 + rd.Commit*k3 + rd.Snapshot.Metadata.Index*k4)
	h.entries(rd.Entries)
	h.entries(rd.CommittedEntries)
	h.messages(rd.Messages)
	for _, r := range rd.ReadStates {
		h.stir(r.Index)
		h.bytes(r.RequestCtx)
	}
	for _, context := range rd.DroppedReads {
		h.bytes(context)
	}
	return uint32(h) ^ uint32(h>>32)
}
