package conformance

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"testing"

	theirs "go.etcd.io/raft/v3/raftpb"

	"github.com/millrace/millrace/raft/raftpb"
)

type codec interface {
	Size() int
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

// twins are the types that travel or are stored, ours and theirs. Their fields have the same names.
var twins = []struct{ ours, theirs codec }{
	{new(raftpb.Entry), new(theirs.Entry)},
	{new(raftpb.HardState), new(theirs.HardState)},
	{new(raftpb.ConfState), new(theirs.ConfState)},
	{new(raftpb.SnapshotMetadata), new(theirs.SnapshotMetadata)},
	{new(raftpb.Snapshot), new(theirs.Snapshot)},
	{new(raftpb.Message), new(theirs.Message)},
	{new(raftpb.ConfChange), new(theirs.ConfChange)},
	{new(raftpb.ConfChangeSingle), new(theirs.ConfChangeSingle)},
	{new(raftpb.ConfChangeV2), new(theirs.ConfChangeV2)},
}

// Both encode the same value to the same bytes, and each decodes the other's bytes to the same value as its
// own.
func TestEncodingSideBySide(t *testing.T) {
	for _, twin := range twins {
		kind := reflect.TypeOf(twin.ours).Elem()
		t.Run(kind.Name(), func(t *testing.T) {
			for seed := range uint64(3000) {
				value := reflect.New(kind)
				fill(rand.New(rand.NewPCG(seed, 1)), value.Elem(), 2)
				same(t, seed, value.Interface().(codec), reflect.TypeOf(twin.theirs).Elem())
			}
		})
	}
}

func same(t *testing.T, seed uint64, a codec, theirKind reflect.Type) {
	t.Helper()
	b := reflect.New(theirKind).Interface().(codec)
	transcribe(reflect.ValueOf(b).Elem(), reflect.ValueOf(a).Elem())
	have, want := marshal(t, a), marshal(t, b)
	if !bytes.Equal(have, want) || a.Size() != b.Size() {
		t.Fatalf("seed %d: %+v:\nhave %x (size %d)\nwant %x (size %d)", seed, a, have, a.Size(), want, b.Size())
	}
	a2 := reflect.New(reflect.TypeOf(a).Elem()).Interface().(codec)
	b2 := reflect.New(theirKind).Interface().(codec)
	if err := a2.Unmarshal(want); err != nil {
		t.Fatalf("seed %d: we cannot read theirs: %v", seed, err)
	}
	if err := b2.Unmarshal(have); err != nil {
		t.Fatalf("seed %d: they cannot read ours: %v", seed, err)
	}
	read := reflect.New(theirKind)
	transcribe(read.Elem(), reflect.ValueOf(a2).Elem())
	if !reflect.DeepEqual(read.Interface(), b2) {
		t.Fatalf("seed %d: we read %+v, they read %+v", seed, a2, b2)
	}
}

func marshal(t *testing.T, c codec) []byte {
	t.Helper()
	b, err := c.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// fill draws a value. Numbers are small, large, or of any size in bits; slices are nil, empty, or short.
// Messages nest to the given depth.
func fill(random *rand.Rand, v reflect.Value, depth int) {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(random.IntN(2) == 1)
	case reflect.Int32: // the enums, with a few values that have no name
		v.SetInt(int64(random.IntN(32) - 4))
	case reflect.Uint8:
		v.SetUint(random.Uint64N(256))
	case reflect.Uint32: // the sum of an entry, which no encoding has
	case reflect.Uint64:
		v.SetUint(random.Uint64() >> random.IntN(65))
	case reflect.Pointer:
		if random.IntN(2) == 1 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(random, v.Elem(), depth)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			fill(random, v.Field(i), depth)
		}
	case reflect.Slice:
		n := random.IntN(5) - 1
		if n < 0 || (v.Type().Elem() == reflect.TypeFor[raftpb.Message]() && depth == 0) {
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			fill(random, v.Index(i), depth-1)
		}
	default:
		panic("no rule to fill a " + v.Kind().String())
	}
}

// transcribe copies a value between two types whose fields have the same names.
func transcribe(to, from reflect.Value) {
	switch to.Kind() {
	case reflect.Pointer:
		if !from.IsNil() {
			to.Set(reflect.New(to.Type().Elem()))
			transcribe(to.Elem(), from.Elem())
		}
	case reflect.Struct:
		if encoded(to) != encoded(from) {
			panic(to.Type().String() + " and its twin have different fields")
		}
		for i := range to.NumField() {
			if name := to.Type().Field(i).Name; !isSum(to.Type(), name) {
				transcribe(to.Field(i), from.FieldByName(name))
			}
		}
	case reflect.Slice:
		if !from.IsNil() {
			to.Set(reflect.MakeSlice(to.Type(), from.Len(), from.Len()))
			for i := range from.Len() {
				transcribe(to.Index(i), from.Index(i))
			}
		}
	default:
		to.Set(from.Convert(to.Type()))
	}
}

// encoded returns how many fields of a struct an encoding has.
func encoded(v reflect.Value) (n int) {
	for i := range v.NumField() {
		if !isSum(v.Type(), v.Type().Field(i).Name) {
			n++
		}
	}
	return n
}

// isSum reports whether a field is the sum of our entry, which travels in memory only.
func isSum(of reflect.Type, field string) bool {
	return of == reflect.TypeFor[raftpb.Entry]() && field == "Sum"
}

// The meaning of a membership change, apart from its encoding: its form in the log, and whether it needs a
// joint configuration.
func TestChangesSideBySide(t *testing.T) {
	for seed := range uint64(3000) {
		random := rand.New(rand.NewPCG(seed, 2))
		var a raftpb.ConfChangeV2
		fill(random, reflect.ValueOf(&a).Elem(), 0)
		a.Transition = raftpb.ConfChangeTransition(random.IntN(3)) // theirs panics on others
		var b theirs.ConfChangeV2
		transcribe(reflect.ValueOf(&b).Elem(), reflect.ValueOf(&a).Elem())
		auto, joint := a.EnterJoint()
		theirAuto, theirJoint := b.EnterJoint()
		if auto != theirAuto || joint != theirJoint || a.LeaveJoint() != b.LeaveJoint() {
			t.Fatalf("seed %d: %+v: have %v %v %v, want %v %v %v", seed, a, auto, joint, a.LeaveJoint(), theirAuto, theirJoint, b.LeaveJoint())
		}
		if have, want := raftpb.ConfChangesToString(a.Changes), theirs.ConfChangesToString(b.Changes); have != want {
			t.Fatalf("seed %d: have %q, want %q", seed, have, want)
		}
		sameEntry(t, seed, a, b)

		var a1 raftpb.ConfChange
		fill(random, reflect.ValueOf(&a1).Elem(), 0)
		var b1 theirs.ConfChange
		transcribe(reflect.ValueOf(&b1).Elem(), reflect.ValueOf(&a1).Elem())
		sameEntry(t, seed, a1, b1)
		sameEntry(t, seed, a1.AsV2(), b1.AsV2())
	}
	sameEntry(t, 0, nil, nil)
}

func sameEntry(t *testing.T, seed uint64, a raftpb.ConfChangeI, b theirs.ConfChangeI) {
	t.Helper()
	kind, data, err := raftpb.MarshalConfChange(a)
	theirKind, theirData, theirErr := theirs.MarshalConfChange(b)
	if err != nil || theirErr != nil || int32(kind) != int32(theirKind) || !bytes.Equal(data, theirData) {
		t.Fatalf("seed %d: %+v: have %v %x %v, want %v %x %v", seed, a, kind, data, err, theirKind, theirData, theirErr)
	}
}

// Both read the notation of changes alike, and refuse the same strings.
func TestNotationSideBySide(t *testing.T) {
	for seed := range uint64(20000) {
		random := rand.New(rand.NewPCG(seed, 3))
		s := make([]byte, random.IntN(9))
		for i := range s {
			s[i] = "vlru x019  \n-"[random.IntN(13)]
		}
		have, err := raftpb.ConfChangesFromString(string(s))
		want, theirErr := theirs.ConfChangesFromString(string(s))
		if (err == nil) != (theirErr == nil) || (err == nil && raftpb.ConfChangesToString(have) != theirs.ConfChangesToString(want)) {
			t.Fatalf("%q: have %v %v, want %v %v", s, have, err, want, theirErr)
		}
	}
}
