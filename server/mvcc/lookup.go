package mvcc

import (
	"errors"
	"math"
	"sync"

	"github.com/millrace/millrace/server/engine"
)

// newest looks a key up in the engine, and returns its newest version, or the zero Head if there is none. buf
// is reused for the prefix.
func newest(r engine.Reader, buf *[]byte, key []byte) (h Head, err error) {
	*buf = keyPrefix((*buf)[:0], key)
	k, b, ok, err := r.Newest(engine.Key{Prefix: *buf, Main: math.MaxInt64, Sub: math.MaxUint32})
	if err == nil && ok {
		h, _, err = parseVersion(k, b)
	}
	return h, err
}

const (
	lookUpReaders = 8 // that look up at a time
	lookUpLeast   = 2 // keys that one of them is worth
)

// LookUp puts the newest versions of keys into the cache of heads, as far as it does not have them. Each may
// be a read of the disk, so several are under way at a time. It changes nothing else: a command that misses
// the cache looks by itself.
func (p *Pass) LookUp(keys [][]byte) error {
	heads := p.s.heads
	if heads.complete || heads.max <= 0 || len(keys) < 2*lookUpLeast {
		return nil
	}
	missing := keys[:0]
	for _, key := range keys {
		if _, known := heads.get(key); !known {
			missing = append(missing, key)
		}
	}
	readers := min(lookUpReaders, len(missing)/lookUpLeast)
	if readers < 2 {
		return nil
	}
	found, failed := make([]Head, len(missing)), make([]error, readers)
	var all sync.WaitGroup
	for n := range readers {
		all.Go(func() {
			r := p.s.eng.Read()
			defer r.Close()
			var buf []byte
			for i := n; i < len(missing) && failed[n] == nil; i += readers {
				found[i], failed[n] = newest(r, &buf, missing[i])
			}
		})
	}
	all.Wait()
	if err := errors.Join(failed...); err != nil {
		return err
	}
	for i, key := range missing {
		heads.set(string(key), found[i])
	}
	return nil
}
