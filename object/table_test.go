package object

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// twin is the table as the rules say it, with nothing that makes it fast: it looks at every set each time.
type twin struct {
	now time.Duration
	all []Set
}

func (w *twin) advance(now time.Duration) (gone []ID) {
	w.now = max(w.now, now)
	w.all = slices.DeleteFunc(w.all, func(s Set) bool {
		if !s.Kept && s.Expires <= w.now {
			gone = append(gone, s.ID)
			return true
		}
		return false
	})
	slices.SortFunc(gone, func(a, b ID) int { return bytes.Compare(a[:], b[:]) })
	return gone
}

func (w *twin) find(id ID) *Set {
	for i := range w.all {
		if w.all[i].ID == id {
			return &w.all[i]
		}
	}
	return nil
}

func (w *twin) contents() (n int64) {
	for _, s := range w.all {
		n += s.Bytes
	}
	return n
}

// Tables do what their naive twin does, and their forms are those of equal tables, whatever the order.
func TestTableIsItsTwin(t *testing.T) {
	o := Options{MaxSets: 6, MaxBytes: 1000}
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		table, w := New(o), &twin{}
		now := time.Duration(0)
		for index := uint64(1); index < 200; index++ {
			if rng.IntN(3) == 0 {
				now += time.Duration(rng.Int64N(int64(3 * time.Second)))
				at := now
				if rng.IntN(4) == 0 {
					at -= time.Duration(rng.Int64N(int64(time.Second)))
				}
				var gone []ID
				for _, g := range table.Advance(index, at) {
					if gone = append(gone, g.ID); g.Index != index {
						t.Fatalf("seed %d: %v has gone at entry %d, want %d", seed, g.ID, g.Index, index)
					}
				}
				if want := w.advance(at); !slices.Equal(gone, want) {
					t.Fatalf("seed %d, entry %d: %v have gone, want %v", seed, index, gone, want)
				}
			}
			id := ID{byte(rng.IntN(10))} // 0 is no id
			s := w.find(id)
			switch rng.IntN(5) {
			case 0:
				open := Opening{ID: id, Bytes: rng.Int64N(400), Manifest: 1, Uploader: 1, Life: MinLife + time.Duration(rng.Int64N(int64(4*time.Second)))}
				may := !id.IsZero() && s == nil && len(w.all) < o.MaxSets && w.contents()+open.Bytes <= o.MaxBytes
				if err := table.Open(index, open); (err == nil) != may {
					t.Fatalf("seed %d, entry %d: open %v: %v", seed, index, id, err)
				}
				if may {
					w.all = append(w.all, Set{ID: id, Bytes: open.Bytes, Manifest: 1, Uploader: 1, Opened: index, Life: open.Life, Expires: w.now + open.Life})
				}
			case 1:
				h := Holding{ID: id, Holders: []Holder{{ID: 1}, {ID: 2}}[:1+rng.IntN(2)]}
				may := s != nil && len(h.Holders) == 2
				if err := table.Hold(index, h, func(all []Holder) bool { return len(all) == 2 }); (err == nil) != may {
					t.Fatalf("seed %d, entry %d: hold %v: %v", seed, index, id, err)
				}
				if may {
					s.Held, s.Holders = index, h.Holders
				}
			case 2:
				have, err := table.Name(id)
				if may := s != nil && s.Held > 0; (err == nil) != may || may && have.Opened != s.Opened {
					t.Fatalf("seed %d, entry %d: name %v: %+v, %v", seed, index, id, have, err)
				}
			case 3:
				may := s != nil && s.Held > 0
				if err := table.Keep(id); (err == nil) != may {
					t.Fatalf("seed %d, entry %d: keep %v: %v", seed, index, id, err)
				}
				if may {
					s.Kept, s.Expires = true, 0
				}
			case 4:
				if err := table.Release(id); (err == nil) != (s != nil) {
					t.Fatalf("seed %d, entry %d: release %v: %v", seed, index, id, err)
				}
				if s != nil && s.Kept {
					s.Kept, s.Expires = false, w.now+s.Life
				}
			}
			if sets, contents := table.Len(); sets != len(w.all) || contents != w.contents() {
				t.Fatalf("seed %d, entry %d: %d sets with %d bytes, want %d with %d", seed, index, sets, contents, len(w.all), w.contents())
			}
			if index%20 == 0 {
				form := table.AppendTo(nil)
				read, err := Decode(form, o)
				if err != nil || !bytes.Equal(read.AppendTo(nil), form) {
					t.Fatalf("seed %d, entry %d: the form is read as another table: %v", seed, index, err)
				}
				for i, s := range read.All() {
					if s.ID != w.all[i].ID || s.Expires != w.all[i].Expires || s.Held != w.all[i].Held || s.Kept != w.all[i].Kept {
						t.Fatalf("seed %d, entry %d: set %+v, want %+v", seed, index, s, w.all[i])
					}
				}
				if rng.IntN(2) == 0 {
					table = read
				}
			}
		}
	}
}

// A command that names a set is refused before a quorum holds it, after it has expired, and not in between.
func TestOnlyHeldSetsCanBeNamed(t *testing.T) {
	table := New(Options{})
	id := ID{1}
	yes := func([]Holder) bool { return true }
	if err := table.Open(5, Opening{ID: id, Bytes: 9, Manifest: 1, Uploader: 2, Life: time.Minute}); err != nil {
		t.Fatal(err)
	}
	again := Opening{ID: id, Bytes: 9, Manifest: 1, Uploader: 2, Life: time.Minute}
	if err := table.Open(6, again); err != nil {
		t.Errorf("the same entry once more: %v", err)
	}
	if again.Bytes++; !errors.Is(table.Open(6, again), ErrRefused) {
		t.Error("another set is opened under the same id")
	}
	if _, err := table.Name(id); !errors.Is(err, ErrNotHeld) || !strings.Contains(err.Error(), "opened by entry 5") {
		t.Errorf("before it is held: %v", err)
	}
	if err := table.Hold(6, Holding{ID: id, Holders: []Holder{{ID: 1}}}, func([]Holder) bool { return false }); !errors.Is(err, ErrNotHeld) {
		t.Errorf("holders that are no quorum: %v", err)
	}
	if err := table.Hold(7, Holding{ID: id, Holders: []Holder{{ID: 1}, {ID: 2}}}, yes); err != nil {
		t.Fatal(err)
	}
	if s, err := table.Name(id); err != nil || s.Held != 7 {
		t.Errorf("%+v, %v", s, err)
	}
	if err := table.Keep(id); err != nil {
		t.Fatal(err)
	}
	if gone := table.Advance(8, time.Hour); gone != nil {
		t.Errorf("%v have gone, and are kept", gone)
	}
	if err := table.Release(id); err != nil {
		t.Fatal(err)
	}
	if gone := table.Advance(9, time.Hour+time.Minute-1); gone != nil {
		t.Errorf("%v have gone before their life has passed", gone)
	}
	if gone := table.Advance(10, time.Hour+time.Minute); !slices.Equal(gone, []Gone{{id, 10}}) {
		t.Errorf("%v have gone", gone)
	}
	if _, err := table.Name(id); !errors.Is(err, ErrUnknown) {
		t.Errorf("after it has expired: %v", err)
	}
}

// Entries and tables that come from others are read as they were written, or refused with a sentence.
func TestEntriesAreCanonical(t *testing.T) {
	open := Opening{ID: ID{1}, Bytes: MaxBytes, Hash: [32]byte{2}, Manifest: MaxManifest, Uploader: math.MaxUint64, Life: MaxLife}
	if have, err := DecodeOpen(open.Encode()); err != nil || have != open {
		t.Errorf("%+v, %v", have, err)
	}
	hold := Holding{ID: ID{1}, Holders: []Holder{{1, [16]byte{1}}, {math.MaxUint64, [16]byte{2}}}}
	if have, err := DecodeHold(hold.Encode()); err != nil || have.ID != hold.ID || !slices.Equal(have.Holders, hold.Holders) {
		t.Errorf("%+v, %v", have, err)
	}
	for name, wrong := range map[string]Opening{
		"no id": {Bytes: 1, Manifest: 1, Uploader: 1, Life: MinLife}, "too large": {ID: ID{1}, Bytes: MaxBytes + 1, Manifest: 1, Uploader: 1, Life: MinLife},
		"no life": {ID: ID{1}, Manifest: 1, Uploader: 1}, "no uploader": {ID: ID{1}, Manifest: 1, Life: MinLife}, "no manifest": {ID: ID{1}, Uploader: 1, Life: MinLife}, "too long": {ID: ID{1}, Manifest: 1, Uploader: 1, Life: MaxLife + 1},
	} {
		if _, err := DecodeOpen(wrong.Encode()); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
		if err := New(Options{}).Open(1, wrong); !errors.Is(err, ErrRefused) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, wrong := range map[string]Holding{
		"no holder": {ID: ID{1}}, "twice": {ID: ID{1}, Holders: []Holder{{ID: 2}, {ID: 2}}}, "without an id": {ID: ID{1}, Holders: []Holder{{}}},
	} {
		if _, err := DecodeHold(wrong.Encode()); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Commands are read as they were written.
func TestCommandsAreCanonical(t *testing.T) {
	for _, names := range [][]ID{nil, {{1}}, {{1}, {2}, {3}}} {
		data := append(AppendHead(nil, names), "the command"...)
		c, err := DecodeCommand(data)
		if err != nil || string(c.Data) != "the command" || !slices.Equal(c.Names, names) || c.Opening != nil || c.Holding != nil || c.IsOfHost() {
			t.Errorf("%v: %+v, %v", names, c, err)
		}
	}
	open := Opening{ID: ID{1}, Bytes: 9, Manifest: 1, Uploader: 2, Life: time.Minute}
	if c, err := DecodeCommand(AppendOpening(nil, open)); err != nil || *c.Opening != open {
		t.Errorf("%+v, %v", c, err)
	}
	hold := Holding{ID: ID{1}, Holders: []Holder{{ID: 1}}}
	if c, err := DecodeCommand(AppendHolding(nil, hold)); err != nil || c.Holding.ID != hold.ID {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err := DecodeCommand(AppendPass(nil)); err != nil || !c.Passes || !c.IsOfHost() {
		t.Errorf("%+v, %v", c, err)
	}
	for name, data := range map[string][]byte{
		"time with more": {kindPass, 1}, "nothing": nil, "another kind": {9}, "no names": {kindNames, 0}, "cut off": AppendHead(nil, []ID{{1}})[:10],
		"one twice": AppendHead(nil, []ID{{1}, {1}}), "too many": AppendHead(nil, make([]ID, MaxNames+1)), "an open that is cut off": {kindOpen, 1},
	} {
		if _, err := DecodeCommand(data); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	table := New(Options{})
	_ = table.Open(3, Opening{ID: ID{1}, Bytes: 9, Manifest: 1, Uploader: 2, Life: time.Minute})
	_ = table.Hold(4, Holding{ID: ID{1}, Holders: []Holder{{ID: 1}, {ID: 2}}}, func([]Holder) bool { return true })
	_ = table.Open(5, Opening{ID: ID{2}, Bytes: 10, Manifest: 1, Uploader: 1, Life: time.Hour})
	f.Add(table.AppendTo(nil))
	_ = table.Keep(ID{1})
	f.Add(table.AppendTo(nil))
	open := Opening{ID: ID{1}, Bytes: 9, Manifest: 1, Uploader: 2, Life: time.Minute}
	f.Add(open.Encode())
	hold := Holding{ID: ID{1}, Holders: []Holder{{ID: 1}, {ID: 2}}}
	f.Add(hold.Encode())
	f.Fuzz(func(t *testing.T, data []byte) {
		if read, err := Decode(data, Options{}); err == nil && !bytes.Equal(read.AppendTo(nil), data) {
			t.Errorf("a table is read from what it does not write: %x", data)
		}
		if o, err := DecodeOpen(data); err == nil && !bytes.Equal(o.Encode(), data) {
			t.Errorf("an entry open is read from what it does not write: %x", data)
		}
		if c, err := DecodeCommand(data); err == nil && !c.IsOfHost() && !bytes.Equal(append(AppendHead(nil, c.Names), c.Data...), data) {
			t.Errorf("a command is read from what does not write it: %x", data)
		}
		if h, err := DecodeHold(data); err == nil && !bytes.Equal(h.Encode(), data) {
			t.Errorf("an entry hold is read from what it does not write: %x", data)
		}
	})
}
