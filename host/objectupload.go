package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/millrace/millrace/object"
	"github.com/millrace/millrace/object/files"
	"github.com/millrace/millrace/vfs"
)

// UploadOptions are those of one upload. The zero value is a good one.
type UploadOptions struct {
	// Life is how long the object is there, in log time, if no command keeps it; default 1 h, object.MinLife
	// to object.MaxLife. The same time passes after it was released.
	Life time.Duration
	// MaxBytes bounds the object; default and at most object.MaxBytes.
	MaxBytes int64
	// Progress is called after each piece that was written to this host's disk, with the bytes so far, by the
	// goroutine of the caller.
	Progress func(written int64)
}

// Upload is an object on its way into the group: written to this host's disk, then opened, and complete when
// a quorum holds it. It is for one goroutine, except Poll, which may be called from anywhere.
type Upload struct {
	of      *groupObjects
	id      object.ID
	options UploadOptions
	w       *files.Writer
	written int64
	looked  int64 // bytes at which the space was looked at
	call    Call

	mu   sync.Mutex
	sent bool          // the content is durable, and the command open is handed in
	done chan struct{} // closed with the outcome
	is   bool
	set  object.Set
	err  error
}

// maxUploads bounds the uploads of a group on one host at a time.
const maxUploads = 64

// lookBytes is how much is written between two looks at the space on the disk.
const lookBytes = 4 << 20

// ErrObjectSpace: the object would take of the space that objects leave for the log
// (ObjectOptions.ReserveBytes).
var ErrObjectSpace = errors.New("millrace: no space for the object")

// ErrNoObjects: the group was opened without objects.
var ErrNoObjects = errors.New("millrace: the group has no objects; open it with CommandOptions.Objects on all members")

// StartUpload begins an upload, on any member. Write its content, then call Finish, or Abort. Errors:
// ErrNoObjects, ErrObjectSpace, ErrStopped, ErrOverloaded if too many are under way, and those of the disk.
func (g *Group) StartUpload(options UploadOptions) (*Upload, error) {
	o := &g.machine.objects
	options.Life = cmp.Or(options.Life, time.Hour)
	options.MaxBytes = cmp.Or(options.MaxBytes, object.MaxBytes)
	switch {
	case !o.on:
		return nil, ErrNoObjects
	case g.Err() != nil:
		return nil, wrap(ErrStopped, g.Err())
	case options.Life < object.MinLife || options.Life > object.MaxLife:
		return nil, fmt.Errorf("millrace: UploadOptions.Life is %v, want %v to %v", options.Life, object.MinLife, object.MaxLife)
	case options.MaxBytes < 0 || options.MaxBytes > object.MaxBytes:
		return nil, fmt.Errorf("millrace: UploadOptions.MaxBytes is %d, want 0 to %d", options.MaxBytes, int64(object.MaxBytes))
	}
	u := &Upload{of: o, options: options, done: make(chan struct{})}
	if _, err := io.ReadFull(g.host.secrets(), u.id[:]); err != nil {
		return nil, fmt.Errorf("millrace: no random bytes for the id of an object: %w", err)
	}
	o.mu.Lock()
	full := len(o.uploads) >= maxUploads
	if !full {
		o.uploads[u.id] = u
	}
	o.mu.Unlock()
	if full {
		return nil, fmt.Errorf("%w: %d uploads to group %d are under way on this host, the most that may be", ErrOverloaded, maxUploads, g.id)
	}
	err := o.rejectSpace(0)
	if err == nil {
		u.w, err = o.files.Create(u.id, options.MaxBytes)
	}
	if err != nil {
		u.fail(err)
		return nil, err
	}
	return u, nil
}

// rejectSpace says that more bytes would take of what objects leave for the log, or returns nil.
func (o *groupObjects) rejectSpace(more int64) error {
	dir := objectsDir(o.group.host.config.Dir, o.group.id)
	free, err := vfs.FreeBytes(o.group.host.env.fs, dir)
	if err == nil && free-more < o.options.ReserveBytes {
		return fmt.Errorf("%w: the disk of %s has %d bytes, %d more are wanted, and %d are kept for the log and for snapshots (ObjectOptions.ReserveBytes); make room", ErrObjectSpace, dir, free, more, o.options.ReserveBytes)
	}
	return nil // a filesystem that does not say how much it has says so when it is full
}

// ID returns the id that the object will have.
func (u *Upload) ID() object.ID { return u.id }

// Write appends to the content.
func (u *Upload) Write(p []byte) (int, error) {
	if err := u.of.group.Err(); err != nil {
		return 0, wrap(ErrStopped, err)
	}
	if u.written+int64(len(p)) >= u.looked {
		if err := u.of.rejectSpace(int64(len(p)) + lookBytes); err != nil {
			return 0, err
		}
		u.looked = u.written + int64(len(p)) + lookBytes
	}
	n, err := u.w.Write(p)
	u.written += int64(n)
	if u.options.Progress != nil {
		u.options.Progress(u.written)
	}
	return n, err
}

// Finish makes the content durable on this host, and opens the object. It does not wait for the other
// members: see Poll. After an error the upload has ended, and nothing is left of it.
func (u *Upload) Finish() error {
	if err := u.publish(); err != nil {
		return err
	}
	err := u.of.group.Call(&u.call)
	if err != nil {
		u.fail(err)
	}
	return err
}

// publish makes the content durable, and prepares the call that opens the object.
func (u *Upload) publish() error {
	info, err := u.w.Publish()
	if err != nil {
		return errors.Join(err, u.Abort())
	}
	open := object.Opening{ID: u.id, Bytes: info.Bytes, Hash: info.Hash, Manifest: info.Manifest, Uploader: u.of.group.self, Life: u.options.Life}
	u.call = Call{Data: object.AppendOpening(make([]byte, CallRoom, CallRoom+128), open), Owner: (*uploadCaller)(u)}
	u.mu.Lock()
	u.sent = true
	u.mu.Unlock()
	return nil
}

// Abort ends an upload whose content is not complete, and removes what was written. After Finish it does
// nothing.
func (u *Upload) Abort() error {
	if u.isSent() {
		return nil
	}
	u.finish(object.Set{}, fmt.Errorf("millrace: the upload of %v was given up", u.id))
	err := u.w.Abort()
	if err != nil { // the disk refuses it for now
		u.fail(err)
		return err
	}
	u.of.dropUpload(u)
	return nil
}

func (u *Upload) isSent() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.sent
}

// Poll returns the outcome, if it is known: the object, which a quorum holds, so that commands may name it;
// or an error. ErrRefused says that the group has no place for it, and object.ErrUnknown that no quorum has
// got it within its life. With ErrIndeterminate commands may be able to name it later; it goes by itself if
// none does.
func (u *Upload) Poll() (set object.Set, done bool, err error) {
	if cause := u.of.group.Err(); cause != nil {
		err := wrap(ErrStopped, cause)
		if u.isSent() { // it may be in the log, or held, and this host is not told any more
			err = fmt.Errorf("%w: object %v: %w", ErrIndeterminate, u.id, err)
		}
		u.finish(object.Set{}, err)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.set, u.is, u.err
}

// finish gives the outcome, once.
func (u *Upload) finish(set object.Set, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.is {
		u.is, u.set, u.err = true, set, err
		close(u.done)
	}
}

// fail ends an upload whose entry open was refused or is lost. Its files go, unless the entry is there.
func (u *Upload) fail(err error) {
	u.finish(object.Set{}, err)
	o := u.of
	o.mu.Lock()
	if o.uploads[u.id] == u {
		delete(o.uploads, u.id)
		if _, is := o.table.Get(u.id); !is {
			o.condemn = append(o.condemn, u.id)
		}
	}
	o.mu.Unlock()
	o.group.host.bulk.snapshotLanes.Enqueue(&o.removes)
}

func (o *groupObjects) dropUpload(u *Upload) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.uploads[u.id] == u {
		delete(o.uploads, u.id)
	}
}

// uploadCaller is the side of an upload that its Call sees: Caller. What the entry has done is known when
// this host applies it (groupObjects.change).
type uploadCaller Upload

func (*uploadCaller) Committed(Receipt) {}

func (c *uploadCaller) Failed(err error) { (*Upload)(c).fail(err) }

// Duplicate implements Caller: a snapshot that was installed has the entry. The set may have gone in it.
func (c *uploadCaller) Duplicate(r Receipt, _ []byte, _ bool) {
	o := c.of
	o.mu.Lock()
	_, is := o.table.Get(c.id)
	o.mu.Unlock()
	if !is {
		(*Upload)(c).fail(fmt.Errorf("%w: %v was opened by entry %d, and expired", object.ErrUnknown, c.id, r.Index))
	}
}

// Upload stores what r has as an object of the group. It returns the object when a quorum of the members
// holds it durably: commands may name it from then on. If no command keeps it, it goes when its life has
// passed. Upload may be called on any member and by any number of goroutines; what each takes of memory
// does not depend on the length of the object. Errors are those of StartUpload, Upload.Poll and r. If ctx
// ends, the error wraps its cause: an ErrIndeterminate if commands may be able to name the object later.
func (g *Group) Upload(ctx context.Context, r io.Reader, options UploadOptions) (object.Set, error) {
	u, err := g.StartUpload(options)
	if err != nil {
		return object.Set{}, err
	}
	if err := u.take(ctx, r); err != nil {
		return object.Set{}, err
	}
	if err := u.publish(); err != nil {
		return object.Set{}, err
	}
	if err := u.open(ctx); err != nil {
		u.fail(err)
		return object.Set{}, err
	}
	select {
	case <-u.done:
	case <-g.life.ended: // Poll says so
	case <-ctx.Done():
		if _, done, _ := u.Poll(); !done {
			err := g.Withdraw(ctx, &u.call)
			if err == nil {
				err = fmt.Errorf("%w: object %v is opened, and not known to be held by a quorum yet: %w", ErrIndeterminate, u.id, g.waitEnd(ctx))
			}
			u.fail(err)
			return object.Set{}, err
		}
	}
	set, _, err := u.Poll()
	return set, err
}

// take writes what r has. If it fails the upload is aborted, also if r panics or ends the caller's goroutine.
func (u *Upload) take(ctx context.Context, r io.Reader) (err error) {
	whole := false
	defer func() {
		if !whole {
			err = errors.Join(err, u.Abort())
		}
	}()
	_, err = io.CopyBuffer(struct{ io.Writer }{u}, untilDoneReader{ctx, r}, make([]byte, 256<<10))
	whole = err == nil
	return err
}

// open hands in the command open. It waits for space until ctx ends: what was uploaded is not thrown away
// because too many commands wait for a moment.
func (u *Upload) open(ctx context.Context) error {
	for {
		err := u.of.group.Call(&u.call)
		if !errors.Is(err, ErrOverloaded) {
			return err
		}
		if err := u.of.group.WaitSpace(ctx, &u.call); err != nil {
			return err
		}
	}
}

// untilDoneReader is a reader that fails when ctx has ended.
type untilDoneReader struct {
	ctx context.Context
	r   io.Reader
}

func (u untilDoneReader) Read(b []byte) (int, error) {
	if u.ctx.Err() != nil {
		return 0, fmt.Errorf("millrace: the upload has ended: %w", context.Cause(u.ctx))
	}
	return u.r.Read(b)
}

// OpenObject opens an object for reading on this host. files.ErrNotHere means that this member does not have
// it (yet); ErrNoObjects that the group has none. Close the file: until then its bytes stay. It is safe for
// concurrent use.
func (g *Group) OpenObject(id object.ID) (*files.File, error) {
	if !g.machine.objects.on {
		return nil, ErrNoObjects
	}
	return g.machine.objects.files.OpenFile(id)
}
