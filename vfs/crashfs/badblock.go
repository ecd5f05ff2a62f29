package crashfs

import (
	"fmt"
	"path"
	"sync"
	"syscall"
)

// BadBlock is a block that the medium has lost: each read that touches it fails with EIO. A write that covers
// the whole block heals it, because the disk then remaps it. A write that covers only a part fails too,
// because the disk has to read the block first.
type BadBlock struct {
	// Name is a path.Match pattern for the last element of the file's name.
	Name string
	// Off and Len are the range of bytes in the file. Len is a multiple of the disk's sector; 0 means 4096.
	Off, Len int64
}

// Hook returns a hook for SetHook. It is safe for concurrent use.
func (b BadBlock) Hook() func(Op) error {
	var mu sync.Mutex
	healed := false
	if b.Len == 0 {
		b.Len = 4096
	}
	return func(op Op) error {
		if op.Kind != OpRead && op.Kind != OpWrite || op.Off+op.Len <= b.Off || op.Off >= b.Off+b.Len {
			return nil
		}
		if ok, err := path.Match(b.Name, path.Base(op.Name)); !ok || err != nil {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		if op.Kind == OpWrite && op.Off <= b.Off && op.Off+op.Len >= b.Off+b.Len {
			healed = true
		}
		if healed {
			return nil
		}
		return fmt.Errorf("block [%d, +%d) of %s is lost: %w", b.Off, b.Len, op.Name, syscall.EIO)
	}
}
