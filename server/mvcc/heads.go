package mvcc

// heads is a cache of the newest versions of keys, tombstones and keys that never were included. It is
// bounded by bytes. Only Apply uses it, and puts into it what is in the engine.
//
// It has two generations. The young one fills up to half of the bound, and becomes the old one, whose entries
// are forgotten. A key that is found in the old one moves to the young one. So what was used lately stays,
// and no list is kept.
type heads struct {
	max        int64
	young, old map[string]Head
	bytes      int64 // of young
	hits, miss uint64
}

// headOverhead is the memory of an entry besides its key, about.
const headOverhead = 120

func newHeads(maxBytes int64) *heads {
	return &heads{max: maxBytes, young: map[string]Head{}}
}

func (c *heads) get(key []byte) (Head, bool) {
	if h, ok := c.young[string(key)]; ok {
		c.hits++
		return h, true
	}
	if h, ok := c.old[string(key)]; ok {
		c.hits++
		c.set(string(key), h)
		return h, true
	}
	c.miss++
	return Head{}, false
}

func (c *heads) set(key string, h Head) {
	if c.max <= 0 {
		return
	}
	if _, ok := c.young[key]; !ok {
		n := int64(len(key)) + headOverhead
		if c.bytes+n > c.max/2 {
			c.old, c.young, c.bytes = c.young, map[string]Head{}, 0
		}
		c.bytes += n
	}
	c.young[key] = h
}
