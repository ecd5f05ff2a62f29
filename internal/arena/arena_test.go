package arena

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// panicOf returns what f panics with, and "" if it does not.
func panicOf(f func()) (text string) {
	defer func() {
		if p := recover(); p != nil {
			text = fmt.Sprint(p)
		}
	}()
	f()
	return ""
}

func checkPanic(t *testing.T, what, want string, f func()) {
	t.Helper()
	if have := panicOf(f); !strings.Contains(have, want) {
		t.Errorf("%s: panic %q, want one with %q", what, have, want)
	}
}

func TestLastReleaseGivesBack(t *testing.T) {
	p := New(Options{BlockBytes: 64, IdleBytes: 64, Poison: true})
	f := NewFiller(p)
	data, refs := f.Copy([]byte("command"), nil)
	f.Close()
	r := refs[0]
	r.Retain()
	r.Release()
	if string(data) != "command" {
		t.Fatalf("a block that is held has %q", data)
	}
	if s := p.Stats(); s != (Stats{UsedBytes: 64, Made: 1}) || p.Home() == nil {
		t.Errorf("stats of a block that is held: %+v, %v", s, p.Home())
	}
	r.Release()
	if !IsPoisoned(data) {
		t.Errorf("after the last release the block has %q", data)
	}
	if s := p.Stats(); s != (Stats{IdleBytes: 64, Made: 1}) || p.Home() != nil {
		t.Errorf("stats after the last release: %+v, %v", s, p.Home())
	}
	checkPanic(t, "release twice", "released that is not held", r.Release)
	checkPanic(t, "retain what is not held", "retained that is not held", r.Retain)

	again, refs := f.Copy([]byte("another"), nil)
	if &again[0] != &data[0] {
		t.Error("the block is not reused")
	}
	checkPanic(t, "release of a life before", "life 0 has ended, and the block is in life 1", r.Release)
	f.Close()
	ReleaseAll(refs)

	again[0] = 'x'
	checkPanic(t, "a late write", "was written to after its life 1 had ended", func() { f.Space(1, nil) })
}

func TestKeptBlocksAreNotReused(t *testing.T) {
	p := New(Options{BlockBytes: 16, IdleBytes: 64, Poison: true})
	f := NewFiller(p)
	data, refs := f.Copy([]byte("command"), nil)
	f.Close()
	refs[0].Retain()
	refs[0].Keep()
	refs[0].Release()
	if string(data) != "command" {
		t.Errorf("a block that is kept has %q", data)
	}
	if s := p.Stats(); s != (Stats{Made: 1, Kept: 1}) {
		t.Errorf("stats %+v", s)
	}
	checkPanic(t, "release after keep", "not held", refs[0].Release)
	if f.Space(1, nil); p.Stats().Made != 2 {
		t.Error("a block that is kept is reused")
	}
}

func TestIdleBlocksAreBounded(t *testing.T) {
	p := New(Options{BlockBytes: 10, IdleBytes: 45})
	var refs []Ref
	for range 9 {
		refs = append(refs, p.get())
	}
	ReleaseAll(refs)
	for _, want := range []int64{40, 40, 20, 10, 0} { // the first Trim notes what is there
		if have := p.Stats().IdleBytes; have != want {
			t.Errorf("%d bytes are idle, want %d", have, want)
		}
		p.Trim()
	}
}

func TestFind(t *testing.T) {
	p := New(Options{BlockBytes: 8})
	f := NewFiller(p)
	a, refs := f.Copy([]byte("12345678"), nil)
	b, refs := f.Copy([]byte("1234"), refs)
	large, refs := f.Copy([]byte("123456789"), refs)
	if len(refs) != 2 || Find(refs, a) != refs[0] || Find(refs, a[7:]) != refs[0] || Find(refs, b) != refs[1] {
		t.Errorf("%d blocks for %q and %q", len(refs), a, b)
	}
	for _, data := range [][]byte{nil, {}, large, []byte("12345678")} {
		if r := Find(refs, data); !r.IsZero() {
			t.Errorf("%q is found in a block", data)
		}
	}
}

func TestLoan(t *testing.T) {
	p := New(Options{BlockBytes: 8, IdleBytes: 64, Poison: true})
	f := NewFiller(p)
	shown, refs := f.Copy([]byte("shown"), nil)
	l := NewLoan(p)
	l.Show(refs[0])
	f.Close()
	ReleaseAll(refs)
	space := l.Space(8)
	copy(space, "borrowed")
	if string(shown) != "shown" || string(space) != "borrowed" {
		t.Errorf("a loan has %q and %q", shown, space)
	}
	l.Return()
	if !IsPoisoned(shown) || !IsPoisoned(space) || p.Home() != nil {
		t.Errorf("after its end: %q, %q; %v", shown, space, p.Home())
	}
	space = l.Space(4)
	copy(space, "mine")
	if l.Keep(); string(space) != "mine" || p.Home() != nil {
		t.Errorf("a loan that is kept has %q; %v", space, p.Home())
	}
}

func TestManyHolders(t *testing.T) {
	p := New(Options{BlockBytes: 32, IdleBytes: 1 << 10, Poison: true})
	var mu sync.Mutex
	f := NewFiller(p)
	var all sync.WaitGroup
	for k := range 8 {
		all.Go(func() {
			for i := range 300 {
				want := fmt.Appendf(nil, "%d:%d", k, i)
				mu.Lock()
				data, refs := f.Copy(want, nil)
				mu.Unlock()
				var readers sync.WaitGroup
				for range 3 {
					refs[0].Retain()
					readers.Go(func() {
						if !bytes.Equal(data, want) {
							t.Errorf("have %q, want %q", data, want)
						}
						refs[0].Release()
					})
				}
				readers.Wait()
				ReleaseAll(refs)
			}
		})
	}
	all.Wait()
	f.Close()
	if err := p.Home(); err != nil {
		t.Error(err)
	}
}

// naive is a Pool as one would write it without reuse: each payload has an array, and a block is a number of
// holders.
type naive struct {
	holders []int // by block
	kept    []bool
	payload [][]byte // what was put in, nil when its block has ended
	of      []int    // the block of a payload
}

// TestNaiveTwin does what a draw says to blocks and to their naive twin. What is held always has its payload,
// and what is not is poisoned or was reused.
func TestNaiveTwin(t *testing.T) { rapid.Check(t, checkTwin) }

func FuzzNaiveTwin(f *testing.F) { f.Fuzz(rapid.MakeFuzz(checkTwin)) }

func checkTwin(t *rapid.T) {
	size := rapid.IntRange(1, 24).Draw(t, "block")
	p := New(Options{BlockBytes: size, IdleBytes: size * rapid.IntRange(0, 4).Draw(t, "idle"), Poison: true})
	f, twin := NewFiller(p), &naive{}
	var refs []Ref // by block of the twin; one holder is the filler while it is last
	var held []Ref // each hold of a place, once
	var data [][]byte
	leave := func(block int, kept bool) {
		twin.kept[block] = twin.kept[block] || kept
		if twin.holders[block]--; twin.holders[block] == 0 && !twin.kept[block] {
			for i, of := range twin.of {
				if of == block {
					twin.payload[i] = nil
				}
			}
		}
	}
	closeFiller := func() {
		if k := len(refs) - 1; k >= 0 && !f.at.IsZero() {
			leave(k, false)
		}
		f.Close()
	}
	blockOf := func(r Ref) int {
		for i := range refs {
			if refs[i] == r {
				return i
			}
		}
		t.Fatalf("no block is %+v", r)
		return -1
	}
	t.Repeat(map[string]func(*rapid.T){
		"copy": func(t *rapid.T) {
			want := rapid.SliceOfN(rapid.Byte(), 1, size).Draw(t, "payload")
			was := f.at
			if !was.IsZero() && f.used+len(want) > size {
				closeFiller()
			}
			own, in := f.Copy(want, nil)
			if f.at != was {
				refs, twin.holders, twin.kept = append(refs, f.at), append(twin.holders, 1), append(twin.kept, false)
			}
			if len(in) != 1 || in[0] != f.at {
				t.Fatalf("a payload is in %d blocks", len(in))
			}
			twin.holders[len(refs)-1]++
			held = append(held, in[0])
			data, twin.payload, twin.of = append(data, own), append(twin.payload, want), append(twin.of, len(refs)-1)
		},
		"retain": func(t *rapid.T) {
			if len(held) > 0 {
				r := rapid.SampledFrom(held).Draw(t, "block")
				r.Retain()
				twin.holders[blockOf(r)]++
				held = append(held, r)
			}
		},
		"leave": func(t *rapid.T) {
			if len(held) > 0 {
				i, kept := rapid.IntRange(0, len(held)-1).Draw(t, "hold"), rapid.IntRange(0, 5).Draw(t, "kept") == 0
				r := held[i]
				held = append(held[:i], held[i+1:]...)
				if leave(blockOf(r), kept); kept {
					r.Keep()
				} else {
					r.Release()
				}
			}
		},
		"leave what is not held": func(t *rapid.T) {
			for i := range refs {
				if twin.holders[i] == 0 && panicOf(refs[i].Release) == "" {
					t.Fatalf("block %d is released without a holder", i)
				}
			}
		},
		"close": func(*rapid.T) { closeFiller() },
		"trim":  func(*rapid.T) { p.Trim() },
		"": func(t *rapid.T) {
			used := int64(0)
			for _, n := range twin.holders {
				used += int64(min(n, 1))
			}
			if s := p.Stats(); s.UsedBytes != used*int64(size) || s.IdleBytes > int64(p.o.IdleBytes) {
				t.Fatalf("%+v, want %d blocks of %d bytes in use", s, used, size)
			}
			for i, want := range twin.payload {
				if want != nil && !bytes.Equal(data[i], want) {
					t.Fatalf("payload %d is %x, want %x", i, data[i], want)
				}
			}
		},
	})
}
