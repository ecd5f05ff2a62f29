package rig

import (
	"os"

	"golang.org/x/sys/unix"
)

// forget takes the files of a host out of the memory of the kernel. What was not written yet is written
// first.
func (m *Member) forget() error {
	return m.eachFile(func(f *os.File) error {
		if err := f.Sync(); err != nil {
			return err
		}
		return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
	})
}
