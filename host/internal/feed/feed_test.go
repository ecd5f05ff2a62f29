package feed

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/millrace/millrace/host/statemachine"
	"pgregory.net/rapid"
)

// applied makes commands of n entries. Each publishes as many as its index says.
func applied(from, n uint64) (commands []statemachine.Command) {
	for index := from; index < from+n; index++ {
		for pos := range uint32(index % 3) {
			commands = append(commands, statemachine.Command{Index: index, Pos: pos, Published: publishedBy(index, pos)})
		}
		commands = append(commands, statemachine.Command{Index: index, Pos: uint32(index % 3)})
	}
	return commands
}

func publishedBy(index uint64, pos uint32) (all [][]byte) {
	for n := range index % 4 {
		all = append(all, fmt.Appendf(nil, "%d.%d.%d", index, pos, n))
	}
	return all
}

// twin is all that was ever published, and what a feed knows of it.
type twin struct {
	all     []statemachine.Publication
	through uint64 // the last entry
}

func (w *twin) append(commands []statemachine.Command) {
	for _, c := range commands {
		for n, data := range c.Published {
			w.all = append(w.all, statemachine.Publication{At: statemachine.Bookmark{Index: c.Index, Pos: c.Pos, Number: uint32(n)}, Data: data})
		}
	}
}

// Members apply, begin from snapshots of others, forget and begin again, beside the list of all publications.
// Each subscriber gets the next one of the list, or hears from where the feed goes on.
func TestFeedAgainstItsTwin(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		const members = 3
		var world twin
		most := rapid.SampledFrom([]int64{1, 400, 2000, 1 << 20}).Draw(rt, "most")
		open := func() *Feed { return New(most, func() {}) }
		var feeds [members]*Feed
		var through [members]uint64
		type subscriber struct {
			after statemachine.Bookmark
			next  int
		}
		var users [4]subscriber
		for i := range feeds {
			feeds[i] = open()
		}
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			m := rapid.IntRange(0, members-1).Draw(rt, "member")
			switch rapid.IntRange(0, 5).Draw(rt, "step") {
			case 0, 1: // applies
				n := rapid.Uint64Range(1, 9).Draw(rt, "entries")
				commands := applied(through[m]+1, n)
				if end := through[m] + n; end > world.through {
					world.append(applied(world.through+1, end-world.through))
					world.through = end
				}
				feeds[m].Append(commands)
				through[m] += n
			case 2: // begins from the snapshot of another member
				from := rapid.IntRange(0, members-1).Draw(rt, "from")
				if through[from] <= through[m] && rapid.Bool().Draw(rt, "keeps") {
					continue
				}
				var form []byte
				if v := feeds[from].Capture(); v != nil {
					form = v.Form()
				}
				if rapid.Bool().Draw(rt, "starts") || through[from] < through[m] {
					feeds[m] = open()
				}
				c, err := Read(form, through[from])
				if err != nil {
					rt.Fatal(err)
				}
				feeds[m].Restore(c)
				through[m] = through[from]
			case 3: // a machine on disk starts again
				feeds[m] = open()
				feeds[m].Forget(through[m])
			case 4: // commands come again
				if through[m] > 0 {
					at := rapid.Uint64Range(1, through[m]).Draw(rt, "again from")
					feeds[m].Append(applied(at, through[m]+1-at))
				}
			default:
				u := &users[rapid.IntRange(0, len(users)-1).Draw(rt, "subscriber")]
				r := feeds[m].Subscribe(u.after)
				for {
					all, _, err := r.Poll()
					var f *statemachine.ForgottenError
					if errors.As(err, &f) {
						if f.First.Compare(u.after) <= 0 || f.After != u.after {
							rt.Fatalf("%v", f)
						}
						u.after = f.First
						for u.next < len(world.all) && world.all[u.next].At.Compare(u.after) <= 0 {
							u.next++
						}
						break
					}
					for _, p := range all {
						if want := world.all[u.next]; p.At != want.At || !bytes.Equal(p.Data, want.Data) {
							rt.Fatalf("member %d, through %d: got %v, want %v", m, through[m], p.At, want.At)
						}
						u.after, u.next = p.At, u.next+1
					}
					if len(all) == 0 {
						if u.next < len(world.all) && world.all[u.next].At.Index <= through[m] {
							rt.Fatalf("member %d, through %d: nothing after %v, and %v follows", m, through[m], u.after, world.all[u.next].At)
						}
						break
					}
				}
				r.Close()
			}
			if bytes := feeds[m].Measure().Bytes; bytes > most && len(feeds[m].batches) > 1 {
				rt.Fatalf("%d bytes, at most %d", bytes, most)
			}
		}
	})
}

// A subscriber that waits is woken for what comes, and for nothing else. It holds nothing of the feed.
func TestReadersAreWokenOnce(t *testing.T) {
	wakes := 0
	f := New(1<<10, func() { wakes++ })
	f.Append(applied(1, 3))
	if wakes != 0 {
		t.Fatalf("%d wakes without a reader that waits", wakes)
	}
	r := f.Subscribe(statemachine.EndOf(3))
	defer r.Close()
	end := r.Await()
	all, changed, err := r.Poll()
	if len(all) > 0 || err != nil {
		t.Fatal(all, err)
	}
	f.Append(applied(4, 4))
	select {
	case <-changed:
		t.Fatal("readers are woken where the machine is called")
	default:
	}
	f.Broadcast()
	<-changed
	if all, _, err = r.Poll(); len(all) == 0 || err != nil || wakes != 1 {
		t.Fatal(all, err, wakes)
	}
	if end(); f.waiting.Load() != 0 {
		t.Error("a reader counts as one that waits")
	}
	m := f.Measure()
	if m.Subscribers != 1 || m.Behind != 0 || m.Published == 0 {
		t.Errorf("%+v", m)
	}
	f.Append(applied(8, 200))
	if m := f.Measure(); m.Behind == 0 || m.Bytes > 1<<20 {
		t.Errorf("%+v", m)
	}
}

// Any bytes are refused, or are the publications of a snapshot, whose form says the same.
func FuzzForm(f *testing.F) {
	feed := New(1<<20, func() {})
	feed.Append(applied(1, 9))
	f.Add(feed.Capture().Form())
	f.Add([]byte{1, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, form []byte) {
		c, err := Read(form, 1<<20)
		if err != nil || form == nil {
			return
		}
		again := New(1<<30, func() {})
		again.Restore(c)
		v := again.Capture()
		if v == nil {
			if len(c.all) > 0 {
				t.Fatal("publications are lost")
			}
			return
		}
		d, err := Read(v.Form(), 1<<20)
		if err != nil || !slices.EqualFunc(c.all, d.all, func(a, b statemachine.Publication) bool { return a.At == b.At && bytes.Equal(a.Data, b.Data) }) {
			t.Fatalf("%v, %v: %d and %d publications", err, d.floor, len(c.all), len(d.all))
		}
	})
}

// A form that is cut anywhere is refused.
func TestFormThatIsCut(t *testing.T) {
	f := New(1<<20, func() {})
	f.Append(applied(1, 9))
	form := f.Capture().Form()
	for n := range form {
		if _, err := Read(form[:n:n], 9); n > 0 && !errors.Is(err, ErrBadForm) {
			t.Fatalf("%d of %d bytes: %v", n, len(form), err)
		}
	}
	if _, err := Read(form, 5); !errors.Is(err, ErrBadForm) {
		t.Errorf("publications behind the snapshot: %v", err)
	}
}
