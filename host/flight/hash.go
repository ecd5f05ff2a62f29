package flight

import (
	"encoding/binary"

	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
)

// hash sums up what a Ready hands out, so that a replay proves itself at every turn. It is no defence against a
// forger: it compares a core with itself. It looks at the first and the last of a list of entries, which
// came in as inputs and are contiguous, and never at their data, which may not be recorded.
type hash uint64

func (h *hash) add(values ...uint64) {
	for _, v := range values {
		x := (uint64(*h) ^ v) * 0x9e3779b97f4a7c15
		*h = hash(x ^ x>>29)
	}
}

func (h *hash) bytes(b []byte) {
	h.add(uint64(len(b)))
	for ; len(b) >= 8; b = b[8:] {
		h.add(binary.LittleEndian.Uint64(b))
	}
	for _, c := range b {
		h.add(uint64(c))
	}
}

func (h *hash) entries(entries []raftpb.Entry) {
	n := len(entries)
	h.add(uint64(n))
	if n > 0 {
		first, last := &entries[0], &entries[n-1]
		h.add(first.Term, first.Index, uint64(len(first.Data)), last.Term, last.Index, uint64(last.Type))
	}
}

func (h *hash) messages(messages []raftpb.Message) {
	h.add(uint64(len(messages)))
	for i := range messages {
		m := &messages[i]
		reject := uint64(0)
		if m.Reject {
			reject = 1
		}
		h.add(uint64(m.Type)<<1|reject, m.To, m.From, m.Term, m.LogTerm, m.Index, m.Commit, m.Vote, m.RejectHint)
		h.bytes(m.Context)
		h.entries(m.Entries)
		if s := m.Snapshot; s != nil {
			h.add(s.Metadata.Index, s.Metadata.Term)
		}
		h.messages(m.Responses)
	}
}

// hashOf returns the hash of a Ready. It is 0 for an empty one only by chance.
func hashOf(rd *raft.Ready) uint32 {
	h := hash(1)
	if rd.SoftState != nil {
		h.add(rd.Lead, uint64(rd.RaftState))
	}
	h.add(rd.Term, rd.Vote, rd.Commit, rd.Snapshot.Metadata.Index)
	h.entries(rd.Entries)
	h.entries(rd.CommittedEntries)
	h.messages(rd.Messages)
	for _, r := range rd.ReadStates {
		h.add(r.Index)
		h.bytes(r.RequestCtx)
	}
	for _, context := range rd.DroppedReads {
		h.bytes(context)
	}
	return uint32(h) ^ uint32(h>>32)
}
