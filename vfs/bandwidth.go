package vfs

import (
	"sync"
	"time"
)

// Bandwidth is how fast a disk writes. What is written occupies the disk, one write after another, and a
// sync lasts until everything written before it has passed. So a fast local disk stands for a volume with a
// bound on its throughput.
//
// Rejected: a sleep in each sync in proportion to what that sync covers. A disk writes while a program does
// other things, so such a disk would be slower than the one that it stands for.
type Bandwidth struct {
	bytesPerSecond float64

	mu   sync.Mutex
	free time.Time // when the disk has written everything; in the past if it is idle
}

// NewBandwidth returns the bandwidth of one disk, in bytes a second. It must be above 0.
func NewBandwidth(bytesPerSecond float64) *Bandwidth {
	return &Bandwidth{bytesPerSecond: bytesPerSecond}
}

// Write occupies the disk with n bytes. It does not block.
func (b *Bandwidth) Write(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now := time.Now(); b.free.Before(now) {
		b.free = now
	}
	b.free = b.free.Add(time.Duration(float64(n) / b.bytesPerSecond * float64(time.Second)))
}

// Wait returns when the disk has written what occupied it at the time of the call.
func (b *Bandwidth) Wait() {
	b.mu.Lock()
	free := b.free
	b.mu.Unlock()
	Pause(time.Until(free))
}

// WithBandwidth returns fs on a disk of a bandwidth, which several filesystems may share. Every byte that is
// written counts, the zeros with which a log prepares its files too; File.Sync waits. SyncDir does not.
func WithBandwidth(fs FS, b *Bandwidth) FS { return delayFS{FS: fs, bandwidth: b} }

// written occupies the disk, if it has a bandwidth.
func (f delayFS) written(n int, err error) (int, error) {
	if f.bandwidth != nil {
		f.bandwidth.Write(n)
	}
	return n, err
}

// OpenDirect implements FS.
func (f delayFS) OpenDirect(name string) (BlockWriter, error) {
	w, err := f.FS.OpenDirect(name)
	if err != nil || f.bandwidth == nil {
		return w, err
	}
	return delayWriter{BlockWriter: w, of: f}, nil
}

type delayWriter struct {
	BlockWriter
	of delayFS
}

func (w delayWriter) WriteAt(p []byte, off int64) (int, error) {
	return w.of.written(w.BlockWriter.WriteAt(p, off))
}

func (f delayFile) WriteAt(p []byte, off int64) (int, error) {
	return f.of.written(f.File.WriteAt(p, off))
}
