package host

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/host/internal/divergence"
	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/internal/members"
	"github.com/millrace/millrace/host/internal/plans"
	"github.com/millrace/millrace/host/internal/proposals"
	"github.com/millrace/millrace/host/internal/pulse"
	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/host/session"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
)

// The table of lies: all that a member can say to another one, each field with each value that could hurt.
// TestHarmlessLies (lies_cluster_test.go) tells them one by one, with the oracle, and TestHostile
// (hostile_test.go) tells them over TLS connections. A kind of record, a type of message or a field without a
// row here fails TestTheTableOfLiesIsComplete.
//
// What a lie can do is one of three things, as in SECURITY.md.

// harm is what a lie can do.
type harm int

const (
	// harmless: the leader stays, and so does its term.
	harmless harm = iota
	// unsettles: terms and leaders may change while the lie is told. No Raft prevents that, as a voter may
	// ask for an election. When it is not told any more, the group commits again, and nothing is lost.
	unsettles
	// cheats: what a quorum of honest members rests on. A voter that lies so can break what Raft promises:
	// two leaders, or committed entries that are lost. No host panics, and memory is bounded.
	cheats
)

func (h harm) String() string { return [...]string{"harmless", "unsettles", "cheats"}[h] }

// lie is what one peer tells another.
type lie struct {
	name string
	harm harm
	kind transport.Kind
	body []byte          // of a control, bulk or pulse frame
	m    *raftpb.Message // or a message
}

// view is what a liar knows of the group, which is everything.
type view struct {
	self, to, leader      uint64 // self is the liar
	term, last, committed uint64
	matches               uint64 // the last entry that the liar has acknowledged
	lastTerm              uint64
	toIncarnation         transport.Incarnation
	toLife                uint64
	roster                *membership.Roster
	mark                  session.Mark // of an honest client
}

// valueCount is how many values a number is given.
const valueCount = 20

// numbers are the values of a field of 64 bits that has the value is: small ones, its neighbours, powers of
// two and the largest. There are always as many.
func numbers(is uint64) [valueCount]uint64 {
	return [...]uint64{0, 1, 2, 3, 4, is - 1, is, is + 1, is + 100, 1 << 20, 1<<31 - 1, 1 << 31, 1<<32 - 1, 1 << 32, 1 << 33, 1<<62 - 1, 1<<63 - 1, 1 << 63, 1<<64 - 2, 1<<64 - 1}
}

// recordLies are the kinds of records, by their name in package control. Each returns its numbers as they
// would be right, and the record with given numbers.
var recordLies = map[string]recordLie{
	"greeting": {fields: func(*view) []uint64 { return []uint64{3} }, encode: func(_ *view, n []uint64) []byte { return []byte{control.Greeting, byte(n[0])} }},
	"refusal": {fields: func(*view) []uint64 { return []uint64{theGroup, 7} }, encode: func(v *view, n []uint64) []byte {
		return members.Refusal{Group: n[0], Bound: transport.Incarnation{byte(n[1]), byte(n[1] >> 60)}}.Encode()
	}},
	"stranger": {fields: func(*view) []uint64 { return []uint64{theGroup} }, encode: func(_ *view, n []uint64) []byte { return members.EncodeStranger(n[0]) }},
	"removed": {fields: func(*view) []uint64 { return []uint64{theGroup, 1 << 63} }, encode: func(v *view, n []uint64) []byte {
		return members.Removed{Group: n[0], Version: n[1], Incarnation: v.toIncarnation}.Encode()
	}},
	"applied question": {fields: func(v *view) []uint64 { return []uint64{theGroup, v.term, 1} }, encode: plainNumbers(control.AppliedQuestion)},
	"applied answer":   {fields: func(v *view) []uint64 { return []uint64{theGroup, v.term, 1, v.committed} }, encode: plainNumbers(control.AppliedAnswer)},
	"object question":  {fields: func(v *view) []uint64 { return []uint64{theGroup, v.term, 1} }, encode: plainNumbers(control.ObjectQuestion)},
	// A member that says that it holds what it does not have is counted: Raft trusts what its members say of
	// their disks.
	"object answer": {fields: func(v *view) []uint64 { return []uint64{theGroup, v.term, 1, v.committed, 0, 0} }, encode: plainNumbers(control.ObjectAnswer)},
	"forward": {fields: func(v *view) []uint64 {
		return []uint64{theGroup, v.term, 1, uint64(time.Hour), v.mark.Number, 1, 1000}
	}, encode: forwardLie},
	"forward refusal": {fields: func(*view) []uint64 { return []uint64{theGroup, 1, 1, 1} }, encode: func(_ *view, n []uint64) []byte {
		return append(control.AppendNumbers([]byte{control.ForwardRefusal}, n[0], n[1]), byte(n[2]), byte(n[3]))
	}},
	"read question": {fields: func(v *view) []uint64 { return []uint64{theGroup, v.toLife, 1} }, encode: plainNumbers(control.ReadQuestion)},
	// An answer that is too low makes a read of this follower stale; without a read under way it does
	// nothing.
	"read answer": {fields: func(v *view) []uint64 { return []uint64{theGroup, v.toLife, 1, v.committed} }, encode: plainNumbers(control.ReadAnswer)},
	"report": {fields: func(v *view) []uint64 { return []uint64{theGroup, 1, v.committed, 3, 1, 2, 3} }, encode: func(_ *view, n []uint64) []byte {
		r := divergence.Report{Group: n[0], Options: n[1], Version: "v", Checkpoints: []divergence.Checkpoint{{Index: n[2], HasResults: n[3]&1 > 0, HasDigest: n[3]&2 > 0, Commands: n[4], Results: n[5], Digest: n[6]}}}
		return r.Encode()
	}},
	"stop": {fields: func(v *view) []uint64 { return []uint64{theGroup, v.committed, 3, 9} }, encode: func(_ *view, n []uint64) []byte {
		o := divergence.Order{Group: n[0], Index: n[1], In: pickDiverged(n[2]), Version: "v", Sum: n[3]}
		return o.Encode()
	}},
	// A leader that lies makes its followers say in Explain that members differ.
	"finding": {fields: func(v *view) []uint64 { return []uint64{theGroup, v.committed, 3, 2, 9} }, encode: func(_ *view, n []uint64) []byte {
		return (&divergence.Finding{Group: n[0], Index: n[1], In: pickDiverged(n[2]), Members: []event.DivergedMember{{ID: n[3], Sum: n[4], Minority: true}}}).Encode()
	}},
	"snapshot offer": {fields: func(v *view) []uint64 { return []uint64{theGroup, v.committed + 10, v.term, v.committed, 1 << 10} }, encode: func(_ *view, n []uint64) []byte {
		return append(control.AppendNumbers([]byte{control.SnapshotOffer}, n...), make([]byte, 32)...)
	}},
	"snapshot ask": {fields: func(*view) []uint64 { return []uint64{theGroup, 1, 1, 1, 0, 0, 1} }, encode: func(_ *view, n []uint64) []byte {
		b := appendHash([]byte{control.SnapshotAsk}, n[0], &[32]byte{})
		return control.AppendNumbers(append(binary.AppendUvarint(b, n[1]), byte(n[2])), n[3:]...)
	}},
	"snapshot block": {kind: transport.Bulk, fields: func(*view) []uint64 { return []uint64{theGroup, 0, 0} }, encode: func(_ *view, n []uint64) []byte {
		return append(control.AppendNumbers(appendHash([]byte{control.SnapshotBlock}, n[0], &[32]byte{}), n[1:]...), make([]byte, 1000)...)
	}},
	"snapshot end": {fields: func(*view) []uint64 { return []uint64{theGroup, 1} }, encode: func(_ *view, n []uint64) []byte {
		return append(appendHash([]byte{control.SnapshotEnd}, n[0], &[32]byte{}), byte(n[1]))
	}},
	"plan request": {fields: func(*view) []uint64 { return []uint64{theGroup, 1} }, encode: func(_ *view, n []uint64) []byte {
		id := membership.PlanID{byte(n[1])} // any member may ask for a plan, so it asks for one that is not there
		return plans.Request{ID: id, Data: append([]byte{entry.CancelKind}, id[:]...)}.Encode(n[0])
	}},
	"plan answer": {fields: func(*view) []uint64 { return []uint64{theGroup} }, encode: func(_ *view, n []uint64) []byte {
		return plans.Answer{Group: n[0], Why: "because"}.Encode()
	}},
	"roster question": {fields: func(*view) []uint64 { return []uint64{theGroup, 0} }, encode: plainNumbers(control.RosterQuestion)},
	"roster answer": {fields: func(*view) []uint64 { return []uint64{theGroup, 1 << 63} }, encode: func(v *view, n []uint64) []byte {
		r := membership.Roster{Version: n[1]}
		for _, m := range v.roster.Members { // the liar is the only one with its directory
			if m.ID != v.self {
				m.Incarnation[0] ^= 1
			}
			r.Members = append(r.Members, m)
		}
		return append(binary.AppendUvarint([]byte{control.RosterAnswer}, n[0]), r.Encode()...)
	}},
	"load question": {fields: func(*view) []uint64 { return []uint64{1} }, encode: plainNumbers(control.LoadQuestion)},
	"load answer":   {fields: func(*view) []uint64 { return []uint64{1, 1, 0} }, encode: plainNumbers(control.LoadAnswer)},
	// It can keep placement at rest, for an hour at a time. Nothing else rests on it.
	"moved": {fields: func(v *view) []uint64 { return []uint64{theGroup, v.term, 1, 1} }, encode: plainNumbers(control.Moved)},
	"join refused": {fields: func(*view) []uint64 { return []uint64{theGroup} }, encode: func(_ *view, n []uint64) []byte {
		return plans.JoinRefused{Group: n[0], Why: "because"}.Encode()
	}},
	// A leader that lies about who is there makes a page wrong. Plans are judged again where it leads.
	"version question": {fields: func(*view) []uint64 { return []uint64{theGroup, 1} }, encode: plainNumbers(control.VersionQuestion)},
	// A member that says that it can do a version, and cannot, is halted at it.
	"version answer": {fields: func(*view) []uint64 { return []uint64{theGroup, 1, 0, 2, 0} }, encode: plainNumbers(control.VersionAnswer)},
	"view question":  {fields: func(*view) []uint64 { return []uint64{theGroup} }, encode: plainNumbers(control.ViewQuestion)},
	"view answer":    {fields: func(v *view) []uint64 { return []uint64{theGroup, 2, v.leader, 2} }, encode: plainNumbers(control.ViewAnswer)},
	// It can make a warning appear about itself.
	"settings": {fields: func(*view) []uint64 { return []uint64{1, 1 << 30, 2, 1 << 33} }, encode: plainNumbers(control.Settings)},
	"addresses": {fields: func(v *view) []uint64 { return []uint64{v.leader, 1 << 63, 5, 1} }, encode: func(_ *view, n []uint64) []byte {
		return appendAddress(appendAddress([]byte{control.Addresses}, n[0], n[1], "127.0.0.1:1"), n[2], n[3], "127.0.0.1:2")
	}},
}

type recordLie struct {
	kind   transport.Kind // Consensus: Control
	fields func(*view) []uint64
	encode func(v *view, numbers []uint64) []byte
}

func plainNumbers(kind byte) func(*view, []uint64) []byte {
	return func(_ *view, n []uint64) []byte { return control.AppendNumbers([]byte{kind}, n...) }
}

// forwardLie forwards a command in a session of another host: group, term, frame, birth, number, low, size.
func forwardLie(v *view, n []uint64) []byte {
	b := proposals.AppendForward(nil, proposals.Forward{Group: n[0], Term: n[1], Frame: n[2]})
	m := session.Mark{ID: v.mark.ID, Number: max(n[4], 1), Low: n[5]}
	m.ID.Client[15]++ // not one of an honest client
	m.ID.Birth = time.Duration(n[3] >> 1)
	return proposals.AppendCommand(b, session.Header{Mark: m, HasMark: true}, make([]byte, min(n[6], 40<<10)))
}

// lies returns all lies. What each says depends on what the liar knows when it tells it.
func lies(rng *rand.Rand) (all []func(*view) lie) {
	for _, name := range slices.Sorted(maps.Keys(recordLies)) {
		all = append(all, recordLies[name].lies(name, rng)...)
	}
	all = append(all, rekeyOther, askRescue)
	for kind := range 256 {
		for _, as := range []transport.Kind{transport.Control, transport.Bulk} {
			all = append(all, func(*view) lie {
				return lie{name: fmt.Sprintf("only kind %d, as %v", kind, as), kind: as, body: []byte{byte(kind)}}
			})
		}
	}
	return append(append(all, pulseLies(rng)...), messageLies()...)
}

// rekeyOther asks the leader to bind another member to the liar's key.
func rekeyOther(v *view) lie {
	k := membership.Rekey{ID: v.to, Incarnation: v.toIncarnation, Key: membership.Key{1}}
	q := plans.RequestOf(0, append([]byte{entry.RekeyKind}, k.Encode()...))
	return lie{name: "plan request: a key for another member", kind: transport.Control, body: q.Encode(theGroup)}
}

// askRescue asks the leader to make the liar the only member.
func askRescue(v *view) lie {
	q := plans.Request{Data: entry.Rescued{Cluster: 1, Former: 1, ID: v.self, Incarnation: v.toIncarnation}.Encode()}
	return lie{name: "plan request: a rescue", kind: transport.Control, body: q.Encode(theGroup)}
}

// lies returns a record with each number wrong, and what is left of it when it is cut off, when one bit is
// wrong or when it comes in another kind of frame.
func (row recordLie) lies(name string, rng *rand.Rand) (all []func(*view) lie) {
	if row.kind == transport.Consensus {
		row.kind = transport.Control
	}
	for field := range row.fields(&view{}) {
		for i := range valueCount {
			all = append(all, func(v *view) lie {
				n := row.fields(v)
				n[field] = numbers(n[field])[i]
				return lie{name: fmt.Sprintf("%s: number %d is %d", name, field, n[field]), kind: row.kind, body: row.encode(v, n)}
			})
		}
	}
	add := func(what string, change func([]byte) []byte) {
		all = append(all, func(v *view) lie {
			return lie{name: name + ": " + what, kind: row.kind, body: change(row.encode(v, row.fields(v)))}
		})
	}
	for range 8 {
		add("cut off", func(b []byte) []byte { return b[:1+rng.IntN(len(b))] })
		add("a bit is wrong", func(b []byte) []byte { return flipped(rng, b) })
		add("more follows", func(b []byte) []byte { return append(slices.Clone(b), flipped(rng, b)...) })
	}
	return append(all, func(v *view) lie {
		return lie{name: name + ": in another kind of frame", kind: transport.Bulk + transport.Control - row.kind, body: row.encode(v, row.fields(v))}
	})
}

func flipped(rng *rand.Rand, b []byte) []byte {
	b = slices.Clone(b)
	b[rng.IntN(len(b))] ^= 1 << rng.IntN(8)
	return b
}

// pulseLies returns pulses that say wrongly that the liar leads, or what it has heard.
func pulseLies(rng *rand.Rand) (all []func(*view) lie) {
	right := func(v *view) (*pulse.Record, []*uint64) {
		r := &pulse.Record{Pulses: true, Life: 1, Version: 1, HasList: true, Lines: []pulse.Line{{Group: theGroup, Term: v.term, Commit: v.committed}}, Answers: true, Answer: pulse.Answer{Life: v.toLife, Version: 1, Known: true, Excluded: []uint64{2}}}
		return r, []*uint64{&r.Life, &r.Version, &r.Lines[0].Group, &r.Lines[0].Term, &r.Lines[0].Commit, &r.Answer.Life, &r.Answer.Version, &r.Answer.Excluded[0]}
	}
	_, fields := right(&view{})
	for field := range fields {
		for i := range valueCount {
			all = append(all, func(v *view) lie {
				r, fields := right(v)
				*fields[field] = numbers(*fields[field])[i]
				return lie{name: fmt.Sprintf("pulse: number %d is %d", field, *fields[field]), kind: transport.Pulse, body: r.Append(nil)}
			})
		}
	}
	for range 50 {
		all = append(all, func(v *view) lie {
			r, _ := right(v)
			return lie{name: "pulse: a bit is wrong", kind: transport.Pulse, body: flipped(rng, r.Append(nil))}
		}, func(v *view) lie {
			r, _ := right(v)
			b := r.Append(nil)
			return lie{name: "pulse: cut off", kind: transport.Pulse, body: b[:rng.IntN(len(b))]}
		})
	}
	return all
}

// messageTypes is how many types of messages there are.
const messageTypes = int(raftpb.MsgForgetLeader) + 1

// messageFields are the fields of a message.
var messageFields = []string{"Type", "To", "From", "Term", "LogTerm", "Index", "Entries", "Commit", "Vote", "Snapshot", "Reject", "RejectHint", "Context", "Responses"}

// messageLies returns each type of message with each field wrong, in the present term and in the next one.
func messageLies() (all []func(*view) lie) {
	for kind := range messageTypes + 2 {
		for later := range uint64(2) {
			for _, name := range messageFields {
				field := reflect.ValueOf(&raftpb.Message{}).Elem().FieldByName(name)
				for i := range valuesOf(&view{}, field) {
					all = append(all, func(v *view) lie { return messageLie(v, raftpb.MessageType(kind), later, name, i) })
				}
			}
		}
	}
	return all
}

// messageLie returns a message in which one field has the ith of its values.
func messageLie(v *view, kind raftpb.MessageType, later uint64, name string, i int) lie {
	m := raftpb.Message{Type: kind, From: v.self, To: v.to, Term: v.term + later, LogTerm: v.lastTerm, Index: v.last, Commit: v.committed}
	switch kind { // the field means something else there
	case raftpb.MsgAppResp:
		m.Index = v.matches
	case raftpb.MsgPreVote:
		m.Term++ // of the election that it would begin
	}
	at := reflect.ValueOf(&m).Elem().FieldByName(name)
	at.Set(valuesOf(v, at)[i])
	text := fmt.Sprintf("%d of them", i)
	if at.Kind() != reflect.Slice && at.Kind() != reflect.Pointer {
		text = fmt.Sprint(at.Interface())
	}
	return lie{name: fmt.Sprintf("%v, %s is %s, %d terms later", kind, name, text, later), harm: messageHarm(v, &m), m: &m}
}

// valuesOf returns the values of a field of a message.
func valuesOf(v *view, at reflect.Value) (all []reflect.Value) {
	add := func(value any) { all = append(all, reflect.ValueOf(value).Convert(at.Type())) }
	switch at.Interface().(type) {
	case uint64:
		for _, n := range numbers(at.Uint()) {
			add(n)
		}
	case bool:
		add(false)
		add(true)
	case raftpb.MessageType:
		for _, n := range []int32{-1, -1 << 31, 24, 100, 1<<31 - 1} {
			add(n)
		}
	case []byte:
		for _, b := range [][]byte{{}, {0}, {1}, []byte("CampaignTransfer"), make([]byte, 8), make([]byte, 9), make([]byte, 100_000)} {
			add(b)
		}
	case []raftpb.Entry:
		for _, list := range wrongEntries(v) {
			add(list)
		}
	case *raftpb.Snapshot:
		add(&raftpb.Snapshot{})
		for _, n := range numbers(v.committed) {
			add(&raftpb.Snapshot{Data: []byte("state"), Metadata: raftpb.SnapshotMetadata{Index: n, Term: v.term, ConfState: raftpb.ConfState{Voters: []uint64{v.self}}}})
		}
	case []raftpb.Message:
		add([]raftpb.Message{{}})
		add([]raftpb.Message{{Type: raftpb.MsgAppResp, To: v.to, From: v.to, Term: v.term, Index: 1 << 40}})
	}
	return all
}

// wrongEntries are lists of entries with gaps, with terms that decrease, of types that do not exist, that
// replace what is committed, and too many of them.
func wrongEntries(v *view) [][]raftpb.Entry {
	e := func(term, index uint64, kind raftpb.EntryType, data ...byte) raftpb.Entry {
		return raftpb.Entry{Term: term, Index: index, Type: kind, Data: data}
	}
	next := v.last + 1
	lists := [][]raftpb.Entry{
		{e(0, 0, 0)}, {e(v.term, next, 0)}, {e(v.term+1, next, 0, 1)}, {e(v.term, next+1, 0)}, {e(v.term, next, 0), e(v.term-1, next+1, 0)},
		{e(v.term, next, 0), e(v.term, next+2, 0)}, {e(v.term, 1, 0, 9)}, {e(v.term, v.committed, 0, 9)}, {e(1<<63, next, 0)}, {e(v.term, 1<<64-1, 0)},
		slices.Repeat([]raftpb.Entry{e(v.term, next, 0)}, 10_000),
	}
	for _, kind := range []raftpb.EntryType{-1, 99, raftpb.EntryConfChange, raftpb.EntryConfChangeV2, raftpb.EntryHost} {
		for _, data := range [][]byte{nil, {1, 2}, {entry.FoundKind, 1, 0}, {entry.PlanKind}, {entry.CancelKind}, {entry.EndKind}, {entry.GrantKind}, {entry.RekeyKind}, {entry.RescuedKind}, {entry.SkipKind}} {
			lists = append(lists, []raftpb.Entry{e(v.term, next, kind, data...)})
		}
	}
	return lists
}

// messageHarm says what a message can do by the nature of Raft.
func messageHarm(v *view, m *raftpb.Message) harm {
	if m.From != v.self || m.To != v.to || !mayTravel(m.Type) || m.Responses != nil {
		return harmless // refused at the edge
	}
	isFar := m.Term > v.term && m.Term-v.term > 1<<32
	switch m.Type {
	case raftpb.MsgApp, raftpb.MsgHeartbeat:
		if m.Term > v.term && !isFar {
			return cheats // it claims to lead a later term, and that something is committed
		}
	case raftpb.MsgAppResp:
		if m.Term == v.term && !m.Reject && m.Index > v.matches {
			return cheats // it acknowledges what it does not hold
		}
	case raftpb.MsgTimeoutNow:
		if m.Term > v.term && !isFar {
			return cheats // it claims to lead
		}
	case raftpb.MsgVoteResp, raftpb.MsgPreVoteResp:
		// A vote for one that does not campaign is nothing.
	case raftpb.MsgVote, raftpb.MsgPreVote:
		if string(m.Context) != "CampaignTransfer" {
			return harmless // a member that hears a leader gives no vote (thesis §4.2.3)
		}
	}
	// Of a message of a far term nothing counts but that the term is higher.
	if m.Term > v.term && m.Term <= math.MaxInt64 && (m.Type != raftpb.MsgPreVoteResp || m.Reject) {
		return unsettles
	}
	return harmless
}

// The table has a row for each kind of record, and a field of a message for each there is.
func TestTheTableOfLiesIsComplete(t *testing.T) {
	for _, r := range control.Records {
		if _, has := recordLies[r.Name]; !has {
			t.Errorf("record %q has no row in recordLies: what can a member that lies do with it?", r.Name)
		}
	}
	if len(recordLies) != len(control.Records) {
		t.Errorf("there are %d kinds of records, and the table has %d", len(control.Records), len(recordLies))
	}
	var fields []string
	for _, f := range reflect.VisibleFields(reflect.TypeFor[raftpb.Message]()) {
		fields = append(fields, f.Name)
	}
	if !slices.Equal(sortedStrings(fields), sortedStrings(messageFields)) {
		t.Errorf("a message has the fields %v, the table %v", fields, messageFields)
	}
	if text := raftpb.MessageType(messageTypes).String(); !strings.Contains(text, fmt.Sprint(messageTypes)) {
		t.Errorf("message type %d exists: %s", messageTypes, text)
	}
}

func sortedStrings(all []string) []string { return slices.Sorted(slices.Values(all)) }

// pickDiverged returns what members may differ in.
func pickDiverged(n uint64) event.DivergedIn {
	all := []event.DivergedIn{event.DivergedOptions, event.DivergedCommands, event.DivergedResults, event.DivergedState}
	return all[n%uint64(len(all))]
}

func appendHash(b []byte, group uint64, hash *[32]byte) []byte {
	return append(binary.AppendUvarint(b, group), hash[:]...)
}
