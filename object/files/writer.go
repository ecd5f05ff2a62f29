package files

import (
	"errors"
	"fmt"
	"io"

	"github.com/millrace/millrace/object"
	"github.com/millrace/millrace/snapshot"
)

// Writer writes the content of an object. It is for one goroutine. After an error call Abort.
type Writer struct {
	store   *Store
	id      object.ID
	of      *snapshot.Store
	w       *snapshot.Writer
	content io.WriteCloser
	bytes   int64
	most    int64
	ended   bool
}

// stream is the name of the one stream of an object.
const stream = "object"

// Create begins an object, of at most most bytes. It returns ErrBusy if there is something under this id.
func (s *Store) Create(id object.ID, most int64) (*Writer, error) {
	of, err := s.claim(id, false)
	if err != nil {
		return nil, fmt.Errorf("objects: write %v: %w", id, err)
	}
	w := &Writer{store: s, id: id, of: of, most: min(most, object.MaxBytes)}
	if w.w, err = of.Create(the); err == nil {
		w.content, err = w.w.Stream(snapshot.KindMachine, stream)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("objects: write %v: %w", id, err), w.Abort())
	}
	return w, nil
}

// claim takes an object for the caller alone, until release, and makes its directory if there is none. With
// known it may have one.
func (s *Store) claim(id object.ID, known bool) (of *snapshot.Store, err error) {
	s.mu.Lock()
	of = s.all[id]
	if id.IsZero() || s.busy[id] || of != nil && !known {
		s.mu.Unlock()
		return nil, ErrBusy
	}
	s.busy[id] = true
	s.mu.Unlock()
	if of != nil {
		return of, nil
	}
	if of, err = snapshot.OpenStore(s.fs, s.path(id)); err != nil {
		s.release(id, nil)
		return nil, err
	}
	return of, nil
}

// release ends what claim began; of is what is there now, or nil.
func (s *Store) release(id object.ID, of *snapshot.Store) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.busy, id)
	if of != nil {
		s.all[id] = of
	} else {
		delete(s.all, id)
	}
}

// Write appends to the content. The disk begins to write every 2 MiB of it at once. So the sync at the end
// is short, and a log on the same disk waits shortly.
func (w *Writer) Write(p []byte) (int, error) {
	if int64(len(p)) > w.most-w.bytes {
		return 0, fmt.Errorf("objects: write %v: it has more than %d bytes, the most that it may have", w.id, w.most)
	}
	n, err := w.content.Write(p)
	w.bytes += int64(n)
	return n, err
}

// Publish makes the object durable, content and names. Then it is in Store.List.
func (w *Writer) Publish() (info Info, err error) {
	if err = w.content.Close(); err == nil {
		err = w.publish()
	}
	if err != nil {
		return info, fmt.Errorf("objects: write %v: %w", w.id, err)
	}
	info, _ = w.store.Info(w.id)
	return info, nil
}

// publish makes the parts an object, and ends the Writer.
func (w *Writer) publish() error {
	if err := w.w.SyncParts(); err != nil {
		return err
	}
	if err := w.w.Publish(snapshot.Manifest{Index: the.Index, Term: the.Term}); err != nil {
		return err
	}
	w.ended = true
	w.store.release(w.id, w.of)
	return nil
}

// Abort removes what was written. It does nothing after Publish or another Abort.
func (w *Writer) Abort() (err error) {
	if w.ended {
		return nil
	}
	w.ended = true
	if w.w != nil {
		err = w.w.Abort()
	}
	if err == nil {
		err = w.of.Remove(the) // it may be published, and the last sync have failed
		if errors.Is(err, snapshot.ErrNotFound) {
			err = nil
		}
	}
	if err == nil {
		err = w.store.removeDir(w.id)
	}
	left := w.of
	if err == nil {
		left = nil
	}
	w.store.release(w.id, left) // what could not be removed, Remove tries again
	return err
}
