package raft

import (
	"fmt"
	"maps"
	"slices"
)

// A status as text: one line of JSON with the field names of etcd-io/raft, so that a program that reads their
// status reads ours. Ids are strings of hexadecimal digits. Members are in ascending order of id;
// etcd-io/raft's come in any order. Rejected: encoding/json for writing, which would need a second set of
// structs, and sorts ids as strings.

// MarshalJSON writes the name of the role. The error is always nil.
func (s StateType) MarshalJSON() ([]byte, error) { return fmt.Appendf(nil, "%q", s.String()), nil }

// MarshalJSON writes the status without the configuration. The error is always nil.
func (s Status) MarshalJSON() ([]byte, error) { return s.appendJSON(nil), nil }

// String returns the JSON of the status.
func (s Status) String() string { return string(s.appendJSON(nil)) }

func (s *Status) appendJSON(b []byte) []byte {
	b = fmt.Appendf(b, `{"id":"%x","term":%d,"vote":"%x","commit":%d,"lead":"%x","raftState":%q,"applied":%d,"progress":{`,
		s.ID, s.Term, s.Vote, s.Commit, s.Lead, s.RaftState, s.Applied)
	for i, id := range slices.Sorted(maps.Keys(s.Progress)) {
		if i > 0 {
			b = append(b, ',')
		}
		p := s.Progress[id]
		b = fmt.Appendf(b, `"%x":{"match":%d,"next":%d,"state":%q}`, id, p.Match, p.Next, p.State)
	}
	return fmt.Appendf(b, `},"leadtransferee":"%x"}`, s.LeadTransferee)
}
