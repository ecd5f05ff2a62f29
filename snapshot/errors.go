package snapshot

import (
	"errors"
	"fmt"
)

// The errors of a store, to be matched with errors.Is.
var (
	// ErrNotFound: there is no published snapshot with this id.
	ErrNotFound = errors.New("no such snapshot is published")
	// ErrPublished: a snapshot with this id is there already. Use it.
	ErrPublished = errors.New("a snapshot with this id is published already")
	// ErrBusy: the store makes or receives a snapshot. Try again when that has ended.
	ErrBusy = errors.New("the store is busy with another snapshot")
	// ErrInUse: the snapshot is being read. Try again later.
	ErrInUse = errors.New("the snapshot is in use")
	// ErrIncomplete: blocks are missing. Receiver.Missing says which.
	ErrIncomplete = errors.New("blocks of the snapshot are missing")
	// ErrEnded: a Writer or Receiver is used after its end.
	ErrEnded = errors.New("this snapshot was published, closed or aborted before")
)

// FormatError says what is wrong with a manifest.
type FormatError struct {
	// Offset is the place in the encoded manifest, in bytes; 0 if the manifest as a whole is wrong.
	Offset int64
	What   string
}

func (e *FormatError) Error() string {
	if e.Offset == 0 {
		return "snapshot: " + e.What
	}
	return fmt.Sprintf("snapshot: %s, at offset %d", e.What, e.Offset)
}

// DamageError says that a published snapshot is not what was published.
type DamageError struct {
	ID ID
	// File is the path of the damaged file, and Block the first damaged block of a part, or -1.
	File  string
	Block int64
	// What is wrong, with what was wanted and what is there.
	What string
	// Err is the error of the disk, or nil.
	Err error
}

func (e *DamageError) Error() string {
	where := e.File
	if e.Block >= 0 {
		where = fmt.Sprintf("%s, block %d (bytes %d to %d)", e.File, e.Block, e.Block*BlockBytes, (e.Block+1)*BlockBytes)
	}
	text := fmt.Sprintf("snapshot %v is damaged: %s: %s", e.ID, where, e.What)
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text + "; use an older snapshot with the log behind it, or take or receive another one, or restore the directory from a backup"
}

// Unwrap returns the error of the disk.
func (e *DamageError) Unwrap() error { return e.Err }

// StuckError says that the directory of a snapshot could not be removed, because its sync failed. Another
// sync would prove nothing, so this process leaves the directory alone. The next one removes it.
type StuckError struct {
	ID  ID
	Dir string // the path
	Err error  // of the disk
}

func (e *StuckError) Error() string {
	return fmt.Sprintf("%s could not be synced before its removal: %v; the directory is removed when the host starts again", e.Dir, e.Err)
}

// Unwrap returns the error of the disk.
func (e *StuckError) Unwrap() error { return e.Err }

// BlockError says why received blocks were refused. Nothing was written.
type BlockError struct {
	Part  int
	Block int64
	What  string
}

func (e *BlockError) Error() string {
	return fmt.Sprintf("snapshot: block %d of part %d: %s; nothing was written, ask for the block again, and another member if this one repeats it", e.Block, e.Part, e.What)
}

// SpaceError says that an offered snapshot does not fit on the disk.
type SpaceError struct {
	ID ID
	// Need and Free are in bytes. Need is what is still missing.
	Need, Free int64
}

func (e *SpaceError) Error() string {
	return fmt.Sprintf("snapshot %v needs %d more bytes, and the disk has %d; make room, the transfer then goes on", e.ID, e.Need, e.Free)
}
