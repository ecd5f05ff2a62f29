package journal

import (
	"github.com/millrace/millrace/wal"
)

// Append implements host.Log. It decides first, with states that no reader has; then it stores the writes;
// then readers see them.
func (l *Log) Append(writes []wal.Write) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	if len(writes) == 0 {
		return nil
	}
	p, err := l.plan(writes)
	if err != nil {
		return err
	}
	if grown := p.bytes - l.bytes; p.entries > 0 && grown > 0 && p.bytes > l.o.MaxBytes {
		return l.tooMuch(grown)
	}
	bytes, err := l.store.Write(p.changes)
	if err != nil {
		return l.fail("write", err)
	}
	l.show(p)
	if l.o.Wrote != nil {
		l.o.Wrote(bytes)
	}
	l.stats.appends.Add(1)
	l.stats.entries.Add(uint64(p.entries))
	l.stats.bytes.Add(uint64(bytes))
	l.pending.Add(int64(bytes))
	n := l.written.Add(1)
	if l.o.WriteSyncs {
		l.count(0, n, int64(bytes))
	}
	return nil
}

// planned is what an append does if its writes are stored.
type planned struct {
	changes []Change
	after   map[*Group]*state
	entries int
	bytes   int64 // of all groups, afterwards
}

// plan checks each write against what the writes before it leave.
func (l *Log) plan(writes []wal.Write) (p planned, err error) {
	p = planned{after: make(map[*Group]*state, len(writes)), bytes: l.bytes}
	for _, w := range writes {
		g := l.group(w.Group)
		before := p.after[g]
		if before == nil {
			before = g.state.Load()
		}
		next, reason := before.after(w)
		if reason != "" {
			invalid := &wal.InvalidWriteError{Group: w.Group, Reason: reason}
			if before.deleted && !w.Delete {
				invalid.Err = wal.ErrDeleted
			}
			return p, invalid
		}
		p.changes = append(p.changes, change(w, before, &next))
		p.entries += len(w.Entries)
		p.bytes += next.bytes - before.bytes
		p.after[g] = &next
	}
	return p, nil
}

// show shows the states to readers, each group at one moment.
func (l *Log) show(p planned) {
	for g, s := range p.after {
		g.state.Store(s)
	}
	l.bytes = p.bytes
}
