package feed

import (
	"slices"
	"sync/atomic"

	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/internal/lock"
)

const (
	// publicationBytes is what a publication counts besides its data, and batchBytes a batch.
	publicationBytes = 48
	batchBytes       = 128
)

// batch is what one call of the machine has published, at least one publication. It does not change.
type batch struct {
	all    []statemachine.Publication
	bytes  int64
	before uint64 // publications before it that the feed has had
}

func (b *batch) last() statemachine.Bookmark { return b.all[len(b.all)-1].At }

// Feed is the publications of a group.
type Feed struct {
	most int64 // bytes
	wake func()

	waiting atomic.Int64 // subscribers that wait for changed

	// Owned by the lane, or the turn, that calls the machine.
	through statemachine.Bookmark // what was published through here is known

	mu      lock.RWMutex
	batches []batch               // ascending
	floor   statemachine.Bookmark // what was published through here is forgotten, or not known
	bytes   int64
	had     uint64        // publications so far
	changed chan struct{} // closed when there is more
	readers map[*Reader]struct{}
	lost    uint64 // readers that were told that they are behind the floor
}

// New returns a feed that keeps most bytes. wake makes Broadcast follow.
func New(most int64, wake func()) *Feed {
	return &Feed{most: most, wake: wake, changed: make(chan struct{}), readers: map[*Reader]struct{}{}}
}

// Append takes what the machine has published with commands that it has applied, at least one. Commands may
// come again, because the machine was made again from a snapshot: they are known.
func (f *Feed) Append(commands []statemachine.Command) {
	n, bytes := 0, int64(batchBytes)
	for i := range commands {
		for _, data := range commands[i].Published {
			n++
			bytes += publicationBytes + int64(len(data))
		}
	}
	if n > 0 {
		f.append(f.collect(commands, n), bytes)
	}
	f.know(endOf(&commands[len(commands)-1]))
}

// endOf is the bookmark behind what a command publishes.
func endOf(c *statemachine.Command) statemachine.Bookmark {
	b := statemachine.EndOf(c.Index)
	b.Pos = c.Pos
	return b
}

// know notes that everything through a bookmark is known.
func (f *Feed) know(b statemachine.Bookmark) {
	if b.Compare(f.through) > 0 {
		f.through = b
	}
}

// collect returns the publications of commands that are not known yet.
func (f *Feed) collect(commands []statemachine.Command, n int) []statemachine.Publication {
	all := make([]statemachine.Publication, 0, n)
	for i := range commands {
		c := &commands[i]
		if endOf(c).Compare(f.through) <= 0 {
			continue
		}
		for number, data := range c.Published {
			all = append(all, statemachine.Publication{At: statemachine.Bookmark{Index: c.Index, Pos: c.Pos, Number: uint32(number)}, Data: data})
		}
	}
	return all
}

// append adds a batch, forgets the oldest, and wakes those who wait.
func (f *Feed) append(all []statemachine.Publication, bytes int64) {
	if len(all) == 0 {
		return
	}
	f.mu.Lock()
	f.batches = append(f.batches, batch{all, bytes, f.had})
	f.had += uint64(len(all))
	f.bytes += bytes
	f.trim()
	f.mu.Unlock()
	if f.waiting.Load() > 0 {
		f.wake()
	}
}

// trim forgets the oldest batches, and keeps the latest whatever its size. The caller holds mu.
func (f *Feed) trim() {
	for f.bytes > f.most && len(f.batches) > 1 {
		f.floor = f.batches[0].last()
		f.bytes -= f.batches[0].bytes
		f.batches[0] = batch{} // the array may stay
		f.batches = f.batches[1:]
	}
}

// Forget makes a feed that begins behind an entry: what was published through there is not known, if it was
// not published here.
func (f *Feed) Forget(through uint64) {
	f.restore(statemachine.EndOf(through), nil, through)
}

// restore takes over the publications of a snapshot through an entry, whose state the machine has now. floor
// is what they begin behind. A feed that knows more keeps what it has. One that joins on to them gets what it
// lacks, so its subscribers miss nothing.
func (f *Feed) restore(floor statemachine.Bookmark, all []statemachine.Publication, index uint64) {
	end := statemachine.EndOf(index)
	if end.Compare(f.through) <= 0 {
		return
	}
	if floor.Compare(f.through) > 0 {
		f.mu.Lock()
		clear(f.batches)
		f.batches, f.bytes, f.floor = nil, 0, floor
		f.mu.Unlock()
	}
	first, _ := slices.BinarySearchFunc(all, f.through, func(p statemachine.Publication, b statemachine.Bookmark) int {
		if p.At.Compare(b) <= 0 {
			return -1
		}
		return 1
	})
	f.addAll(all[first:])
	f.know(end)
	if f.waiting.Load() > 0 {
		f.wake() // a reader that waits may be behind the floor now
	}
}

// addAll adds publications in batches of a moderate size, so that the oldest can be forgotten.
func (f *Feed) addAll(all []statemachine.Publication) {
	for len(all) > 0 {
		n, bytes := 0, int64(batchBytes)
		for n < len(all) && (n == 0 || bytes < maxRestoredBytes) {
			bytes += publicationBytes + int64(len(all[n].Data))
			n++
		}
		f.append(together(all[:n], bytes), bytes)
		all = all[n:]
	}
}

// together copies publications into an array of their own, so that those of a whole snapshot do not keep one
// another in memory.
func together(all []statemachine.Publication, most int64) []statemachine.Publication {
	copies, data := slices.Clone(all), make([]byte, 0, most)
	for i := range copies {
		data = append(data, copies[i].Data...)
		copies[i].Data = data[len(data)-len(copies[i].Data) : len(data) : len(data)]
	}
	return copies
}

const maxRestoredBytes = 64 << 10

// Measure is what a feed says of itself.
type Measure struct {
	Published   uint64 // in this life
	Bytes       int64  // that are kept
	Subscribers int
	Behind      uint64 // publications that the slowest subscriber has not taken
	Forgotten   uint64 // subscribers that were told that publications are forgotten
}

// Measure looks at all subscribers.
func (f *Feed) Measure() Measure {
	f.mu.RLock()
	defer f.mu.RUnlock()
	m := Measure{Published: f.had, Bytes: f.bytes, Subscribers: len(f.readers), Forgotten: f.lost}
	for r := range f.readers {
		if i, j := f.search(r.At()); i < len(f.batches) {
			m.Behind = max(m.Behind, f.had-f.batches[i].before-uint64(j))
		}
	}
	return m
}

// Last returns the bookmark of the latest publication, or what the feed begins behind.
func (f *Feed) Last() statemachine.Bookmark {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if n := len(f.batches); n > 0 {
		return f.batches[n-1].last()
	}
	return f.floor
}

// search returns the first publication behind a bookmark: its batch, and its place there. The caller
// holds mu.
func (f *Feed) search(after statemachine.Bookmark) (i, j int) {
	i, _ = slices.BinarySearchFunc(f.batches, after, func(b batch, after statemachine.Bookmark) int {
		if b.last().Compare(after) <= 0 {
			return -1
		}
		return 1
	})
	if i == len(f.batches) {
		return i, 0
	}
	j, _ = slices.BinarySearchFunc(f.batches[i].all, after, func(p statemachine.Publication, after statemachine.Bookmark) int {
		if p.At.Compare(after) <= 0 {
			return -1
		}
		return 1
	})
	return i, j
}
