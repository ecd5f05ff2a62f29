package transport

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func someIntroduction() Introduction {
	return Introduction{ID: 2, Cluster: 7, Derived: true, Incarnation: Incarnation{1, 2, 15: 16}, Generation: 4, Life: 99, Past: []uint32{0, 5, 1<<32 - 1}, Addr: "10.0.0.2:7001",
		Members: []Member{{1, "10.0.0.1:7001"}, {2, "10.0.0.2:7001"}, {3, ""}}}
}

func TestIntroduction(t *testing.T) {
	for _, want := range []Introduction{{}, {ID: 1, Members: []Member{{1, "ä:1"}}}, someIntroduction()} {
		have, err := DecodeIntroduction(want.Append(nil))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, have); d != "" {
			t.Errorf("(-want +have):\n%s", d)
		}
	}
}

func TestBadIntroductions(t *testing.T) {
	good := someIntroduction().Append(nil)
	for n := range good {
		if _, err := DecodeIntroduction(good[:n]); !errors.Is(err, ErrBadIntroduction) {
			t.Errorf("the first %d of %d bytes: error %v", n, len(good), err)
		}
	}
	if _, err := DecodeIntroduction(append(bytes.Clone(good), 0)); !errors.Is(err, ErrBadIntroduction) {
		t.Errorf("a byte too many: error %v", err)
	}
	long := make([]Member, 2000)
	for n := range long {
		long[n] = Member{uint64(n + 1), "10.0.0.1:7001"}
	}
	for _, row := range []struct {
		change func(*Introduction)
		words  string
	}{
		{func(i *Introduction) { i.Members[1].ID = 1 }, "host 1 follows host 1"},
		{func(i *Introduction) { i.Members[1].Addr = "a\nb" }, "unprintable characters"},
		{func(i *Introduction) { i.Addr = "a\x1b[2J" }, "unprintable characters"},
		{func(i *Introduction) { i.Addr = "\xff" }, "unprintable characters"},
		{func(i *Introduction) { i.Past = make([]uint32, MaxPast+1) }, "1025 earlier lives, want at most 1024"},
		{func(i *Introduction) { i.Members = long }, "2000 hosts takes more than 16384 bytes"},
		{func(i *Introduction) { i.Members[0].Addr = strings.Repeat("x", 70_000) }, "takes more than 16384 bytes"},
	} {
		i := someIntroduction()
		row.change(&i)
		if err := i.Validate(); !errors.Is(err, ErrBadIntroduction) || !strings.Contains(err.Error(), row.words) {
			t.Errorf("have %v, want %q", err, row.words)
		}
		if _, err := DecodeIntroduction(i.Append(nil)); !errors.Is(err, ErrBadIntroduction) {
			t.Errorf("%s: decoded, error %v", row.words, err)
		}
	}
}

func TestListTextIsBounded(t *testing.T) {
	if have, want := ListText(someIntroduction().Members[:2]), "[1 at 10.0.0.1:7001, 2 at 10.0.0.2:7001]"; have != want {
		t.Errorf("have %s, want %s", have, want)
	}
	long := make([]Member, 10_000)
	if text := ListText(long); len(text) > 2*maxListText || !strings.Contains(text, "more") {
		t.Errorf("a list of %d bytes: …%s", len(text), text[len(text)-40:])
	}
}

func TestIncarnationText(t *testing.T) {
	var back Incarnation
	want := Incarnation{0xab, 15: 1}
	text, err := json.Marshal(want)
	if err != nil || string(text) != `"ab000000000000000000000000000001"` {
		t.Fatalf("%s, error %v", text, err)
	}
	if err := json.Unmarshal(text, &back); err != nil || back != want {
		t.Errorf("%v, error %v", back, err)
	}
	for _, bad := range []string{`""`, `"ab"`, `"zz000000000000000000000000000001"`} {
		if err := json.Unmarshal([]byte(bad), &back); err == nil {
			t.Errorf("%s is taken for a directory id", bad)
		}
	}
}

// FuzzDecodeIntroduction: no input panics, and what is accepted encodes to the same bytes.
func FuzzDecodeIntroduction(f *testing.F) {
	f.Add(Introduction{}.Append(nil))
	f.Add(someIntroduction().Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		i, err := DecodeIntroduction(b)
		if err != nil {
			if !errors.Is(err, ErrBadIntroduction) {
				t.Fatalf("error %v is not ErrBadIntroduction", err)
			}
			return
		}
		if !bytes.Equal(i.Append(nil), b) {
			t.Fatalf("%+v is not what came: %x", i, b)
		}
	})
}

// What a directory's lives before this one were is found by their generation.
func TestLifeAt(t *testing.T) {
	i := someIntroduction() // in generation 4
	for generation, want := range map[uint64]uint32{0: 0, 1: 0, 2: 5, 3: 1<<32 - 1, 4: 0, 5: 0, 1 << 63: 0} {
		if have := i.LifeAt(generation); have != want {
			t.Errorf("in generation %d: %d, want %d", generation, have, want)
		}
	}
}

// The oldest lives give way to a long founding list, and to a proof.
func TestFitPast(t *testing.T) {
	for _, members := range []int{0, 900, 1200} {
		i := Introduction{ID: 1, Past: make([]uint32, MaxPast)}
		i.Past[MaxPast-1] = 7
		for id := range members {
			i.Members = append(i.Members, Member{uint64(id + 1), "a:1"})
		}
		i.FitPast()
		i.Proof = bytes.Repeat([]byte{1}, MaxProofBytes)
		if size := len(i.Append(nil)); size > MaxIntroductionBytes && members < 1200 || len(i.Past) > 0 && i.Past[len(i.Past)-1] != 7 {
			t.Errorf("%d members: %d bytes, %d lives", members, size, len(i.Past))
		}
		if full, none := len(i.Past) == MaxPast, len(i.Past) == 0; full != (members == 0) || none != (members == 1200) {
			t.Errorf("%d members leave place for %d lives", members, len(i.Past))
		}
	}
}
