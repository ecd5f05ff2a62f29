package millrace

import (
	"context"
	"fmt"
	"io"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/object"
	"github.com/millrace/millrace/object/files"
)

// Types of packages host and object for large objects.
type (
	// Object is what a group knows of an object: bytes that are stored beside its log.
	//
	//	ID       ObjectID        // its name in the group
	//	Bytes    int64           // the length of the content
	//	Hash     [32]byte        // the SHA-256 of its manifest, which has the checksums of all blocks
	//	Manifest int64           // the length of the manifest
	//	Uploader uint64          // the member that had the bytes first
	//	Opened   uint64          // the entry that opened it
	//	Held     uint64          // the entry that says that a quorum has it; 0: none does
	//	Holders  []object.Holder // the members that this entry names
	//	Life     time.Duration   // how long it stays if no command keeps it
	//	Expires  time.Duration   // the log time at which it goes, unless it is Kept
	//	Kept     bool            // whether a command keeps it
	Object = object.Set
	// ObjectID names an object in its group.
	//
	//	func IsZero() bool   // whether it names no object
	//	func String() string // 32 hexadecimal digits
	ObjectID = object.ID
	// ObjectOptions are those of a group with objects (Machine.Objects). The zero value is a good one.
	//
	//	Options      object.Options // how many objects there may be, and how much they have in all
	//	ReserveBytes int64          // disk space that objects leave free; default 256 MiB
	//	func Validate() error // the first value that Open would refuse
	ObjectOptions = statemachine.ObjectOptions
	// UploadOptions are those of Node.Upload. The zero value is a good one.
	//
	//	Life     time.Duration       // how long it stays, in log time, if no command keeps it; default 1 h
	//	MaxBytes int64               // the most that it may have; default and at most object.MaxBytes
	//	Progress func(written int64) // called after each piece, with the bytes so far; may be nil
	UploadOptions = host.UploadOptions
	// Objects is how a state machine keeps, releases and reads objects (ObjectUser).
	//
	//	func Keep(id ObjectID) error                // makes an object stay until it is released; only in Apply
	//	func Release(id ObjectID) error             // lets an object go when its life has passed; only in Apply
	//	func Open(id ObjectID) (*ObjectFile, error) // opens it here; in Apply those of the command are there
	Objects = host.Objects
	// ObjectFile is the content of an object on this host's disk, an io.ReaderAt that checks what it reads.
	// Close it: until then the bytes stay.
	//
	//	func Size() int64                                   // the length of the content
	//	func Close() error                                  // ends the reading
	//	func ReadAt(p []byte, off int64) (n int, err error) // as io.ReaderAt; damage is an error
	ObjectFile = files.File
)

// The errors of objects, to be matched with errors.Is. MayHaveCommitted is false for them.
var (
	// ErrNoObjects: the machine was opened without Machine.Objects.
	ErrNoObjects = outcome.ErrNoObjects
	// ErrObjectUnknown: the group has no such object: it was never opened, or it has expired.
	ErrObjectUnknown = object.ErrUnknown
	// ErrObjectNotHeld: no quorum is known to hold the object yet.
	ErrObjectNotHeld = object.ErrNotHeld
	// ErrObjectRefused: the command, or the object, was refused by all members alike.
	ErrObjectRefused = object.ErrRefused
	// ErrObjectSpace: the disk of this host has no space that objects may take.
	ErrObjectSpace = outcome.ErrObjectSpace
	// ErrObjectNotHere: this host does not have the object, which others may have.
	ErrObjectNotHere = files.ErrNotHere
)

// ObjectUser is a StateMachine in a group with objects. It keeps and releases them in Apply, by what its
// commands say. UseObjects is called once, before anything is applied or restored.
type ObjectUser interface{ UseObjects(*Objects) }

// Objects makes it a machine of a group with large objects: bytes of up to object.MaxBytes that are stored
// beside the log, and that commands name (Node.Upload, WithObjects). All members of a group must have the
// same options, except ReserveBytes, beginning with the first command. The machine must be InMemory.
func (m Machine[C, R]) Objects(o ObjectOptions) Machine[C, R] { m.objects = &o; return m }

// WithObjects makes a command name objects. Each must be held by a quorum, as objects that Upload has
// returned are, and must not have expired when the command is applied. Otherwise all members refuse the
// command alike, with ErrObjectUnknown or ErrObjectNotHeld, also after Commit has returned. A command may
// name up to object.MaxNames.
func WithObjects(ids ...ObjectID) ProposeOption { return ProposeOption{objects: ids} }

// Upload stores what r has as an object of the group, and returns it when a quorum of the members holds it
// durably. From then on commands may name it. If the state machine does not keep it, it goes when its life
// has passed (UploadOptions.Life). Upload may be called on any member and by any number of goroutines. What
// each takes of memory does not depend on how much r has.
//
// An error for which MayHaveCommitted is true says that commands may be able to name the object; it goes by
// itself if none keeps it.
func (n *Node[C, R]) Upload(ctx context.Context, r io.Reader, o UploadOptions) (Object, error) {
	return n.group.Upload(ctx, r, o)
}

// OpenObject opens an object for reading on this host. A member that is behind may not have it yet:
// ErrObjectNotHere. It is safe for concurrent use.
func (n *Node[C, R]) OpenObject(id ObjectID) (*ObjectFile, error) { return n.group.OpenObject(id) }

// appendHead appends what comes before the encoding of a command in a group with objects.
func (m Machine[C, R]) appendHead(dst []byte, options []ProposeOption) ([]byte, error) {
	var names []ObjectID
	for i := range options {
		names = append(names, options[i].objects...)
	}
	switch {
	case m.objects == nil && len(names) > 0:
		return nil, fmt.Errorf("%w; the command is not proposed", ErrNoObjects)
	case m.objects == nil:
		return dst, nil
	}
	if err := object.RejectNames(names); err != nil {
		return nil, fmt.Errorf("%w; the command is not proposed", err)
	}
	return object.AppendHead(dst, names), nil
}

// UseObjects implements host.ObjectUser.
func (a *adapter[C, R]) UseObjects(o *Objects) {
	if m, ok := a.machine.sm.(ObjectUser); ok {
		m.UseObjects(o)
	}
}
