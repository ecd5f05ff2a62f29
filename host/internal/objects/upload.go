package objects

import (
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/internal/lock"
	"github.com/millrace/millrace/object"
	"github.com/millrace/millrace/object/files"
	"github.com/millrace/millrace/vfs"
)

// Upload is an object on its way into the group: written to this host's disk, then opened by a command, and
// complete when a quorum holds it. It is for one goroutine, except Outcome and what ends it.
type Upload struct {
	of      *Keeper
	id      object.ID
	life    time.Duration
	w       *files.Writer
	written int64
	looked  int64 // bytes at which the space was looked at

	mu   lock.Mutex
	sent bool          // the content is durable, and the command open is handed in
	done chan struct{} // closed with the outcome
	is   bool
	set  object.Set
	err  error
}

// MaxUploads bounds the uploads of a group on one host at a time.
const MaxUploads = 64

// lookBytes is how much is written between two looks at the space on the disk.
const lookBytes = 4 << 20

// ErrUploads: MaxUploads are under way.
var ErrUploads = errors.New("millrace: too many uploads")

// StartUpload begins an upload of at most maxBytes. Errors: ErrUploads, outcome.ErrObjectSpace, and those
// of the disk.
func (k *Keeper) StartUpload(id object.ID, life time.Duration, maxBytes int64) (*Upload, error) {
	u := &Upload{of: k, id: id, life: life, done: make(chan struct{})}
	k.mu.Lock()
	full := len(k.uploads) >= MaxUploads
	if !full {
		k.uploads[u.id] = u
	}
	k.mu.Unlock()
	if full {
		return nil, ErrUploads
	}
	err := k.rejectSpace(0)
	if err == nil {
		u.w, err = k.files.Create(u.id, maxBytes)
	}
	if err != nil {
		u.Fail(err)
		return nil, err
	}
	return u, nil
}

// rejectSpace says that more bytes would take of what objects leave for the log, or returns nil.
func (k *Keeper) rejectSpace(more int64) error {
	free, err := vfs.FreeBytes(k.FS, k.Dir)
	if err == nil && free-more < k.ReserveBytes {
		return fmt.Errorf("%w: the disk of %s has %d bytes, %d more are wanted, and %d are kept for the log and for snapshots (ObjectOptions.ReserveBytes); make room", outcome.ErrObjectSpace, k.Dir, free, more, k.ReserveBytes)
	}
	return nil // a filesystem that does not say how much it has says so when it is full
}

// ID returns the id that the object will have.
func (u *Upload) ID() object.ID { return u.id }

// RejectWrite says that the disk has no space for another n bytes, or returns nil. It is called before Write.
func (u *Upload) RejectWrite(n int) error {
	if u.written+int64(n) < u.looked {
		return nil
	}
	if err := u.of.rejectSpace(int64(n) + lookBytes); err != nil {
		return err
	}
	u.looked = u.written + int64(n) + lookBytes
	return nil
}

// Write appends to the content.
func (u *Upload) Write(p []byte) (int, error) {
	n, err := u.w.Write(p)
	u.written += int64(n)
	return n, err
}

// Written returns the bytes so far.
func (u *Upload) Written() int64 { return u.written }

// Publish makes the content durable, and returns what the command that opens the object says. After an error
// the upload has ended.
func (u *Upload) Publish() (open object.Opening, err error) {
	info, err := u.w.Publish()
	if err != nil {
		return open, errors.Join(err, u.Abort())
	}
	u.mu.Lock()
	u.sent = true
	u.mu.Unlock()
	return object.Opening{ID: u.id, Bytes: info.Bytes, Hash: info.Hash, Manifest: info.Manifest, Uploader: u.of.Self, Life: u.life}, nil
}

// Abort ends an upload whose content is not complete, and removes what was written. After Publish it does
// nothing.
func (u *Upload) Abort() error {
	if u.IsSent() {
		return nil
	}
	u.Finish(object.Set{}, fmt.Errorf("millrace: the upload of %v was given up", u.id))
	err := u.w.Abort()
	if err != nil { // the disk refuses it for now
		u.Fail(err)
		return err
	}
	u.of.dropUpload(u)
	return nil
}

// IsSent reports whether the content is durable.
func (u *Upload) IsSent() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.sent
}

// Outcome returns the outcome, if it is known.
func (u *Upload) Outcome() (set object.Set, done bool, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.set, u.is, u.err
}

// Done is closed when the outcome is known.
func (u *Upload) Done() <-chan struct{} { return u.done }

// Finish gives the outcome, once.
func (u *Upload) Finish(set object.Set, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.is {
		u.is, u.set, u.err = true, set, err
		close(u.done)
	}
}

// Fail ends an upload whose entry open was refused or is lost. Its files go, unless the entry is there.
func (u *Upload) Fail(err error) {
	u.Finish(object.Set{}, err)
	k := u.of
	k.mu.Lock()
	if k.uploads[u.id] == u {
		delete(k.uploads, u.id)
		if _, is := k.table.Get(u.id); !is {
			k.condemn = append(k.condemn, u.id)
		}
	}
	k.mu.Unlock()
	k.remove()
}

func (k *Keeper) dropUpload(u *Upload) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.uploads[u.id] == u {
		delete(k.uploads, u.id)
	}
}

// Duplicate is called when the entry open, at an index, is in a snapshot that was installed. The set may have
// gone in it.
func (u *Upload) Duplicate(index uint64) {
	k := u.of
	k.mu.Lock()
	_, is := k.table.Get(u.id)
	k.mu.Unlock()
	if !is {
		u.Fail(fmt.Errorf("%w: %v was opened by entry %d, and expired", object.ErrUnknown, u.id, index))
	}
}
