package mvcc

import (
	"sync"

	"github.com/cespare/xxhash/v2"
)

// values is a cache of the newest versions of keys that were read, with their values. It is bounded by bytes.
// A hit saves a read the iterator of the engine. Any goroutine may use it.
//
// An entry is the newest version of its key, as of now: a pass removes it before a later one becomes
// visible. So it answers each read at its own revision or behind it. A read that began before a change must
// not put the old version back: each part knows the revision of the latest change of any of its keys.
//
// A part has two generations, as the heads have.
type values struct {
	max   int64 // bytes of a part
	parts [64]valuesPart
}

type valuesPart struct {
	mu         sync.Mutex
	changed    int64 // the latest revision that has changed a key of this part
	young, old map[string]cachedValue
	bytes      int64 // of young
}

type cachedValue struct {
	Head
	value []byte // never changed
}

// newValues returns a cache.
func newValues(maxBytes int64) *values { return &values{max: maxBytes / 64} }

func (c *values) part(key []byte) *valuesPart { return &c.parts[xxhash.Sum64(key)%64] }

// get returns a key as it is at rev, if the cache knows.
func (c *values) get(key []byte, rev int64) (i item, known bool) {
	p := c.part(key)
	p.mu.Lock()
	defer p.mu.Unlock()
	v, ok := p.young[string(key)]
	if !ok {
		if v, ok = p.old[string(key)]; ok {
			c.put(p, string(key), v)
		}
	}
	if !ok || v.Main > rev {
		return i, false
	}
	return item{key: key, value: v.value, Head: v.Head, kept: true}, true
}

// add adds a key that a read has found in the engine, as the newest version at its visible revision. The
// cache keeps the value.
func (c *values) add(i item, visible int64) {
	if n := sizeOf(i.key, i.value); n > c.max/8 {
		return
	}
	p := c.part(i.key)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.changed <= visible {
		c.put(p, string(i.key), cachedValue{i.Head, i.value})
	}
}

func sizeOf[K string | []byte](key K, value []byte) int64 {
	return int64(len(key)+len(value)) + headOverhead
}

// put puts an entry into the young generation of a part, whose lock the caller holds.
func (c *values) put(p *valuesPart, key string, v cachedValue) {
	if _, ok := p.young[key]; ok {
		return // it is the same version
	}
	n := sizeOf(key, v.value)
	if p.young == nil || p.bytes+n > c.max/2 {
		p.old, p.young, p.bytes = p.young, map[string]cachedValue{}, 0
	}
	p.young[key], p.bytes = v, p.bytes+n
}

// change removes a key that a pass has changed. The pass calls it before its revision is visible.
func (c *values) change(key []byte, rev int64) {
	p := c.part(key)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changed = rev
	if v, ok := p.young[string(key)]; ok {
		p.bytes -= sizeOf(key, v.value)
		delete(p.young, string(key))
	}
	delete(p.old, string(key))
}
