package mvcc

import (
	"bytes"
	"context"

	"github.com/cespare/xxhash/v2"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/millrace/millrace/server/command"
	"github.com/millrace/millrace/server/engine"
	"github.com/millrace/millrace/server/feed"
)

// Pass is one call of Apply: several commands whose changes become one batch of the engine. What they read,
// they read through an overlay of what the pass has changed so far.
//
// Rejected: to write a part of the batch before a command that reads a range. Commands with one index of the
// log must reach the disk together, or a crash between them applies some of them twice.
type Pass struct {
	s       *Store
	over    *overlay
	reader  engine.Reader
	batch   engine.Batch
	meta    Meta
	watched bool // events are wanted
	events  []feed.Batch
	leases  func(id int64) bool // is there such a lease
	buf     []byte
	prefix  []byte
}

// Begin begins a pass. leases says which leases there are, and watched whether its events are wanted.
func (s *Store) Begin(leases func(id int64) bool, watched bool) *Pass {
	return &Pass{s: s, watched: watched, over: newOverlay(), reader: s.eng.Read(), batch: s.eng.Batch(), meta: s.Visible(), leases: leases}
}

// Batch returns the batch, for what the caller adds.
func (p *Pass) Batch() engine.Batch { return p.batch }

// Meta returns the state behind the last command.
func (p *Pass) Meta() Meta { return p.meta }

// Mix chains numbers of a command that changes no keys into the digest.
func (p *Pass) Mix(numbers ...uint64) { p.meta.mix(numbers...) }

// Commit writes the batch, and makes the pass visible. It returns the events of the pass if they are wanted.
func (p *Pass) Commit() ([]feed.Batch, error) {
	if err := p.s.eng.Write(p.batch); err != nil {
		return nil, err
	}
	for _, v := range p.over.order {
		p.s.heads.set(string(v.key), v.Head)
		p.s.values.change(v.key, v.Main)
	}
	compacted := p.meta.Compacted != p.s.Visible().Compacted
	p.s.visible.Store(&p.meta)
	if compacted {
		p.s.wakeSweep()
	}
	return p.events, nil
}

// Close releases a pass, committed or not.
func (p *Pass) Close() {
	p.reader.Close()
	p.batch.Close()
}

// tx is one command of a pass. Its changes have the revision behind that of the pass, if there are any.
type tx struct {
	p    *Pass
	from int // place of its first version in the overlay
}

func (p *Pass) begin() tx { return tx{p: p, from: len(p.over.order)} }

func (t tx) changed() bool { return len(t.p.over.order) > t.from }

// revision returns the revision that the command's reads see and answers tell.
func (t tx) revision() int64 {
	if t.changed() {
		return t.p.meta.Revision + 1
	}
	return t.p.meta.Revision
}

// view returns what the command sees now.
func (t tx) view() *view {
	m := t.p.meta
	m.Revision = t.revision()
	return &view{r: t.p.reader, over: t.p.over, meta: m}
}

// head returns the newest version of a key.
func (t tx) head(key []byte) (Head, error) {
	if v := t.p.over.newest(key); v != nil {
		return v.Head, nil
	}
	if h, ok := t.p.s.heads.get(key); ok {
		return h, nil
	}
	h, err := newest(t.p.reader, &t.p.prefix, key)
	if err == nil {
		t.p.s.heads.set(string(key), h)
	}
	return h, err
}

// current returns a key as it is now, with its value.
func (t tx) current(key []byte) (item, bool, error) {
	v := t.view()
	return v.get(key, v.meta.Revision)
}

// put sets a key. The key and the value are kept.
func (t tx) put(key, value []byte, lease int64) error {
	h, err := t.head(key)
	if err != nil {
		return err
	}
	n := t.next()
	n.Create, n.Version, n.Lease, n.Bytes = n.Main, 1, lease, versionBytes(key, value)
	if h.lives() {
		n.Create, n.Version = h.Create, h.Version+1
	}
	t.p.over.add(&version{key: key, value: value, Head: n, before: h})
	return nil
}

// remove deletes a key that lives, as h says.
func (t tx) remove(key []byte, h Head) {
	n := t.next()
	n.Deleted, n.Bytes = true, versionBytes(key, nil)
	t.p.over.add(&version{key: key, Head: n, before: h})
}

// next returns a head with the revision of the command's next change.
func (t tx) next() Head {
	return Head{Main: t.p.meta.Revision + 1, Sub: uint32(len(t.p.over.order) - t.from)}
}

// removeRange deletes the keys of a range, and returns them as they were if they are wanted.
func (t tx) removeRange(key, end []byte, want bool) (n int64, were []*mvccpb.KeyValue, err error) {
	v := t.view()
	if _, _, one := bounds(key, end); one {
		h, err := t.head(key)
		if err != nil || !h.lives() {
			return 0, nil, err
		}
		if !want {
			t.remove(key, h)
			return 1, nil, nil
		}
	}
	var found []item
	err = v.scan(context.Background(), key, end, v.meta.Revision, func(i item) (bool, error) {
		found = append(found, item{key: bytes.Clone(i.key), Head: i.Head})
		if want {
			were = append(were, i.keyValue())
		}
		return true, nil
	})
	if err != nil {
		return 0, nil, err
	}
	for _, i := range found {
		t.remove(i.key, i.Head)
	}
	return int64(len(found)), were, nil
}

// refuse takes back what the command has changed.
func (t tx) refuse() { t.p.over.undo(t.from) }

// finish makes the changes of the command part of the batch, of the state and of the events.
func (t tx) finish() {
	p := t.p
	changes := p.over.order[t.from:]
	if len(changes) == 0 {
		return
	}
	for _, v := range changes {
		p.write(v)
	}
	p.meta.Revision++
	if !p.watched {
		return
	}
	b := feed.Batch{Revision: p.meta.Revision, Events: make([]feed.Event, 0, len(changes))}
	for _, v := range changes {
		b.Events = append(b.Events, eventOf(v))
	}
	p.events = append(p.events, b)
}

// write adds a version to the batch and to the sums.
func (p *Pass) write(v *version) {
	m, before := &p.meta, v.before
	v.dead = m.Dead
	if before.lives() {
		m.Live -= before.Bytes
		m.Dead += before.Bytes
	}
	kind := uint64(kindPut)
	if v.Deleted {
		kind = kindDeleted
		m.Dead += v.Bytes
	} else {
		m.Live += v.Bytes
	}
	m.mix(uint64(v.Main), uint64(v.Sub), kind, uint64(v.Lease), xxhash.Sum64(v.key), xxhash.Sum64(v.value))
	p.prefix = keyPrefix(p.prefix[:0], v.key)
	p.buf = appendVersion(p.buf[:0], v.Head, v.value)
	p.batch.Set(engine.Key{Prefix: p.prefix, Main: v.Main, Sub: v.Sub}, p.buf)
	p.prefix = historyPrefix(p.prefix[:0], v.Main, v.Sub)
	c := change{key: v.key, deleted: v.Deleted, dead: v.dead}
	if before.lives() { // a tombstone goes with its own change
		c.beforeMain, c.beforeSub = before.Main, before.Sub
	}
	p.buf = c.append(p.buf[:0])
	p.batch.Set(engine.Key{Prefix: p.prefix}, p.buf)
	if before.lives() && before.Lease != 0 && (v.Deleted || before.Lease != v.Lease) {
		p.batch.Delete(engine.Key{Prefix: attachment(p.prefix[:0], before.Lease, v.key)})
	}
	if !v.Deleted && v.Lease != 0 && (!before.lives() || before.Lease != v.Lease) {
		p.batch.Set(engine.Key{Prefix: attachment(p.prefix[:0], v.Lease, v.key)}, nil)
	}
}

// eventOf returns the event of a version.
func eventOf(v *version) feed.Event {
	if v.Deleted {
		return feed.Event{Event: &mvccpb.Event{Type: mvccpb.Event_DELETE, Kv: &mvccpb.KeyValue{Key: v.key, ModRevision: v.Main}}}
	}
	return feed.Event{Create: v.Create == v.Main, Event: &mvccpb.Event{Type: mvccpb.Event_PUT, Kv: &mvccpb.KeyValue{
		Key: v.key, Value: v.value, CreateRevision: v.Create, ModRevision: v.Main, Version: v.Version, Lease: v.Lease,
	}}}
}

// Compact sets the compact revision.
func (p *Pass) Compact(rev int64) error {
	switch {
	case rev <= p.meta.Compacted:
		return command.Refuse(command.Compacted)
	case rev > p.meta.Revision:
		return command.Refuse(command.FutureRevision)
	}
	dead, err := p.deadThrough(rev)
	if err != nil {
		return err
	}
	p.meta.Compacted, p.meta.Swept = rev, dead
	p.meta.mix('c', uint64(rev))
	return nil
}

// deadThrough returns the bytes of the versions that were superseded through rev: as many as before the first
// change behind it.
func (p *Pass) deadThrough(rev int64) (int64, error) {
	it := p.reader.Iterate(historyPrefix(nil, rev+1, 0), []byte{spaceHistory + 1})
	var c change
	var err error
	found := it.Next()
	if found {
		var b []byte
		if b, err = it.Value(); err == nil {
			c, err = parseChange(b)
		}
	}
	if cerr := it.Close(); err == nil {
		err = cerr
	}
	if err != nil || found {
		return c.dead, err
	}
	for _, v := range p.over.order {
		if v.Main > rev {
			return v.dead, nil
		}
	}
	return p.meta.Dead, nil
}
