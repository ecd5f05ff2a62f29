package raftpb

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// value is what every type here can do.
type value interface {
	Size() int
	Append([]byte) []byte
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

var kinds = map[string]func() value{
	"Entry":            func() value { return new(Entry) },
	"HardState":        func() value { return new(HardState) },
	"ConfState":        func() value { return new(ConfState) },
	"SnapshotMetadata": func() value { return new(SnapshotMetadata) },
	"Snapshot":         func() value { return new(Snapshot) },
	"Message":          func() value { return new(Message) },
	"ConfChange":       func() value { return new(ConfChange) },
	"ConfChangeSingle": func() value { return new(ConfChangeSingle) },
	"ConfChangeV2":     func() value { return new(ConfChangeV2) },
}

// goldenVector is one line of testdata/golden.tsv, which etcd-io/raft v3.6.0 wrote.
type goldenVector struct {
	kind  string
	bytes []byte
	json  string
}

func goldenVectors(t testing.TB) []goldenVector {
	t.Helper()
	f, err := os.Open("testdata/golden.tsv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var vectors []goldenVector
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		cols := strings.Split(lines.Text(), "\t")
		b, err := hex.DecodeString(cols[1])
		if err != nil {
			t.Fatal(err)
		}
		vectors = append(vectors, goldenVector{cols[0], b, cols[2]})
	}
	if err := lines.Err(); err != nil || len(vectors) < 50 {
		t.Fatalf("%d golden vectors, error %v", len(vectors), err)
	}
	return vectors
}

func TestGolden(t *testing.T) {
	for _, g := range goldenVectors(t) {
		want, have := kinds[g.kind](), kinds[g.kind]()
		if err := json.Unmarshal([]byte(g.json), want); err != nil {
			t.Fatal(err)
		}
		if b := want.Append(nil); !bytes.Equal(b, g.bytes) {
			t.Errorf("%s %s encodes to\n%x, want\n%x", g.kind, g.json, b, g.bytes)
		}
		if err := have.Unmarshal(g.bytes); err != nil {
			t.Errorf("%s %x: %v", g.kind, g.bytes, err)
		}
		if d := cmp.Diff(want, have); d != "" {
			t.Errorf("%s %x decodes wrongly (-want +have):\n%s", g.kind, g.bytes, d)
		}
	}
}

// Values of every form survive encoding and decoding, and Size is exact.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawMessage(2).Draw(t, "message")
		b := m.Append([]byte("prefix"))
		if string(b[:6]) != "prefix" {
			t.Fatal("Append wrote over its prefix")
		}
		b = b[6:]
		if len(b) != m.Size() {
			t.Fatalf("Append wrote %d bytes, Size says %d", len(b), m.Size())
		}
		var borrowed, copied Message
		if err := borrowed.UnmarshalBorrow(b); err != nil {
			t.Fatal(err)
		}
		if err := copied.Unmarshal(b); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(m, borrowed); d != "" {
			t.Fatalf("borrowed (-want +have):\n%s", d)
		}
		clear(b)
		if d := cmp.Diff(m, copied); d != "" {
			t.Fatalf("copied (-want +have):\n%s", d)
		}
	})
}

func drawMessage(depth int) *rapid.Generator[Message] {
	blob := rapid.OneOf(rapid.Just([]byte(nil)), rapid.SliceOfN(rapid.Byte(), 0, 200))
	ids := func(t *rapid.T) []uint64 {
		s := rapid.SliceOfN(rapid.Uint64(), 0, 3).Draw(t, "ids")
		if len(s) == 0 {
			return nil
		}
		return s
	}
	return rapid.Custom(func(t *rapid.T) Message {
		u := func(name string) uint64 { return rapid.Uint64().Draw(t, name) }
		m := Message{
			Type: MessageType(rapid.Int32().Draw(t, "type")), To: u("to"), From: u("from"), Term: u("term"),
			LogTerm: u("logterm"), Index: u("index"), Commit: u("commit"), Vote: u("vote"),
			Reject: rapid.Bool().Draw(t, "reject"), RejectHint: u("hint"), Context: blob.Draw(t, "context"),
		}
		for range rapid.IntRange(0, 3).Draw(t, "entries") {
			m.Entries = append(m.Entries, Entry{Term: u("eterm"), Index: u("eindex"),
				Type: EntryType(rapid.IntRange(0, 3).Draw(t, "etype")), Data: blob.Draw(t, "data")})
		}
		if rapid.Bool().Draw(t, "snapshot") {
			m.Snapshot = &Snapshot{Data: blob.Draw(t, "sdata"), Metadata: SnapshotMetadata{Index: u("sindex"), Term: u("sterm"),
				ConfState: ConfState{Voters: ids(t), Learners: ids(t), VotersOutgoing: ids(t), LearnersNext: ids(t),
					AutoLeave: rapid.Bool().Draw(t, "autoleave")}}}
		}
		if depth > 0 {
			for range rapid.IntRange(0, 2).Draw(t, "responses") {
				m.Responses = append(m.Responses, drawMessage(depth-1).Draw(t, "response"))
			}
		}
		return m
	})
}

// Encodings that the wire format allows and we do not write.
func TestLenient(t *testing.T) {
	for _, row := range []struct {
		name, hex string
		want      value
	}{
		{"packed voters", "0a03010203" + "2801", &ConfState{Voters: []uint64{1, 2, 3}, AutoLeave: true}},
		{"packed and not", "0801" + "0a020203" + "0a00" + "0804", &ConfState{Voters: []uint64{1, 2, 3, 4}}},
		{"unknown varint", "7805" + "1001", &Entry{Term: 1}},
		{"unknown bytes", "7a0161" + "1001", &Entry{Term: 1}},
		{"unknown fixed", "7d01020304" + "790102030405060708" + "1001", &Entry{Term: 1}},
		{"unknown nested groups", "7b" + "0801" + "7b7c" + "120161" + "7c" + "1001", &Entry{Term: 1}},
		{"last scalar wins", "1001" + "1002", &Entry{Term: 2}},
		{"nested structs merge", "12021001" + "12021802", &Snapshot{Metadata: SnapshotMetadata{Index: 1, Term: 2}}},
		{"nothing", "", &Message{}},
	} {
		b, err := hex.DecodeString(row.hex)
		if err != nil {
			t.Fatal(err)
		}
		have := kinds[strings.TrimPrefix(typeName(row.want), "*raftpb.")]()
		if err := have.Unmarshal(b); err != nil {
			t.Errorf("%s: %v", row.name, err)
		} else if d := cmp.Diff(row.want, have); d != "" {
			t.Errorf("%s (-want +have):\n%s", row.name, d)
		}
	}
}

func TestMalformed(t *testing.T) {
	for _, row := range []struct{ name, hex string }{
		{"cut key", "80"},
		{"key of eleven bytes", "8080808080808080808001"},
		{"field zero", "0001"},
		{"field number too large", "808080808001" + "00"},
		{"cut integer", "10"},
		{"integer above 64 bits", "10ffffffffffffffffff02"},
		{"length past the end", "2205" + "61"},
		{"length near 2^64", "22ffffffffffffffffff01" + "61"},
		{"cut fixed32", "7d010203"},
		{"cut fixed64", "7901"},
		{"group that does not end", "7b0801"},
		{"group end alone", "7c"},
		{"wire type 6", "7e"},
		{"bytes where an integer belongs", "120161"},
		{"integer where bytes belong", "2001"},
		{"unknown length past the end", "7a09"},
	} {
		b, err := hex.DecodeString(row.hex)
		if err != nil {
			t.Fatal(err)
		}
		if err := new(Entry).Unmarshal(b); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: error %v, want ErrMalformed", row.name, err)
		}
		nested := appendBytes(nil, 7, b)
		if err := new(Message).Unmarshal(nested); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s, in an entry of a message: error %v, want ErrMalformed", row.name, err)
		}
	}
	if err := new(ConfState).Unmarshal([]byte{0x0a, 0x01, 0x80}); !errors.Is(err, ErrMalformed) {
		t.Errorf("cut packed integer: error %v, want ErrMalformed", err)
	}
	groups := bytes.Repeat([]byte{0x7b}, 1<<20)
	if err := new(Entry).Unmarshal(groups); !errors.Is(err, ErrMalformed) {
		t.Errorf("a million open groups: error %v, want ErrMalformed", err)
	}
}

func TestResponseDepth(t *testing.T) {
	nest := func(depth int) []byte {
		var b []byte
		for range depth {
			b = appendBytes(nil, 14, append([]byte{}, b...))
		}
		return b
	}
	if err := new(Message).Unmarshal(nest(maxResponseDepth)); err != nil {
		t.Errorf("depth %d: %v", maxResponseDepth, err)
	}
	for _, depth := range []int{maxResponseDepth + 1, 1000} {
		if err := new(Message).Unmarshal(nest(depth)); !errors.Is(err, ErrMalformed) {
			t.Errorf("depth %d: error %v, want ErrMalformed", depth, err)
		}
	}
}

// An append to decoded bytes must not reach the bytes behind them.
func TestBorrowedBytesAreCut(t *testing.T) {
	m := Message{Entries: []Entry{{Data: []byte("a")}, {Data: []byte("b")}}, Context: []byte("c")}
	b := m.Append(nil)
	var have Message
	if err := have.UnmarshalBorrow(b); err != nil {
		t.Fatal(err)
	}
	_ = append(have.Entries[0].Data, "xxxxxxxxxxxxxxxxxxxxxxxx"...)
	if d := cmp.Diff(m, have); d != "" {
		t.Fatalf("(-want +have):\n%s", d)
	}
}

func TestStrings(t *testing.T) {
	for have, want := range map[string]string{
		MsgHup.String():                            "MsgHup",
		MsgForgetLeader.String():                   "MsgForgetLeader",
		MessageType(99).String():                   "99",
		EntryType(-1).String():                     "-1",
		EntryConfChangeV2.String():                 "EntryConfChangeV2",
		ConfChangeAddLearnerNode.String():          "ConfChangeAddLearnerNode",
		ConfChangeTransitionJointImplicit.String(): "ConfChangeTransitionJointImplicit",
	} {
		if have != want {
			t.Errorf("%q, want %q", have, want)
		}
	}
	if v := MessageType_value["MsgStorageApplyResp"]; v != int32(MsgStorageApplyResp) {
		t.Errorf("MessageType_value: %d, want %d", v, MsgStorageApplyResp)
	}
}

// A peer's message has no Responses, and its entries have a term and an index: anything else would be few
// bytes that take much memory.
func TestUnmarshalFromPeerRefusesAmplification(t *testing.T) {
	base := (&Message{Type: MsgApp, To: 1, From: 2, Term: 3, Entries: []Entry{{Term: 3, Index: 4}}}).Append(nil)
	var m Message
	if err := m.UnmarshalFromPeer(base); err != nil || len(m.Entries) != 1 {
		t.Fatalf("a message as peers send it: %v, %+v", err, m)
	}
	for name, extra := range map[string][]byte{"empty entries": {0x3a, 0x00}, "empty responses": {0x72, 0x00}} {
		bad := append([]byte(nil), base...)
		for range 1000 {
			bad = append(bad, extra...)
		}
		if err := m.UnmarshalFromPeer(bad); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
