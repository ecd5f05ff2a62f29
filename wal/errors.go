package wal

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// Errors that errors.Is finds in what this package returns.
var (
	// ErrCompacted means the entry was once there and has been dropped.
	ErrCompacted = errors.New("wal: entry is compacted")
	// ErrUnavailable means the entry is above the last one.
	ErrUnavailable = errors.New("wal: entry is not available")
	// ErrClosed means the log was closed.
	ErrClosed = errors.New("wal: log is closed")
	// ErrDiskFailed is in every FailedError.
	ErrDiskFailed = errors.New("wal: log has failed")
	// ErrCorrupt is in every CorruptError.
	ErrCorrupt = errors.New("wal: log is corrupt")
	// ErrOwner means that the directory belongs to another host.
	ErrOwner = errors.New("wal: directory belongs to another host")
	// ErrVersion means that a newer version of this package wrote the directory.
	ErrVersion = errors.New("wal: format version is not supported")
	// ErrDiskFull is in every DiskFullError.
	ErrDiskFull = errors.New("wal: disk is full")
	// ErrBacklog means that too many bytes wait for a flush. Nothing was written.
	ErrBacklog = errors.New("wal: too many bytes are not durable yet")
	// ErrInvalidWrite is in every InvalidWriteError.
	ErrInvalidWrite = errors.New("wal: invalid write")
	// ErrDeleted is in an InvalidWriteError for a write to a group that was deleted.
	ErrDeleted = errors.New("wal: group was deleted")
)

// InvalidWriteError means that a Write breaks the rules of Append. Nothing of the append was written, and
// the same writes without those of the group may be appended.
type InvalidWriteError struct {
	Group  uint64
	Reason string
	Err    error // ErrDeleted, or nil if no other error says it
}

func (e *InvalidWriteError) Error() string {
	return fmt.Sprintf("%v: group %d: %s", ErrInvalidWrite, e.Group, e.Reason)
}

// Unwrap makes ErrInvalidWrite visible to errors.Is, and ErrDeleted if the group was deleted.
func (e *InvalidWriteError) Unwrap() []error {
	if e.Err == nil {
		return []error{ErrInvalidWrite}
	}
	return []error{ErrInvalidWrite, e.Err}
}

// FailedError is an I/O error after which the log accepts nothing more. What was not synced before it may
// be lost.
type FailedError struct {
	Op     string // write, sync, prepare segment, zero-fill
	File   string
	Offset int64
	Err    error
}

func (e *FailedError) Error() string {
	return fmt.Sprintf("wal: %s of %s at offset %d failed, and the log accepts nothing more until it is opened again: %v", e.Op, e.File, e.Offset, inner(e.Err))
}

// Unwrap makes both ErrDiskFailed and the cause visible to errors.Is.
func (e *FailedError) Unwrap() []error { return []error{ErrDiskFailed, e.Err} }

// DiskFullError means that there was no space for an append, or that a new file for it found no descriptor
// or no memory. The append has changed nothing and may be tried again when there is what it needs. Appends
// without entries have a reserve of their own on the disk.
//
// Left means that the disk refused the zeros over what was written of the append, too. The next append tries
// again first. A crash before that may bring back the append, or the first of its writes.
type DiskFullError struct {
	Op    string
	Dir   string
	Bytes int64 // that were wanted
	Left  bool
	Err   error
}

func (e *DiskFullError) Error() string {
	if e.Op == opRecovery {
		return fmt.Sprintf("wal: %s in %s: no space for %d bytes; nothing is lost; make space, then open it again: %v", e.Op, e.Dir, e.Bytes, inner(e.Err))
	}
	if !isFull(e.Err) {
		return fmt.Sprintf("wal: %s in %s: the process cannot open another file; nothing was written; the log continues when it can open one: %v", e.Op, e.Dir, inner(e.Err))
	}
	return fmt.Sprintf("wal: %s in %s: no space for %d bytes; nothing was written; the log continues when there is space: %v", e.Op, e.Dir, e.Bytes, inner(e.Err))
}

// Unwrap makes both ErrDiskFull and the cause visible to errors.Is.
func (e *DiskFullError) Unwrap() []error { return []error{ErrDiskFull, e.Err} }

// CorruptError is a place in the log that does not hold what was durable there. Group and [Index, Through]
// name the lost entries if they are known (the record's header can still be read, or the entries are
// missing between others). They are 0 otherwise.
//
// The message is for the operator of a host and names the commands that help. A program that uses this
// package can open the log with Options.Salvage, and then fetch from peers what Log.Holes names.
type CorruptError struct {
	File   string
	Offset int64
	Group  uint64
	Index  uint64
	// Through is the last of the lost entries, or 0 if Index is the only one.
	Through uint64
	Reason  string

	rule    string // of wal/record/format.go, if it follows from nothing else
	missing bool   // the records are good, but others are missing
	draft   bool   // a salvage was cut off
	cause   error  // of the disk, which cannot read the place
}

func (e *CorruptError) Error() string {
	where := fmt.Sprintf("%s at offset %d", e.File, e.Offset)
	switch {
	case e.Through > e.Index:
		where += fmt.Sprintf(" (group %d, index %d through %d)", e.Group, e.Index, e.Through)
	case e.Group != 0 || e.Index != 0:
		where += fmt.Sprintf(" (group %d, index %d)", e.Group, e.Index)
	}
	dir := filepath.Dir(e.File)
	return fmt.Sprintf("wal: %s is corrupt: %s; the file is left unchanged; run \"millrace wal verify %s\" to see what is lost, and \"millrace wal repair %s\" to see what can be kept", where, e.Reason, dir, dir)
}

// Unwrap makes errors.Is(err, ErrCorrupt) true, and shows the error of a disk that cannot read the place.
func (e *CorruptError) Unwrap() []error {
	if e.cause == nil {
		return []error{ErrCorrupt}
	}
	return []error{ErrCorrupt, e.cause}
}

// wrappedError adds what was done to an error that may be one of this package already.
type wrappedError struct {
	doing string
	err   error
}

// wrapped returns err with what was being done.
func wrapped(doing string, err error) error { return &wrappedError{doing, err} }

func (e *wrappedError) Error() string { return "wal: " + e.doing + ": " + inner(e.err) }

// Unwrap returns the error without what was done.
func (e *wrappedError) Unwrap() error { return e.err }

// packageName removes the package's name where the text of an error inside another one begins. It leaves the
// names of files, which end in ".wal".
var packageName = strings.NewReplacer(": wal: ", ": ", "\nwal: ", "\n")

// inner returns the text of an error inside another one of this package: the text without the package's name,
// which the outer error says.
func inner(err error) string {
	if err == nil {
		return "no cause is known"
	}
	return packageName.Replace(strings.TrimPrefix(err.Error(), "wal: "))
}
