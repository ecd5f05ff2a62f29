package vfs

import "time"

// WithSyncDelay returns fs with d added to every File.Sync, after the real sync. So a fast local disk
// stands for a slow disk such as a cloud volume. Dir.Sync is not delayed, as no measured path uses it.
func WithSyncDelay(fs FS, d time.Duration) FS {
	if d <= 0 {
		return fs
	}
	return WithSyncDelays(fs, func() time.Duration { return d })
}

// WithSyncDelays is WithSyncDelay for a disk whose pace changes: each File.Sync asks how long it takes longer
// than the real one. Any goroutine may ask.
func WithSyncDelays(fs FS, delay func() time.Duration) FS { return delayFS{FS: fs, delay: delay} }

// delayFS is a disk that is slower than the real one: in each sync, or in what it writes a second.
type delayFS struct {
	FS
	delay     func() time.Duration // nil: none
	bandwidth *Bandwidth           // nil: the real disk's
}

func (f delayFS) below() FS { return f.FS }

func (f delayFS) Create(name string) (File, error) { return f.wrap(f.FS.Create(name)) }
func (f delayFS) Open(name string) (File, error)   { return f.wrap(f.FS.Open(name)) }

func (f delayFS) wrap(file File, err error) (File, error) {
	if err != nil {
		return nil, err
	}
	return delayFile{File: file, of: f}, nil
}

type delayFile struct {
	File
	of delayFS
}

func (f delayFile) Sync() error {
	err := f.File.Sync()
	if f.of.delay != nil {
		Pause(f.of.delay())
	}
	if f.of.bandwidth != nil {
		f.of.bandwidth.Wait()
	}
	return err
}
