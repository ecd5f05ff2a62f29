package statemachine

import (
	"context"
	"io"
)

// Snapshotter is a Machine or a CommandMachine whose state can be written and read. The log of a group
// whose machine is none grows for ever.
type Snapshotter interface {
	// Snapshot returns the state as it is between two calls of Apply. It must return soon, since nothing is
	// applied meanwhile: it takes a view rather than a copy. nil without an error counts as an error.
	Snapshot() (Snapshot, error)
	// Restore replaces the whole state by one that WriteTo wrote, or leaves the state as it is and returns an
	// error. It is never called beside Apply, and reads r to its end. Each byte that r gives was checked.
	Restore(ctx context.Context, r io.Reader) error
}

// Snapshot is the state of a machine at one moment.
type Snapshot interface {
	// WriteTo writes the state. It runs beside Apply, at most once, and returns early when ctx ends.
	WriteTo(ctx context.Context, w io.Writer) error
	// Close releases the snapshot, written or not. It is called once, and never beside WriteTo.
	Close() error
}

// FileSnapshot is a Snapshot that also consists of files. Where possible, they are linked and not copied.
// So what did not change since the last snapshot costs nothing.
type FileSnapshot interface {
	Snapshot
	// Files returns the files. It is called after WriteTo has returned nil, so a machine may make them there.
	// They must never change, and exist until Close.
	Files() []File
}

// File is a file of a state machine.
type File struct {
	Name string // under which the machine finds it again, at most 200 bytes of a-z, A-Z, 0-9, '.', '_' and '-'
	Path string
}

// FileRestorer is a Snapshotter that wrote files. RestoreFiles is called in place of Restore, with the same
// contract.
type FileRestorer interface {
	RestoreFiles(ctx context.Context, r io.Reader, files SnapshotFiles) error
}

// SnapshotFiles are the files of a snapshot that is being restored. They are there until RestoreFiles
// returns.
type SnapshotFiles interface {
	Names() []string
	// Open returns the content of a file. Each byte is checked when it is read.
	Open(name string) (io.ReadCloser, error)
	// Link makes path, which must not exist, a hard link of the file. Its content is not read: it was checked
	// when it was published. errors.ErrUnsupported means that the filesystem has no links: copy it with Open.
	Link(name, path string) error
}
