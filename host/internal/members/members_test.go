package members

import (
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
	"pgregory.net/rapid"
)

func directory(id uint64) transport.Incarnation { return transport.Incarnation{byte(id), 1} }

// rosterOf returns a roster with a version, in which each member has its directory and a key.
func rosterOf(version uint64, ids ...uint64) *membership.Roster {
	var all []membership.Member
	for _, id := range ids {
		all = append(all, membership.Member{ID: id, Incarnation: directory(id), Keys: membership.Keys{{byte(id)}}})
	}
	r := membership.Founded(all)
	r.Version = version
	return r
}

// What hosts tell each other about a group is decoded again, and bytes that are cut are refused.
func TestRecords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		group, version := rapid.Uint64().Draw(t, "group"), rapid.Uint64().Draw(t, "version")
		i := transport.Incarnation{1, 15: rapid.Byte().Draw(t, "incarnation")}
		for _, row := range []struct {
			body   []byte
			want   any
			decode func([]byte) (any, error)
		}{
			{Refusal{group, i}.Encode(), Refusal{group, i}, func(b []byte) (any, error) { return DecodeRefusal(b) }},
			{Removed{group, version, i}.Encode(), Removed{group, version, i}, func(b []byte) (any, error) { return DecodeRemoved(b) }},
			{EncodeStranger(group), group, func(b []byte) (any, error) { return DecodeStranger(b) }},
			{RosterRecord{Group: group, Version: version}.Encode(), RosterRecord{Group: group, Version: version}, func(b []byte) (any, error) { return DecodeRoster(b) }},
		} {
			if back, err := row.decode(row.body); err != nil || back != row.want {
				t.Fatalf("%v became %v (%v)", row.want, back, err)
			}
			cut := row.body[:rapid.IntRange(1, len(row.body)-1).Draw(t, "cut")]
			if back, err := row.decode(cut); !errors.Is(err, control.ErrBad) {
				t.Fatalf("%x is accepted as %v (%v)", cut, back, err)
			}
		}
	})
	r := RosterRecord{Group: 7, Roster: rosterOf(9, 1, 2)}
	if back, err := DecodeRoster(r.Encode()); err != nil || back.Group != 7 || back.Roster.Version != 9 || !slices.Equal(back.Roster.IDs(), r.Roster.IDs()) {
		t.Errorf("%+v became %+v (%v)", r, back, err)
	}
	if _, err := DecodeRoster(append([]byte{control.RosterAnswer, 7}, make([]byte, entry.MaxRosterBytes+1)...)); !errors.Is(err, control.ErrBad) {
		t.Errorf("a roster that is too large: %v", err)
	}
}

// No body makes a decoder panic.
func FuzzRecords(f *testing.F) {
	f.Add(Refusal{1, directory(1)}.Encode())
	f.Add(Removed{1, 2, directory(1)}.Encode())
	f.Add(RosterRecord{Group: 1, Roster: rosterOf(9, 1, 2)}.Encode())
	f.Add(RosterRecord{Group: 1, Version: 2}.Encode())
	f.Fuzz(func(t *testing.T, body []byte) {
		if len(body) == 0 {
			return // the transport delivers none
		}
		if r, err := DecodeRefusal(body); err == nil {
			if again, err := DecodeRefusal(r.Encode()); err != nil || again != r {
				t.Errorf("%x: %v, %v", body, again, err)
			}
		}
		if r, err := DecodeRemoved(body); err == nil {
			if again, err := DecodeRemoved(r.Encode()); err != nil || again != r {
				t.Errorf("%x: %v, %v", body, again, err)
			}
		}
		if r, err := DecodeRoster(body); err == nil {
			if again, err := DecodeRoster(r.Encode()); err != nil || !reflect.DeepEqual(again, r) {
				t.Errorf("%x: %v, %v", body, again, err)
			}
		}
		_, _ = DecodeStranger(body)
	})
}

// What is noted is what the log has: a twin that keeps the whole log and looks through it says the same.
func TestNoted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var n Noted
		var log []raftpb.Entry // index i+1 is at i
		inForce := uint64(0)
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "append") {
				first := rapid.Uint64Range(inForce+1, uint64(len(log))+1).Draw(t, "first")
				log = log[:first-1]
				var batch []raftpb.Entry
				for range rapid.IntRange(0, 3).Draw(t, "entries") {
					e := raftpb.Entry{Index: uint64(len(log)) + 1, Term: 1}
					if rapid.Bool().Draw(t, "changes members") {
						e.Type, e.Data = raftpb.EntryHost, append([]byte{entry.EndKind}, make([]byte, 16)...)
					}
					log, batch = append(log, e), append(batch, e)
				}
				if len(batch) == 0 { // nothing is appended, so nothing is replaced
					log = append(log, raftpb.Entry{Index: first, Term: 1})
					batch = log[first-1:]
				}
				n.Append(batch)
			} else {
				inForce = rapid.Uint64Range(inForce, uint64(len(log))).Draw(t, "in force")
				n.DropThrough(inForce)
			}
			var want []uint64
			for _, e := range log[inForce:] {
				if e.Type == raftpb.EntryHost {
					want = append(want, e.Index)
				}
			}
			var have []uint64
			for _, e := range n.All() {
				have = append(have, e.Index)
			}
			if !slices.Equal(have, want) || n.Any() != (len(want) > 0) {
				t.Fatalf("noted are %v, and the log has %v", have, want)
			}
		}
	})
}

// Append says what it has done, and nothing is replaced by entries behind what is noted.
func TestNotedSaysWhatItDoes(t *testing.T) {
	var n Noted
	change := func(index uint64) raftpb.Entry {
		return raftpb.Entry{Index: index, Type: raftpb.EntryHost, Data: append([]byte{entry.EndKind}, make([]byte, 16)...)}
	}
	for i, row := range []struct {
		entries         []raftpb.Entry
		replaced, noted bool
	}{
		{nil, false, false}, {[]raftpb.Entry{{Index: 1}}, false, false}, {[]raftpb.Entry{change(2)}, false, true},
		{[]raftpb.Entry{{Index: 3}}, false, false}, {[]raftpb.Entry{change(2)}, true, true}, {[]raftpb.Entry{{Index: 2}}, true, false},
	} {
		if replaced, noted := n.Append(row.entries); replaced != row.replaced || noted != row.noted {
			t.Errorf("row %d: replaced %t, noted %t", i, replaced, noted)
		}
	}
}

// The rosters of entries that the machine has not applied are kept, and no earlier ones.
func TestRosters(t *testing.T) {
	var r Rosters
	if r.SetIDs([]uint64{1, 2}); r.Now() != nil || !slices.Equal(r.IDs(), []uint64{1, 2}) || r.At(9) != nil {
		t.Error("not founded")
	}
	for _, version := range []uint64{3, 5, 8} {
		r.Set(rosterOf(version, 1, 2, version), 4)
	}
	for index, want := range map[uint64]uint64{3: 3, 4: 3, 5: 5, 7: 5, 8: 8, 99: 8} {
		if at := r.At(index); at.Version != want {
			t.Errorf("at %d the roster is %d, want %d", index, at.Version, want)
		}
	}
	if !slices.Equal(r.IDs(), []uint64{1, 2, 8}) {
		t.Errorf("members %v", r.IDs())
	}
	if was := r.Set(rosterOf(9, 1), 8); was.Version != 8 || r.At(7) != nil || r.At(8).Version != 8 {
		t.Error("rosters that no snapshot needs are kept")
	}
	if r.Set(rosterOf(20, 1), 8); r.At(19).Version != 9 {
		t.Error("a later roster hides the one before")
	}
	if r.AcceptHint(rosterOf(20, 1)) || !r.AcceptHint(rosterOf(21, 1)) || r.AcceptHint(rosterOf(21, 1)) || !r.AcceptHint(rosterOf(25, 1)) {
		t.Error("a hint is later than the roster and than the hint before")
	}
	if r.DropHint(rosterOf(24, 1)); r.Hint() == nil {
		t.Error("a later hint is dropped")
	}
	if r.DropHint(rosterOf(25, 1)); r.Hint() != nil {
		t.Error("a hint that is not later stays")
	}
}

// A member does not count if it comes with another directory, or was removed. A later roster of another
// member may say that it counts; its votes do not.
func TestRefused(t *testing.T) {
	came := map[uint64]transport.Incarnation{1: directory(9), 2: directory(2), 3: directory(33)}
	by := func(id uint64) (i transport.Incarnation, known bool) { i, known = came[id]; return i, known }
	demand := func(name string, v View, refuses, hinted []uint64) {
		t.Helper()
		if r, h := v.Refused(by); !slices.Equal(r, refuses) || !slices.Equal(h, hinted) {
			t.Errorf("%s: refuses %v, hinted %v", name, r, h)
		}
	}
	bound := entry.Binding{{ID: 1, Incarnation: directory(1)}, {ID: 2, Incarnation: directory(2)}, {ID: 3, Incarnation: directory(3)}}
	hint := rosterOf(20, 1, 2, 3)
	hint.Members[2].Incarnation = directory(33)
	demand("nothing is known", View{Self: 1}, nil, nil)
	demand("bound", View{Self: 1, Bound: &bound}, []uint64{3}, nil)
	demand("bound, with a hint", View{Self: 1, Bound: &bound, Hint: hint}, nil, []uint64{3})
	demand("roster", View{Self: 1, Bound: &bound, Roster: rosterOf(9, 1, 2, 3)}, []uint64{3}, nil)
	demand("roster, with a hint", View{Self: 1, Roster: rosterOf(9, 1, 2, 3), Hint: hint}, nil, []uint64{3})
	demand("roster, with an earlier hint", View{Self: 1, Roster: rosterOf(20, 1, 2, 3), Hint: hint}, []uint64{3}, nil)
	removed := rosterOf(9, 1, 2)
	removed.Removed = []membership.Member{{ID: 3, Incarnation: directory(3)}, {ID: 2, Incarnation: directory(22)}, {ID: 1}, {ID: 4}}
	demand("removed", View{Self: 1, Roster: removed}, []uint64{3, 4}, nil)
	if !HasRemoved(removed, 3) || HasRemoved(removed, 2) || HasRemoved(nil, 3) {
		t.Error("3 was removed, and 2 is a member again")
	}
	v := View{Self: 1, Bound: &bound}
	if i, ok := v.BoundTo(3); !ok || i != directory(3) {
		t.Error("the entry found binds 3")
	}
	if v.Roster = removed; func() bool { _, ok := v.BoundTo(3); return ok }() {
		t.Error("the roster is without 3")
	}
	if v.Hint = hint; !v.WillHave(3) || v.WillHave(5) || !v.IsOnlyOther(2, []uint64{2, 3}) || v.IsOnlyOther(3, nil) {
		t.Error("3 will be a member, and 2 is the only other one")
	}
	if v.Roster = nil; !v.IsOnlyOther(3, []uint64{3}) || v.IsOnlyOther(2, []uint64{2, 3}) {
		t.Error("without a roster, the only host that is known is the only other one")
	}
}

// Two hosts are believed, or one that goes on, and none while a leader is heard.
func TestRemoval(t *testing.T) {
	var r Removal
	notice := Notice{By: 2, Now: 100, After: 64, LeaderAt: 50, IsSilent: true}
	believes := func(name string, want bool, change func(*Notice)) {
		t.Helper()
		if change(&notice); r.Believes(notice) != want {
			t.Errorf("%s: believed %t", name, !want)
		}
	}
	believes("one", false, func(*Notice) {})
	believes("one, again", false, func(n *Notice) { n.Now = 163 })
	believes("one, for long", true, func(n *Notice) { n.Now = 164 })
	believes("another one", true, func(n *Notice) { n.By, n.Now = 3, 101 })
	believes("a leader is heard", false, func(n *Notice) { n.IsSilent = false })
	believes("the leader is silent again", false, func(n *Notice) { n.IsSilent, n.Now = true, 200 })
	believes("a leader was heard since", false, func(n *Notice) { n.By, n.Now, n.LeaderAt = 2, 210, 205 })
	believes("the only other one", true, func(n *Notice) { n.IsOnly = true })
	if err := error(&RemovedError{1, 2, 3}); !errors.Is(err, outcome.ErrMemberRemoved) {
		t.Error(err)
	}
}

// A key is that of a directory. An operator accepts the one that was refused last.
func TestKeys(t *testing.T) {
	var k Keys
	peer := transport.Introduction{ID: 2, Incarnation: directory(2), Key: [32]byte{5}}
	if k.Admit(peer); k.Presented(2, directory(2)) != (membership.Key{5}) || !k.Presented(2, directory(3)).IsZero() {
		t.Error("directory 2 has come with key 5")
	}
	if _, ok := k.Accept(2); ok {
		t.Error("no key was refused")
	}
	k.Refuse(2, membership.Key{6})
	if key, ok := k.Accept(2); !ok || key != (membership.Key{6}) || !k.IsAccepted(2, key) || k.IsAccepted(2, membership.Key{5}) || k.IsAccepted(3, membership.Key{}) {
		t.Error("key 6 is accepted")
	}
	k.Refuse(2, membership.Key{7})
	k.Admit(peer)
	if _, ok := k.Accept(2); ok {
		t.Error("the host was admitted since its key was refused")
	}
	if !k.Unbound(1, 2, "a") || k.Unbound(1, 2, "a") || !k.Unbound(1, 2, "b") || !k.Unbound(2, 2, "b") {
		t.Error("a cause is news once")
	}
	v := View{Roster: rosterOf(9, 1, 2)}
	if _, is := v.OtherKey(2, directory(2), membership.Key{2}); is {
		t.Error("key 2 is that of member 2")
	}
	if bound, is := v.OtherKey(2, directory(2), membership.Key{6}); !is || bound != (membership.Key{2}) {
		t.Error("key 6 is another one")
	}
	if _, is := v.OtherKey(2, directory(3), membership.Key{6}); is {
		t.Error("another directory is not bound to a key")
	}
	v.Hint = rosterOf(10, 1, 2)
	v.Hint.Members[1].Keys = membership.Keys{{6}}
	if _, is := v.OtherKey(2, directory(2), membership.Key{6}); is {
		t.Error("a later roster has key 6")
	}
}
