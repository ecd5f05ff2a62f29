package crashfs

import (
	"math/rand/v2"
	"path"
	"sync"
	"sync/atomic"
	"syscall"
)

// When selects operations for a fault. The zero value of a field selects all operations, except for Kind,
// which must be set (its zero value is OpCreate). Its methods return hooks for SetHook, which are safe for
// concurrent use. Each hook has its own count.
type When struct {
	Kind OpKind
	// Name is a path.Match pattern for the last element of the file's name, such as "*.wal".
	Name string
	// Nth selects the n-th of these operations, counted from when the hook is made; 0 selects all of them.
	Nth int
	// Times is how many operations in a row are selected, starting at the Nth; 0 means one if Nth is set.
	Times int
}

// matches reports whether op has the kind and the name, without counting it.
func (w When) matches(op Op) bool {
	if op.Kind != w.Kind {
		return false
	}
	if w.Name == "" {
		return true
	}
	ok, err := path.Match(w.Name, path.Base(op.Name))
	return ok && err == nil
}

// Do gives the operations this result: an error (syscall.EIO, say) or one of the effects Lie, Short, Flip and
// Misdirect.
func (w When) Do(result error) func(Op) error {
	return w.hook(func(Op) error { return result })
}

// Call calls f before each operation and lets the operation happen when f returns. A slow disk is an f that
// waits, by whatever clock the test has. The disk is not locked meanwhile, so other operations proceed and
// Crash may be called.
func (w When) Call(f func(Op)) func(Op) error {
	return w.hook(func(op Op) error {
		f(op)
		return nil
	})
}

// Hang delays the operations until the channel is closed: a sync that does not return. If the disk has
// crashed by then they fail with ErrCrashed. A crash alone does not release them, as nothing releases a
// process in disk sleep.
func (w When) Hang(until <-chan struct{}) func(Op) error {
	return w.Call(func(Op) { <-until })
}

func (w When) hook(result func(Op) error) func(Op) error {
	var mu sync.Mutex
	seen := 0
	selected := func() bool {
		mu.Lock()
		defer mu.Unlock()
		seen++
		return w.Nth == 0 || seen >= w.Nth && seen < w.Nth+max(1, w.Times)
	}
	return func(op Op) error {
		if !w.matches(op) || !selected() {
			return nil
		}
		return result(op)
	}
}

// FailOpens returns a hook with which k operations that open something fail with err, from the n-th on (1
// is the next). For a while the process has no descriptor left. It is safe for concurrent use.
func FailOpens(n, k int, err error) func(Op) error {
	var seen atomic.Int64
	return func(op Op) error {
		if !op.Kind.Opens() {
			return nil
		}
		if i := int(seen.Add(1)); i < n || i >= n+k {
			return nil
		}
		return err
	}
}

// Hooks combines several hooks. They are called in order; the first result that is not nil decides, and later
// hooks are not called for that operation.
func Hooks(hooks ...func(Op) error) func(Op) error {
	return func(op Op) error {
		for _, h := range hooks {
			if err := h(op); err != nil {
				return err
			}
		}
		return nil
	}
}

// Odds are the chances of faults: each field n means one in n operations of that kind, and 0 means never. All
// draws come from one seed: the same operations in the same order meet the same faults.
type Odds struct {
	ReadError     int // a read fails with EIO
	ReadFlip      int // a bit of the result is flipped; the medium is intact
	WriteError    int // a write fails with EIO and changes nothing; a direct one may have written any of its sectors
	ShortWrite    int // some of the bytes are written, then EIO
	WriteFlip     int // a bit is flipped on the way to the disk
	LostWrite     int // a write reports success and does nothing
	Misdirected   int // a write goes to the sector before or after
	SyncError     int // a sync fails with EIO, and later ones of the file keep nothing written before
	LyingSync     int // a sync reports success and does nothing
	LyingSyncDir  int // likewise for a directory
	NoSpace       int // a create, preallocation or write fails with ENOSPC; a direct write may have written any of its sectors
	NameError     int // a create, link, rename, remove, rmdir or directory sync fails with EIO
	OpenError     int // an open or a lock fails with EIO
	TruncateError int // a truncation fails with EIO
}

// Hook returns a hook that draws these faults from seed.
func (o Odds) Hook(seed uint64) func(Op) error {
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(seed, 0x6f646473))
	return func(op Op) error {
		mu.Lock()
		defer mu.Unlock()
		return o.draw(op, rng)
	}
}

func (o Odds) draw(op Op, rng *rand.Rand) error {
	one := func(in int) bool { return in > 0 && rng.IntN(in) == 0 }
	anywhere := func() int { return rng.IntN(max(1, int(op.Len))) }
	switch op.Kind {
	case OpRead:
		switch {
		case one(o.ReadError):
			return syscall.EIO
		case one(o.ReadFlip):
			return Flip(anywhere(), uint(rng.IntN(8)))
		}
	case OpWrite:
		switch {
		case one(o.WriteError):
			if op.Direct {
				return Scattered(rng.Uint64(), syscall.EIO)
			}
			return syscall.EIO
		case one(o.NoSpace):
			if op.Direct {
				return Scattered(rng.Uint64(), syscall.ENOSPC)
			}
			return Short(anywhere(), syscall.ENOSPC)
		case one(o.ShortWrite):
			return Short(anywhere(), syscall.EIO)
		case one(o.WriteFlip):
			return Flip(anywhere(), uint(rng.IntN(8)))
		case one(o.LostWrite):
			return Lie
		case one(o.Misdirected):
			return Misdirect(SectorBytes * int64(2*rng.IntN(2)-1))
		}
	case OpSync, OpWriteBack:
		switch {
		case one(o.SyncError):
			return syscall.EIO
		case one(o.LyingSync):
			return Lie
		}
	case OpSyncDir:
		switch {
		case one(o.NameError):
			return syscall.EIO
		case one(o.LyingSyncDir):
			return Lie
		}
	case OpCreate, OpPreallocate:
		switch {
		case one(o.NoSpace):
			return syscall.ENOSPC
		case op.Kind == OpCreate && one(o.NameError):
			return syscall.EIO
		}
	case OpRename, OpRemove, OpLink, OpRemoveDir:
		if one(o.NameError) {
			return syscall.EIO
		}
	case OpOpen, OpLock:
		if one(o.OpenError) {
			return syscall.EIO
		}
	case OpTruncate:
		if one(o.TruncateError) {
			return syscall.EIO
		}
	}
	return nil
}
