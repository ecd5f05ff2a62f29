package entry

import (
	"testing"

	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
)

// The entry rescued is read back, and refused with other bytes.
func TestEntryRescued(t *testing.T) {
	r := Rescued{Cluster: 9, Former: 5, ID: 2, Incarnation: transport.Incarnation{7}}
	data := r.Encode()
	if have, err := DecodeRescued(data); err != nil || have != r {
		t.Errorf("read back: %+v, %v", have, err)
	}
	if err := Reject(&raftpb.Entry{Type: raftpb.EntryHost, Data: data}); err != nil {
		t.Errorf("in an append: %v", err)
	}
	same := Rescued{Cluster: 5, Former: 5, ID: 2}
	for _, bad := range [][]byte{data[:len(data)-1], append(data[:len(data):len(data)], 0), data[:1], same.Encode()} {
		if _, err := DecodeRescued(bad); err == nil {
			t.Errorf("%d bytes are an entry rescued", len(bad))
		}
		if err := Reject(&raftpb.Entry{Type: raftpb.EntryHost, Data: bad}); err == nil {
			t.Errorf("%d bytes may be appended", len(bad))
		}
	}
}

// Whatever the configuration, the member is alone afterwards, by steps that the core takes one by one.
func TestRescueOfARoster(t *testing.T) {
	var members []membership.Member
	for id := uint64(1); id <= 5; id++ {
		members = append(members, membership.Member{ID: id, Incarnation: transport.Incarnation{byte(id)}})
	}
	for _, conf := range []raftpb.ConfState{
		{Voters: []uint64{1, 2, 3, 4, 5}},
		{Voters: []uint64{2, 3}, Learners: []uint64{1, 4, 5}},
		{Voters: []uint64{1, 4, 5}, VotersOutgoing: []uint64{1, 2, 3}},
		{Voters: []uint64{4, 5}, VotersOutgoing: []uint64{1, 2, 3}, LearnersNext: []uint64{1}},
		{Voters: []uint64{4, 5}, VotersOutgoing: []uint64{1, 2, 3}},
	} {
		r := &membership.Roster{Version: 7, Changed: 7, Conf: conf, Members: members, Removed: members[:1], Plan: &membership.Plan{ID: membership.PlanID{3}},
			Tokens: []membership.Token{{}}}
		next, changes, err := r.Rescue(9, 1, transport.Incarnation{99})
		if err != nil || len(changes) == 0 {
			t.Errorf("%+v: %v", conf, err)
			continue
		}
		if next.Conf.Equivalent(raftpb.ConfState{Voters: []uint64{1}}) != nil || len(next.Members) != 1 || next.Members[0].Incarnation != (transport.Incarnation{99}) ||
			next.Version != 9 || next.Changed != 9 || next.Plan != nil || !next.Ended[0].Cancelled || len(next.Removed)+len(next.Tokens) > 0 {
			t.Errorf("%+v: afterwards %+v", conf, next)
		}
		if _, err := membership.DecodeRoster(next.Encode()); err != nil {
			t.Errorf("%+v: %v", conf, err)
		}
		for _, bad := range []transport.Incarnation{{}, {1}} {
			if _, _, err := r.Rescue(9, 1, bad); err == nil {
				t.Errorf("%+v: it is rescued with directory %v", conf, bad)
			}
		}
		if _, _, err := r.Rescue(9, 8, transport.Incarnation{99}); err == nil {
			t.Errorf("%+v: a stranger is rescued", conf)
		}
	}
}
