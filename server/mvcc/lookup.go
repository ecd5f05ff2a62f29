package mvcc

import (
	"errors"
	"fmt"
	"math"
	"runtime/debug"
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

// MayMiss reports whether the cache of heads may lack keys, and can take them.
func (p *Pass) MayMiss() bool { return !p.s.heads.complete && p.s.heads.max > 0 }

// LookUp puts the newest versions of keys into the cache of heads, as far as it does not have them. Each may
// be a read of the disk, so several are under way at a time. It changes nothing else: a command that misses
// the cache looks by itself. The list is used up.
func (p *Pass) LookUp(keys [][]byte) error {
	heads := p.s.heads
	if len(keys) < 2*lookUpLeast {
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
	found, failed, panics := make([]Head, len(missing)), make([]error, readers), make([]any, readers)
	var all sync.WaitGroup
	for n := range readers {
		all.Go(func() {
			defer func() {
				if v := recover(); v != nil {
					panics[n] = fmt.Sprintf("%v\n%s", v, debug.Stack())
				}
			}()
			r := p.s.eng.Read()
			defer r.Close()
			var buf []byte
			for i := n; i < len(missing) && failed[n] == nil; i += readers {
				found[i], failed[n] = newest(r, &buf, missing[i])
			}
		})
	}
	all.Wait()
	for _, v := range panics {
		if v != nil {
			panic(v) // where the host catches it: it stops the group, and not the process
		}
	}
	if err := errors.Join(failed...); err != nil {
		return err
	}
	for i, key := range missing {
		heads.set(string(key), found[i])
	}
	return nil
}
