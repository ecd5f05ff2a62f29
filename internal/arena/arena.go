// Package arena holds payloads in blocks, which are counted and reused.
//
// A small payload with an array of its own costs more than its copy does: in the allocator, in page faults,
// and in cold caches. A block has many payloads side by side, and its memory is warm.
//
// # One rule
//
// The code that puts a payload into a longer-lived place retains its block there. The code that takes it out
// releases the block. The last release gives the block back, and its bytes become those of other payloads.
//
// A place that cannot say when it is done keeps the block (Ref.Keep): it is never reused, and its bytes
// belong to the garbage collector. So a doubt costs an allocation. It never costs a payload.
//
// A Ref names one life of a block. Retain and Release of a life that has ended panic: some place has released
// twice, or uses what it does not hold. With Options.Poison the last release overwrites the block, so that a
// reader that still looks at it finds no payload. Simulations, and builds with the race detector, poison.
//
// Rejected: a collector's finalizer instead of a count. It comes with the next collection, and until then the
// memory is fresh for each payload. Rejected: a count for each payload. A round has hundreds of payloads in a
// few blocks, and an atomic operation for each is what a block saves.
package arena

import (
	"bytes"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/millrace/millrace/internal/lock"
)

// PoisonByte is what a poisoned block is full of.
const PoisonByte = 0xDB

// Options are what a Pool is made of.
type Options struct {
	BlockBytes int  // of each block, at least 1
	IdleBytes  int  // of blocks that wait for another life, at most
	Poison     bool // overwrite a block whose life ends
}

// Pool makes blocks of one size. When nothing holds a block, the pool gives it another life. Any goroutine
// may use it.
type Pool struct {
	o     Options
	used  atomic.Int64  // blocks that are held
	kept  atomic.Uint64 // blocks that never came back
	made  atomic.Uint64
	mu    lock.Mutex
	idle  []*block
	least int // of idle, since the last Trim
}

// block is the memory of many payloads.
//
// state is one word, so that a count and the life that it belongs to change together:
//
//	life u32 | kept u1 | references u31
type block struct {
	pool  *Pool
	buf   []byte
	state atomic.Uint64
}

const (
	keptBit  = 1 << 31
	refsMask = keptBit - 1
	lifeUnit = 1 << 32
)

// Ref is a reference to one life of a block. Its zero value refers to nothing.
type Ref struct {
	b    *block
	life uint32
}

// New returns an empty pool.
func New(o Options) *Pool {
	o.BlockBytes, o.Poison = max(o.BlockBytes, 1), o.Poison || raceEnabled
	return &Pool{o: o}
}

// BlockBytes returns the size of a block.
func (p *Pool) BlockBytes() int { return p.o.BlockBytes }

// get returns a block with one reference.
func (p *Pool) get() Ref {
	b := p.takeIdle()
	if b == nil {
		b = &block{pool: p, buf: make([]byte, p.o.BlockBytes)}
		p.made.Add(1)
	}
	if life := b.state.Load() >> 32; life > 0 && p.o.Poison && !IsPoisoned(b.buf) {
		panic(fmt.Sprintf("arena: a block of %d bytes was written to after its life %d had ended; find the place that wrote to what it had released", len(b.buf), life-1))
	}
	p.used.Add(1)
	return Ref{b, uint32(b.state.Add(1) >> 32)}
}

func (p *Pool) takeIdle() *block {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := len(p.idle) - 1
	if k < 0 {
		return nil
	}
	b := p.idle[k]
	p.idle[k], p.idle = nil, p.idle[:k]
	p.least = min(p.least, k)
	return b
}

// put takes a block back whose life has ended.
func (p *Pool) put(b *block) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if (len(p.idle)+1)*p.o.BlockBytes <= p.o.IdleBytes {
		p.idle = append(p.idle, b)
	}
}

// Trim leaves blocks to the garbage collector: half of the blocks that were idle since the last Trim. Called
// at intervals, it makes the memory of a burst go.
func (p *Pool) Trim() {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := (p.least + 1) / 2
	clear(p.idle[:n])
	p.idle = p.idle[:copy(p.idle, p.idle[n:])]
	clear(p.idle[len(p.idle):cap(p.idle)])
	p.least = len(p.idle)
}

// Stats are what a pool has.
type Stats struct {
	UsedBytes, IdleBytes int64  // now
	Made, Kept           uint64 // blocks since New: allocated, and never to be reused
}

// Stats counts.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	idle := len(p.idle)
	p.mu.Unlock()
	size := int64(p.o.BlockBytes)
	return Stats{UsedBytes: p.used.Load() * size, IdleBytes: int64(idle) * size, Made: p.made.Load(), Kept: p.kept.Load()}
}

// Home says what is wrong if a block is held, after everything that holds blocks has ended.
func (p *Pool) Home() error {
	if n := p.used.Load(); n != 0 {
		return fmt.Errorf("arena: %d blocks of %d bytes are held at the end: each place that retains a block must release or keep it", n, p.o.BlockBytes)
	}
	return nil
}

// IsZero reports whether the reference refers to nothing.
func (r Ref) IsZero() bool { return r.b == nil }

// Retain counts one more holder. The caller holds the block.
func (r Ref) Retain() {
	for {
		s := r.b.state.Load()
		r.check(s, "retained")
		if r.b.state.CompareAndSwap(s, s+1) {
			return
		}
	}
}

// Release ends the hold of the caller, which looks at the bytes no more.
func (r Ref) Release() { r.leave(0) }

// Keep ends the hold of the caller, and makes this the last life of the block. Something refers to bytes of
// it, and will not say when it is done.
func (r Ref) Keep() { r.leave(keptBit) }

func (r Ref) leave(kept uint64) {
	for {
		s := r.b.state.Load()
		r.check(s, "released")
		next := (s - 1) | kept
		if next&refsMask == 0 && next&keptBit == 0 {
			r.end(s)
			return
		}
		if !r.b.state.CompareAndSwap(s, next) {
			continue
		}
		if next&refsMask == 0 {
			r.b.pool.kept.Add(1)
			r.b.pool.used.Add(-1)
		}
		return
	}
}

// end ends a life. The state is that of its last holder, so nothing else changes it.
func (r Ref) end(s uint64) {
	b := r.b
	if b.pool.o.Poison {
		Poison(b.buf)
	}
	if !b.state.CompareAndSwap(s, uint64(r.life+1)*lifeUnit) {
		panic(fmt.Sprintf("arena: a block was retained while its last holder released it: life %d; the code that retains must hold the block", r.life))
	}
	b.pool.used.Add(-1)
	b.pool.put(b)
}

// check panics unless this life of the block is held.
func (r Ref) check(s uint64, done string) {
	if life, refs := uint32(s>>32), s&refsMask; life != r.life || refs == 0 {
		panic(fmt.Sprintf("arena: a block is %s that is not held: life %d has ended, and the block is in life %d with %d holders; find the place that released it twice, or before it was done", done, r.life, life, refs))
	}
}

// Holds reports whether data, which is not empty, is in the block.
func (r Ref) Holds(data []byte) bool {
	at, first := uintptr(unsafe.Pointer(unsafe.SliceData(data))), uintptr(unsafe.Pointer(unsafe.SliceData(r.b.buf)))
	return at >= first && at < first+uintptr(len(r.b.buf))
}

// Find returns the reference of the block that has data; zero: none of them has it.
func Find(refs []Ref, data []byte) Ref {
	if len(data) > 0 {
		for i := len(refs) - 1; i >= 0; i-- {
			if refs[i].Holds(data) {
				return refs[i]
			}
		}
	}
	return Ref{}
}

// RetainAll retains each of refs, and appends them to into.
func RetainAll(into, refs []Ref) []Ref {
	for _, r := range refs {
		r.Retain()
	}
	return append(into, refs...)
}

// ReleaseAll releases each of refs, and returns the empty slice.
func ReleaseAll(refs []Ref) []Ref {
	for _, r := range refs {
		r.Release()
	}
	clear(refs)
	return refs[:0]
}

// KeepAll keeps each of refs, and returns the empty slice.
func KeepAll(refs []Ref) []Ref {
	for _, r := range refs {
		r.Keep()
	}
	clear(refs)
	return refs[:0]
}

// Poison overwrites bytes that nothing may read any more.
func Poison(b []byte) {
	if len(b) == 0 {
		return
	}
	b[0] = PoisonByte
	for done := 1; done < len(b); done *= 2 { // builds with the race detector look at each byte that a loop writes
		copy(b[done:], b[:done])
	}
}

// IsPoisoned reports whether bytes are what a poisoned block is full of. For tests.
func IsPoisoned(b []byte) bool { return len(b) > 0 && bytes.Count(b, []byte{PoisonByte}) == len(b) }
