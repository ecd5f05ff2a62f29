package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/millrace/millrace/host/internal/objects"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/object"
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
	group    *Group
	here     *objects.Upload // the way of its bytes, and its outcome
	progress func(int64)
	call     Call
}

// StartUpload begins an upload, on any member. Write its content, then call Finish, or Abort. Errors:
// ErrNoObjects, ErrObjectSpace, ErrStopped, ErrOverloaded if too many are under way, and those of the disk.
func (g *Group) StartUpload(options UploadOptions) (*Upload, error) {
	options.Life = cmp.Or(options.Life, time.Hour)
	options.MaxBytes = cmp.Or(options.MaxBytes, object.MaxBytes)
	switch {
	case g.machine.objects == nil:
		return nil, outcome.ErrNoObjects
	case g.Err() != nil:
		return nil, outcome.WithCause(outcome.ErrStopped, g.Err())
	case options.Life < object.MinLife || options.Life > object.MaxLife:
		return nil, fmt.Errorf("millrace: UploadOptions.Life is %v, want %v to %v", options.Life, object.MinLife, object.MaxLife)
	case options.MaxBytes < 0 || options.MaxBytes > object.MaxBytes:
		return nil, fmt.Errorf("millrace: UploadOptions.MaxBytes is %d, want 0 to %d", options.MaxBytes, int64(object.MaxBytes))
	}
	var id object.ID
	if _, err := io.ReadFull(g.host.secrets(), id[:]); err != nil {
		return nil, fmt.Errorf("millrace: no random bytes for the id of an object: %w", err)
	}
	u, err := g.machine.objects.StartUpload(id, options.Life, options.MaxBytes)
	if errors.Is(err, objects.ErrUploads) {
		err = fmt.Errorf("%w: %d uploads to group %d are under way on this host, the most that may be", outcome.ErrOverloaded, objects.MaxUploads, g.id)
	}
	if err != nil {
		return nil, err
	}
	return &Upload{group: g, here: u, progress: options.Progress}, nil
}

// ID returns the id that the object will have.
func (u *Upload) ID() object.ID { return u.here.ID() }

// Write appends to the content.
func (u *Upload) Write(p []byte) (int, error) {
	if err := u.group.Err(); err != nil {
		return 0, outcome.WithCause(outcome.ErrStopped, err)
	}
	if err := u.here.RejectWrite(len(p)); err != nil {
		return 0, err
	}
	n, err := u.here.Write(p)
	if u.progress != nil {
		u.progress(u.here.Written())
	}
	return n, err
}

// Finish makes the content durable on this host, and opens the object. It does not wait for the other
// members: see Poll. After an error the upload has ended, and nothing is left of it.
func (u *Upload) Finish() error {
	if err := u.publish(); err != nil {
		return err
	}
	err := u.group.Call(&u.call)
	if err != nil {
		u.here.Fail(err)
	}
	return err
}

// publish makes the content durable, and prepares the call that opens the object.
func (u *Upload) publish() error {
	open, err := u.here.Publish()
	if err != nil {
		return err
	}
	u.call = Call{Data: object.AppendOpening(make([]byte, CallRoom, CallRoom+128), open), Owner: (*uploadCaller)(u)}
	return nil
}

// Abort ends an upload whose content is not complete, and removes what was written. After Finish it does
// nothing.
func (u *Upload) Abort() error { return u.here.Abort() }

// Poll returns the outcome, if it is known: the object, which a quorum holds, so that commands may name it;
// or an error. ErrRefused says that the group has no place for it, and object.ErrUnknown that no quorum has
// got it within its life. With ErrIndeterminate commands may be able to name it later; it goes by itself if
// none does.
func (u *Upload) Poll() (set object.Set, done bool, err error) {
	if cause := u.group.Err(); cause != nil {
		err := outcome.WithCause(outcome.ErrStopped, cause)
		if u.here.IsSent() { // it may be in the log, or held, and this host is not told any more
			err = fmt.Errorf("%w: object %v: %w", outcome.ErrIndeterminate, u.ID(), err)
		}
		u.here.Finish(object.Set{}, err)
	}
	return u.here.Outcome()
}

// uploadCaller is the side of an upload that its Call sees: Caller. What the entry has done is known when
// this host applies it (objects.Keeper.Change).
type uploadCaller Upload

func (*uploadCaller) Committed(outcome.Receipt) {}

func (c *uploadCaller) Failed(err error) { c.here.Fail(err) }

// Duplicate implements Caller: a snapshot that was installed has the entry.
func (c *uploadCaller) Duplicate(r outcome.Receipt, _ []byte, _ bool) { c.here.Duplicate(r.Index) }

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
	if err := u.copyFrom(ctx, r); err != nil {
		return object.Set{}, err
	}
	if err := u.publish(); err != nil {
		return object.Set{}, err
	}
	if err := u.open(ctx); err != nil {
		u.here.Fail(err)
		return object.Set{}, err
	}
	select {
	case <-u.here.Done():
	case <-g.life.ended: // Poll says so
	case <-ctx.Done():
		if _, done, _ := u.Poll(); !done {
			err := g.Withdraw(ctx, &u.call)
			if err == nil {
				err = fmt.Errorf("%w: object %v is opened, and not known to be held by a quorum yet: %w", outcome.ErrIndeterminate, u.ID(), g.waitEnd(ctx))
			}
			u.here.Fail(err)
			return object.Set{}, err
		}
	}
	set, _, err := u.Poll()
	return set, err
}

// copyFrom writes what r has. If it fails the upload is aborted, also if r panics or ends the caller's
// goroutine.
func (u *Upload) copyFrom(ctx context.Context, r io.Reader) (err error) {
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
	for u.call.Waits = true; ; {
		err := u.group.Call(&u.call)
		if !errors.Is(err, outcome.ErrOverloaded) {
			return err
		}
		if err := u.group.WaitSpace(ctx, &u.call); err != nil {
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
