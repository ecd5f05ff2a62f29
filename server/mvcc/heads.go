package mvcc

// heads is a cache of the newest versions of keys, tombstones and keys that never were included. It is
// bounded by bytes. Only Apply uses it, and puts into it what is in the engine.
//
// It has two generations. The young one fills up to half of the bound, and becomes the old one, whose entries
// are forgotten. A key that is found in the old one moves to the young one. So what was used lately stays,
// and no list is kept.
//
// The cache of a store that was opened empty is complete until it forgets something. What it does not have
// then, there is not: the first put of a key costs no look into the engine.
type heads struct {
	max        int64
	complete   bool
	young, old map[string]Head
	bytes      int64 // of young
}

// headOverhead is the memory of an entry besides its key, about.
const headOverhead = 120

// newHeads returns a cache. empty says that the store has no keys.
func newHeads(maxBytes int64, empty bool) *heads {
	return &heads{max: maxBytes, complete: empty && maxBytes > 0, young: map[string]Head{}}
}

// get returns the newest version of a key, or the zero Head if there is none. known is false if the engine
// has to be asked.

func (c *heads) get(key []byte) (h Head, known bool) {
	if h, ok := c.young[string(key)]; ok {
		return h, true
	}
	if h, ok := c.old[string(key)]; ok {
		c.set(string(key), h)
		return h, true
	}
	return Head{}, c.complete
}

func (c *heads) set(key string, h Head) {
	if c.max <= 0 {
		return
	}
	if _, ok := c.young[key]; !ok {
		n := int64(len(key)) + headOverhead
		if c.bytes+n > c.max/2 {
			c.complete = c.complete && len(c.old) == 0
			c.old, c.young, c.bytes = c.young, map[string]Head{}, 0
		}
		c.bytes += n
	}
	c.young[key] = h
}
