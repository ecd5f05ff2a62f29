package host

import "github.com/millrace/millrace/raft/raftpb"

// span returns the entries [lo, hi) of a term.
func span(lo, hi, term uint64) (entries []raftpb.Entry) {
	for i := lo; i < hi; i++ {
		entries = append(entries, raftpb.Entry{Index: i, Term: term})
	}
	return entries
}
