//go:build linux

package main

import (
	"syscall"
	"time"

	"github.com/millrace/millrace/vfs"
)

// slowFS is a disk whose fsync takes fsyncTime. Whatever else a filesystem can do, and may be able to do in
// another version, is that of the one below.
type slowFS struct{ vfs.FS }

// Create implements vfs.FS.
func (fs slowFS) Create(name string) (vfs.File, error) { return slow(fs.FS.Create(name)) }

// Open implements vfs.FS.
func (fs slowFS) Open(name string) (vfs.File, error) { return slow(fs.FS.Open(name)) }

func slow(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return slowFile{f}, nil
}

type slowFile struct{ vfs.File }

// Sync implements vfs.File. Like an fsync it keeps its thread: a timer of the runtime would take a
// millisecond, and let the goroutine's processor run something else at once.
func (f slowFile) Sync() error {
	err := f.File.Sync()
	wait := syscall.NsecToTimespec(fsyncTime.Nanoseconds())
	for start := time.Now(); time.Since(start) < fsyncTime; {
		if syscall.Nanosleep(&wait, &wait) == nil {
			break
		}
	}
	return err
}
