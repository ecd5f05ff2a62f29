package conformance

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	theirraft "go.etcd.io/raft/v3"
	theirs "go.etcd.io/raft/v3/raftpb"
	theirtracker "go.etcd.io/raft/v3/tracker"

	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/raft/tracker"
)

// The text for people is the same, byte by byte: golden scripts print it, and tools read it after all.

// The same logger fits both.
var (
	_ raft.Logger      = theirraft.Logger(nil)
	_ theirraft.Logger = raft.Logger(nil)
)

// draw fills a value of ours and its twin of theirs.
func draw[A, B any](random *rand.Rand) (a A, b B) {
	fill(random, reflect.ValueOf(&a).Elem(), 2)
	mend(random, reflect.ValueOf(&a).Elem())
	transcribe(reflect.ValueOf(&b).Elem(), reflect.ValueOf(&a).Elem())
	return a, b
}

// mend changes random values so that they have more to say: membership changes that can be decoded, snapshots
// without an index, messages to workers.
func mend(random *rand.Rand, v reflect.Value) {
	switch x := v.Addr().Interface().(type) {
	case *raftpb.Entry:
		mendEntry(random, x)
		return
	case *raftpb.Snapshot:
		if random.IntN(3) == 0 {
			x.Metadata.Index = 0
		}
		return
	case *raftpb.Message:
		someone := []uint64{raft.None, raft.LocalAppendThread, raft.LocalApplyThread, x.To, x.From}
		x.To, x.From = someone[random.IntN(5)], someone[random.IntN(5)]
		x.Commit *= random.Uint64N(2)
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			mend(random, v.Field(i))
		}
	case reflect.Pointer:
		if !v.IsNil() {
			mend(random, v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			mend(random, v.Index(i))
		}
	}
}

func mendEntry(random *rand.Rand, e *raftpb.Entry) {
	e.Type = raftpb.EntryType(random.IntN(5)) // two of them without a name
	switch e.Type {
	case raftpb.EntryConfChange:
		var change raftpb.ConfChange
		fill(random, reflect.ValueOf(&change).Elem(), 0)
		e.Data, _ = change.Marshal()
	case raftpb.EntryConfChangeV2:
		var change raftpb.ConfChangeV2
		fill(random, reflect.ValueOf(&change).Elem(), 0)
		e.Data, _ = change.Marshal()
	}
}

func formatter(random *rand.Rand) func([]byte) string {
	return []func([]byte) string{
		nil,
		func(data []byte) string { return strings.ToUpper(fmt.Sprintf("%x", data)) },
		func([]byte) string { return "" },
	}[random.IntN(3)]
}

func sameText(t *testing.T, seed uint64, have, want string) {
	t.Helper()
	if have != want {
		t.Fatalf("seed %d:\nhave %q\nwant %q", seed, have, want)
	}
}

func TestDescriptionsSideBySide(t *testing.T) {
	for seed := range uint64(3000) {
		random := rand.New(rand.NewPCG(seed, 4))
		f := formatter(random)

		m, theirMessage := draw[raftpb.Message, theirs.Message](random)
		sameText(t, seed, raft.DescribeMessage(m, f), theirraft.DescribeMessage(theirMessage, f))

		entries, theirEntries := draw[[]raftpb.Entry, []theirs.Entry](random)
		sameText(t, seed, raft.DescribeEntries(entries, f), theirraft.DescribeEntries(theirEntries, f))
		for i := range entries {
			sameText(t, seed, raft.DescribeEntry(entries[i], f), theirraft.DescribeEntry(theirEntries[i], f))
		}

		hs, theirHardState := draw[raftpb.HardState, theirs.HardState](random)
		hs.Vote *= seed % 2
		theirHardState.Vote = hs.Vote
		sameText(t, seed, raft.DescribeHardState(hs), theirraft.DescribeHardState(theirHardState))

		cs, theirConfState := draw[raftpb.ConfState, theirs.ConfState](random)
		sameText(t, seed, raft.DescribeConfState(cs), theirraft.DescribeConfState(theirConfState))

		snap, theirSnapshot := draw[raftpb.Snapshot, theirs.Snapshot](random)
		sameText(t, seed, raft.DescribeSnapshot(snap), theirraft.DescribeSnapshot(theirSnapshot))
		if raft.IsEmptySnap(snap) != theirraft.IsEmptySnap(theirSnapshot) {
			t.Fatalf("seed %d: %v is empty: have %v", seed, snap.Metadata, raft.IsEmptySnap(snap))
		}
		for _, id := range []uint64{m.To, m.From} {
			if have, want := raft.IsLocalMsgTarget(id), theirraft.IsLocalMsgTarget(id); have != want {
				t.Fatalf("seed %d: %x is a worker: have %v, want %v", seed, id, have, want)
			}
		}
	}
}

// drawReady usually leaves out most parts of a Ready, and sometimes all of them.
func drawReady(random *rand.Rand) (a raft.Ready, b theirraft.Ready) {
	some := func() bool { return random.IntN(3) == 0 }
	if some() {
		ss := raft.SoftState{Lead: random.Uint64N(9), RaftState: raft.StateType(random.IntN(4))}
		a.SoftState = &ss
		b.SoftState = &theirraft.SoftState{Lead: ss.Lead, RaftState: theirraft.StateType(ss.RaftState)}
	}
	if some() {
		a.HardState, b.HardState = draw[raftpb.HardState, theirs.HardState](random)
	}
	if some() {
		a.ReadStates, b.ReadStates = draw[[]raft.ReadState, []theirraft.ReadState](random)
	}
	if some() {
		a.Entries, b.Entries = draw[[]raftpb.Entry, []theirs.Entry](random)
	}
	if some() {
		a.Snapshot, b.Snapshot = draw[raftpb.Snapshot, theirs.Snapshot](random)
	}
	if some() {
		a.CommittedEntries, b.CommittedEntries = draw[[]raftpb.Entry, []theirs.Entry](random)
	}
	if some() {
		a.Messages, b.Messages = draw[[]raftpb.Message, []theirs.Message](random)
	}
	a.MustSync = some()
	b.MustSync = a.MustSync
	return a, b
}

func TestReadySideBySide(t *testing.T) {
	empty := 0
	for seed := range uint64(3000) {
		random := rand.New(rand.NewPCG(seed, 5))
		a, b := drawReady(random)
		f := formatter(random)
		have := raft.DescribeReady(a, f)
		sameText(t, seed, have, theirraft.DescribeReady(b, f))
		if have == "<empty Ready>" {
			empty++
		}
	}
	if empty == 0 || empty > 1000 {
		t.Errorf("%d of 3000 are empty; the draw is one-sided", empty)
	}
}

// The text form of generated code, with every rule about which zero values are left out.
func TestTextSideBySide(t *testing.T) {
	for _, twin := range twins {
		kind := reflect.TypeOf(twin.ours).Elem()
		t.Run(kind.Name(), func(t *testing.T) {
			nothing, theirNothing := reflect.Zero(reflect.TypeOf(twin.ours)), reflect.Zero(reflect.TypeOf(twin.theirs))
			sameText(t, 0, nothing.Interface().(fmt.Stringer).String(), theirNothing.Interface().(fmt.Stringer).String())
			for seed := range uint64(2000) {
				random := rand.New(rand.NewPCG(seed, 6))
				ours, other := reflect.New(kind), reflect.New(reflect.TypeOf(twin.theirs).Elem())
				fill(random, ours.Elem(), 2)
				if seed%2 == 0 {
					clearSome(random, ours.Elem())
				}
				transcribe(other.Elem(), ours.Elem())
				sameText(t, seed, ours.Interface().(fmt.Stringer).String(), other.Interface().(fmt.Stringer).String())
			}
		})
	}
}

// clearSome sets fields to zero, at every depth, because too few random values are zero.
func clearSome(random *rand.Rand, v reflect.Value) {
	switch {
	case random.IntN(3) == 0:
		v.SetZero()
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			clearSome(random, v.Field(i))
		}
	case v.Kind() == reflect.Pointer && !v.IsNil():
		clearSome(random, v.Elem())
	case v.Kind() == reflect.Slice:
		for i := range v.Len() {
			clearSome(random, v.Index(i))
		}
	}
}

// The status is the same JSON. Theirs lists members in any order: if there are several, the meaning is
// compared.
func TestStatusSideBySide(t *testing.T) {
	for seed := range uint64(1000) {
		random := rand.New(rand.NewPCG(seed, 7))
		number := func() uint64 { return random.Uint64() >> random.IntN(65) }
		a := raft.Status{Progress: map[uint64]tracker.Progress{}}
		b := theirraft.Status{Progress: map[uint64]theirtracker.Progress{}}
		a.ID, a.Lead, a.Applied, a.LeadTransferee = number(), number(), number(), number()
		b.ID, b.Lead, b.Applied, b.LeadTransferee = a.ID, a.Lead, a.Applied, a.LeadTransferee
		a.HardState, b.HardState = draw[raftpb.HardState, theirs.HardState](random)
		a.RaftState = raft.StateType(random.IntN(4))
		b.RaftState = theirraft.StateType(a.RaftState)
		for range random.IntN(4) {
			id, p := number(), tracker.Progress{Match: number(), Next: number(), State: tracker.StateType(random.IntN(3))}
			a.Progress[id] = p
			b.Progress[id] = theirtracker.Progress{Match: p.Match, Next: p.Next, State: theirtracker.StateType(p.State)}
		}
		have, want := a.String(), b.String()
		if len(a.Progress) <= 1 {
			sameText(t, seed, have, want)
		}
		sameText(t, seed, fmt.Sprint(meaning(t, have)), fmt.Sprint(meaning(t, want)))
		sameText(t, seed, asJSON(t, a.RaftState), asJSON(t, b.RaftState))
		sameText(t, seed, fmt.Sprint(meaning(t, asJSON(t, a))), fmt.Sprint(meaning(t, asJSON(t, b))))
	}
}

// meaning keeps numbers as they are written. fmt prints maps in order.
func meaning(t *testing.T, s string) (v map[string]any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(s))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%s: %v", s, err)
	}
	return v
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// A follower as its leader sees it. Our windows count bytes differently; the line is the same.
func TestProgressSideBySide(t *testing.T) {
	for seed := range uint64(1000) {
		random := rand.New(rand.NewPCG(seed, 8))
		a := tracker.Progress{
			Match: random.Uint64N(9), Next: 9 + random.Uint64N(9), State: tracker.StateType(random.IntN(3)),
			RecentActive: random.IntN(2) == 0, MsgAppFlowPaused: random.IntN(2) == 0, IsLearner: random.IntN(2) == 0,
			Inflights: tracker.NewInflights(3, 0),
		}
		b := theirtracker.Progress{
			Match: a.Match, Next: a.Next, State: theirtracker.StateType(a.State),
			RecentActive: a.RecentActive, MsgAppFlowPaused: a.MsgAppFlowPaused, IsLearner: a.IsLearner,
			Inflights: theirtracker.NewInflights(3, 0),
		}
		for i := range random.IntN(4) {
			a.Inflights.Add(uint64(i), 1)
			b.Inflights.Add(uint64(i), 1)
		}
		sameText(t, seed, a.String(), b.String())
		sameText(t, seed, tracker.ProgressMap{7: &a, 10: &a}.String(), theirtracker.ProgressMap{10: &b, 7: &b}.String())
	}
}
