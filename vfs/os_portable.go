//go:build !linux

package vfs

func (f *osFile) Sync() error { return f.file.Sync() }

func (f *osFile) Preallocate(off, n int64) error { return f.extend(off, n) }
