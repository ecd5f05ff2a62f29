package proposals

import "sync/atomic"

// backlogOverhead is what each command counts in a Backlog beside its bytes.
const backlogOverhead = 64

// backlogParts is about how many parts of its bound a Backlog remembers. It is exact to one of them.
const backlogParts = 256

// Backlog is what a leader has put into its log in its term and its own machine has not applied, in bytes.
// A leader takes no further commands while that is more than a bound. So a machine that is slower than the
// log delays the clients, and the log does not run away from it. Commands of earlier terms do not count.
//
// The turn owns it, except for Behind.
type Backlog struct {
	Max int64 // the bound; less than 0: there is none

	term   uint64
	parts  []backlogPart // in the order of the log
	bytes  int64         // of all parts
	behind atomic.Int64  // bytes, when a command was refused because of them
	until  atomic.Uint64 // and their last entry
}

// backlogPart is some consecutive entries.
type backlogPart struct {
	last  uint64 // index
	bytes int64
}

// Add adds commands that were put into the log in a term, of which the last entry has the index.
func (b *Backlog) Add(term, last uint64, commands, bytes int) {
	if b.Max < 0 {
		return
	}
	if term != b.term {
		b.term, b.parts, b.bytes = term, b.parts[:0], 0
	}
	n := int64(bytes) + int64(commands)*backlogOverhead
	b.bytes += n
	if i := len(b.parts) - 1; i >= 0 && b.parts[i].bytes+n <= b.Max/backlogParts {
		b.parts[i] = backlogPart{last, b.parts[i].bytes + n}
		return
	}
	b.parts = append(b.parts, backlogPart{last, n})
}

// IsFull reports whether a leader of a term takes no more commands. applied is the last entry that its
// machine has.
func (b *Backlog) IsFull(term, applied uint64) (full bool) {
	if term != b.term || b.Max < 0 {
		b.behind.Store(0)
		return false
	}
	if b.bytes >= b.Max {
		b.forget(applied)
	}
	full = b.bytes > 0 && b.bytes >= b.Max
	if full {
		b.behind.Store(b.bytes)
		b.until.Store(b.parts[len(b.parts)-1].last)
	} else if b.behind.Load() > 0 {
		b.behind.Store(0)
	}
	return full
}

// forget forgets the parts through an applied entry.
func (b *Backlog) forget(applied uint64) {
	n := 0
	for n < len(b.parts) && b.parts[n].last <= applied {
		b.bytes -= b.parts[n].bytes
		n++
	}
	b.parts = b.parts[:copy(b.parts, b.parts[n:])]
}

// Behind returns how many bytes the machine had still to apply when the latest command was refused because
// of them; 0: none was, or applied is past them. Any goroutine may call it.
func (b *Backlog) Behind(applied uint64) int64 {
	if n := b.behind.Load(); n > 0 && applied < b.until.Load() {
		return n
	}
	return 0
}
