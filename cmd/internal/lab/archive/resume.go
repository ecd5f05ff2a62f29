package archive

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/vfs"
)

// A run that was cut short can be resumed: the repeats that are finished stay as they are, and the rest is
// added to them. Repeats are measured one after the other, in an order that follows from the seed, so the
// finished ones are the first of that order, without a gap. Nothing here removes a file: until the next Save
// the directory is what it was.
//
// Rejected: a second directory beside the first one, and a merge of both. The reports, the comparison and
// benchstat would have to know of it, and so would the user.

// holdFile keeps two processes from writing one archive. It is gone when the run has ended, and is of no
// meaning when its process has.
const holdFile = ".running"

// Hold makes this process the only one that writes the archive, until Close. The error names the field Out
// and wraps lab.ErrCannot if another one does. On systems without such locks Hold does nothing.
func (w *Writer) Hold() error {
	held, err := vfs.OS().Lock(filepath.Join(w.dir, holdFile))
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return nil
	case errors.Is(err, vfs.ErrLocked):
		return lab.Cannot("Out", "a run is writing to %s at this moment; wait until it has ended", w.dir)
	case err != nil:
		return lab.Cannot("Out", "cannot write to %s: %v", w.dir, lab.Cause(err))
	}
	w.held = held
	return nil
}

// Close lets other processes write the archive.
func (w *Writer) Close() error {
	if w.held == nil {
		return nil
	}
	return errors.Join(os.Remove(filepath.Join(w.dir, holdFile)), w.held.Close())
}

// Resume opens the archive of a run that was cut short, for the rest of it. The run is without the repeats
// that are marked partial, and without the points that had no others. finished is how many repeats are
// left; their orders are 0 to finished-1. The writer is held.
//
// Resume reads every file. Its errors are those of Read, but name the field Out. The archive of a run that is
// complete is returned without a writer.
func Resume(dir string) (_ *Writer, _ *Archive, finished int, err error) {
	a, err := readForWriting(dir)
	if err != nil || !a.Run.Partial {
		return nil, a, 0, err
	}
	w := &Writer{dir: dir}
	if err := w.Hold(); err != nil {
		return nil, nil, 0, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.Close())
		}
	}()
	if a, err = readForWriting(dir); err != nil { // again: no other process writes it now
		return nil, nil, 0, err
	}
	if err := a.checkHistograms(); err != nil {
		return nil, nil, 0, err
	}
	if finished, err = a.Run.dropUnfinished(); err != nil {
		return nil, nil, 0, damaged(dir, ResultFile, err.Error())
	}
	return w, a, finished, nil
}

func readForWriting(dir string) (*Archive, error) {
	a, err := Read(dir)
	var refused *lab.FieldError
	if errors.As(err, &refused) {
		return nil, lab.Cannot("Out", "%s", refused.Reason)
	}
	return a, err
}

// checkHistograms reads the latencies of every repeat.
func (a *Archive) checkHistograms() error {
	for _, p := range a.Run.Points {
		for _, r := range p.Repeats {
			if r.Histograms == "" {
				continue
			}
			intervals := 0
			err := a.ReadHistograms(r.Histograms, func(Interval) error { intervals++; return nil })
			if err == nil && intervals == 0 && r.Figures[Ops.Name] > 0 {
				err = damaged(a.Dir, r.Histograms, fmt.Sprintf("it has no latency, and the repeat has %.0f operations", r.Figures[Ops.Name]))
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// dropUnfinished removes the repeats that were cut short, with the points that had no others.
func (r *Run) dropUnfinished() (finished int, err error) {
	var orders []int
	r.Points = slices.DeleteFunc(r.Points, func(p Point) bool { // a point without any repeat is measured later
		return len(p.Repeats) > 0 && !slices.ContainsFunc(p.Repeats, func(of Repeat) bool { return !of.Partial })
	})
	for i := range r.Points {
		p := &r.Points[i]
		p.Repeats = slices.DeleteFunc(p.Repeats, func(of Repeat) bool { return of.Partial })
		for _, of := range p.Repeats {
			orders = append(orders, of.Order)
		}
	}
	slices.Sort(orders)
	for i, order := range orders {
		if order != i {
			return 0, fmt.Errorf("the repeat with order %d is missing or there twice, of %d that are finished", i, len(orders))
		}
	}
	return len(orders), nil
}

// Repeat returns the repeat of some order, with the name of its point; ok is false if there is none.
func (r *Run) Repeat(order int) (_ Repeat, point string, ok bool) {
	for _, p := range r.Points {
		for _, of := range p.Repeats {
			if of.Order == order {
				return of, p.Name, true
			}
		}
	}
	return Repeat{}, "", false
}
