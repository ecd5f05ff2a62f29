package snapshots

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/millrace/millrace/internal/lock"
)

// Growth is how the log of a group grows, in bytes. A compaction leaves what the policy keeps behind a
// snapshot (Policy.Kept), and what a transfer needs (Pin).
//
// The log knows no sizes of entries. So the apply lane notes, now and then, how many bytes it has passed
// (marks). After a start they are guessed: the entries before the snapshot count what they counted on average
// when it was taken.
//
// It is safe for concurrent use, except where noted. Its zero value must be told the distance of its marks
// (Space) before it is used.
type Growth struct {
	applied atomic.Int64 // bytes of the log through the last applied entry, from an arbitrary one on
	next    int64        // bytes at which the next mark is due; owned by the apply lane

	mu      lock.Mutex // never held while the disk works
	marks   []logMark
	spacing int64 // bytes between two marks
	pins    []*logPin
}

// logMark says how many bytes the log has through index, as Growth.applied counts.
type logMark struct {
	index uint64
	bytes int64
}

const (
	maxMarks   = 128
	minSpacing = 64 // bytes between two marks, at least
	maxSpacing = 256 << 10
)

// Applied returns how many bytes are applied, counted from an arbitrary entry on.
func (g *Growth) Applied() int64 { return g.applied.Load() }

// Add counts bytes that are not those of entries. They belong to the entry that is applied next.
func (g *Growth) Add(bytes int64) { g.applied.Add(bytes) }

// Record counts the bytes of applied entries, of which the last has the index, and returns what is applied
// now. Only the apply lane of the group calls it.
func (g *Growth) Record(last uint64, bytes int64) (applied int64) {
	applied = g.applied.Add(bytes)
	if applied >= g.next {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.mark(last, applied)
		g.next = applied + g.spacing
	}
	return applied
}

// mark notes where a position of the log is in bytes, if the last mark is far enough away. The caller holds
// the lock.
func (g *Growth) mark(index uint64, bytes int64) {
	if n := len(g.marks); n > 0 && (index <= g.marks[n-1].index || bytes-g.marks[n-1].bytes < g.spacing) {
		return
	}
	if len(g.marks) == maxMarks { // keep every second one, and the first, behind which the log was compacted
		for i := range maxMarks / 2 {
			g.marks[i] = g.marks[2*i]
		}
		g.marks = g.marks[:maxMarks/2]
		g.spacing = max(2*g.spacing, minSpacing)
	}
	g.marks = append(g.marks, logMark{index, bytes})
}

// Space sets how far marks are apart at first. interval is by how many bytes the log grows between two
// snapshots.
func (g *Growth) Space(interval int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.spacing = max(minSpacing, min(maxSpacing, interval/16))
}

// Guess notes marks for entries that were applied in an earlier life: those of (from, through], of perEntry
// bytes each.
func (g *Growth) Guess(from, through uint64, perEntry int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	const steps = 16
	for i := uint64(0); i <= steps; i++ {
		at := from + (through-from)/steps*i + (through-from)%steps*i/steps
		g.mark(at, int64(at-from)*perEntry)
	}
	g.applied.Store(int64(through-from) * perEntry)
}

// PerEntry returns what an entry counts on average, as far as the marks go back.
func (g *Growth) PerEntry() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	if n := len(g.marks); n > 1 && g.marks[n-1].index > g.marks[0].index {
		return (g.marks[n-1].bytes - g.marks[0].bytes) / int64(g.marks[n-1].index-g.marks[0].index)
	}
	return 0
}

// Compactable returns through which index the log may be compacted behind a snapshot if kept bytes before its
// index stay; 0: not at all. It forgets the marks before that.
func (g *Growth) Compactable(snapshot uint64, kept int64) (through uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := g.bytesAt(snapshot)
	first := 0
	for i, m := range g.marks {
		if m.index > snapshot || at-m.bytes < kept {
			break
		}
		through, first = m.index, i
	}
	g.marks = slices.Delete(g.marks, 0, first)
	for _, pin := range g.pins {
		through = min(through, pin.after)
	}
	return through
}

// Since returns how much the log has grown behind an index, in bytes with overhead, as far as it is applied.
func (g *Growth) Since(index uint64) int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.applied.Load() - g.bytesAt(index)
}

// bytesAt returns how many bytes the log has through an index, about: as many as through the mark before it.
// The caller holds the lock.
func (g *Growth) bytesAt(index uint64) (bytes int64) {
	bytes = g.applied.Load()
	for i := len(g.marks) - 1; i >= 0; i-- {
		if m := g.marks[i]; m.index <= index {
			return m.bytes
		}
	}
	return bytes
}

// logPin keeps the entries above after in the log.
type logPin struct{ after uint64 }

// Pin keeps the entries above after in the log, as far as they are there, until release is called, which
// may be called repeatedly.
func (g *Growth) Pin(after uint64) (release func()) {
	pin := &logPin{after}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pins = append(g.pins, pin)
	return sync.OnceFunc(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.pins = slices.DeleteFunc(g.pins, func(other *logPin) bool { return other == pin })
	})
}
