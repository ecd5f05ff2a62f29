package experiment

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/cmd/internal/lab/report"
)

// A session that resumes a run does what the run did from its beginning: the same rounds in the same order,
// with the same seeds. Where a repeat comes that an earlier part has finished, it takes that from the archive
// (Finished) and does not measure. So a search over rates finds its way over the old answers, a peak that
// later loads are shares of stays the same, and the next repeat has the order, the seed and the file name
// that it would have had.
//
// Rejected: a list of what is left, kept in the archive. Each recipe would have to be able to begin anywhere
// in it, and nothing would notice that the recipe has changed.

// errComplete says that there is nothing to resume.
var errComplete = errors.New("the run is complete")

// open makes the archive of a new run, or opens the one that is resumed.
func (s *Session) open() (err error) {
	switch {
	case s.Resume && s.Out == "":
		return lab.Invalid("Resume", "give the directory of the run with {Out}")
	case s.Resume:
		return s.reopen()
	case s.Out == "":
		return nil
	}
	if s.writer, err = archive.Create(s.Out); err != nil {
		return err
	}
	return s.writer.Hold()
}

// close lets other processes write the archive.
func (s *Session) close() error {
	if s.writer == nil {
		return nil
	}
	return s.writer.Close()
}

// reopen takes over what an earlier part has finished. It changes nothing in the directory.
func (s *Session) reopen() error {
	w, a, finished, err := archive.Resume(s.Out)
	if err != nil {
		return err
	}
	s.writer = w
	if err := s.sameRun(a.Run); err != nil {
		return err
	}
	if !a.Run.Partial {
		return errComplete
	}
	if finished == 0 {
		return nil // it begins at the beginning
	}
	s.finished = finished
	s.Env = a.Envs
	s.Env.Resumed = slices.DeleteFunc(s.Env.Resumed, func(p archive.PartEnvironment) bool { return p.FromOrder >= finished })
	s.Archive = *a.Run
	s.Archive.Criteria, s.Archive.References, s.Archive.Omitted = nil, nil, nil // they are made again
	s.Archive.Warnings = slices.DeleteFunc(s.Archive.Warnings, func(w archive.Warning) bool { return w.Code == archive.WarnPartial })
	for i, p := range s.Archive.Points {
		s.points[p.Name] = i
	}
	s.Progress = &untold{Progress: s.Progress, finished: s.hasFinished}
	return nil
}

// sameRun refuses an archive of another run than this one would be.
func (s *Session) sameRun(r *archive.Run) error {
	if r.Recipe != s.Recipe {
		return lab.Cannot("Resume", "%s has a run of %s, and this is one of %s; give the directory of such a run", s.Out, r.Recipe, s.Recipe)
	}
	if r.Seed != s.Seed {
		return lab.Cannot("Resume", "the run in %s has the seed %d, and this one has %d", s.Out, r.Seed, s.Seed)
	}
	var other []string
	for _, name := range slices.Sorted(maps.Keys(r.Config)) {
		if now, known := s.Config[name]; !slices.Contains(s.Aside, name) && (!known || now != r.Config[name]) {
			other = append(other, fmt.Sprintf("%s: %s and %s", name, cmp.Or(r.Config[name], "none"), cmp.Or(now, "none")))
		}
	}
	if len(other) > 0 {
		return lab.Cannot("Resume", "the run in %s was begun with other settings than these: %s. It was begun with: %s", s.Out, strings.Join(other, "; "), strings.Join(r.Command, " "))
	}
	return nil
}

// enter notes where this part of the run is made. It refuses another machine or program than that of the
// first part.
func (s *Session) enter(here archive.Environment) error {
	if s.finished == 0 {
		s.Env.Load = here
		return nil
	}
	refused, remarks := s.Env.Load.Resumable(here)
	if len(refused) > 0 {
		return lab.Cannot("Resume", "the run in %s was begun elsewhere, and its figures would not compare with these: %s; resume it where it was begun, or begin another one, in another directory", s.Out, strings.Join(refused, "; "))
	}
	for _, remark := range remarks {
		s.Warn(archive.WarnResumed, "Between two parts of the run: %s.", remark)
	}
	s.Env.Resumed = append(s.Env.Resumed, archive.PartEnvironment{FromOrder: s.finished, Environment: here})
	return nil
}

// here is the environment of the present part.
func (s *Session) here() *archive.Environment {
	if n := len(s.Env.Resumed); n > 0 {
		return &s.Env.Resumed[n-1].Environment
	}
	return &s.Env.Load
}

// partsText begins the warning that tells the parts of a run.
const partsText = "The run was made in "

// tellParts says of which parts the run is made, as it is now.
func (s *Session) tellParts() {
	if len(s.Env.Resumed) == 0 {
		return
	}
	s.Archive.Warnings = slices.DeleteFunc(s.Archive.Warnings, func(w archive.Warning) bool {
		return w.Code == archive.WarnResumed && strings.HasPrefix(w.Text, partsText)
	})
	var parts []string
	from, began := 0, s.Archive.Began
	add := func(to int, next time.Time) {
		parts = append(parts, fmt.Sprintf("%s from %s on", report.Plural(to-from, "repeat"), began.UTC().Format("2006-01-02 15:04:05")))
		from, began = to, next
	}
	for _, p := range s.Env.Resumed {
		add(p.FromOrder, p.Time)
	}
	add(max(s.order, s.finished), time.Time{})
	s.Warn(archive.WarnResumed, partsText+"%d parts: %s (UTC). Medians and ratios over several parts have in them what changed between these; env.json has the environment of each.",
		len(parts), strings.Join(parts, ", "))
}

// hasFinished reports whether an earlier part has finished the repeat that comes next.
func (s *Session) hasFinished() bool { return s.order < s.finished }

// Finished returns the repeat that comes next, if an earlier part of the run has finished it. It must be of
// the named point. The caller then continues as if it had measured it. Every measurement that does not go
// through Measure or Window asks first. The error says that the run in the archive is another one.
func (s *Session) Finished(point string) (r archive.Repeat, done bool, err error) {
	if !s.hasFinished() {
		return r, false, nil
	}
	r, of, _ := s.Archive.Repeat(s.order)
	if of != point {
		return r, false, lab.Cannot("Resume", "repeat %d of the run in %s is of the point %q, and here it would be of %q: it was begun by another program", s.order, s.Out, of, point)
	}
	s.order++
	return r, true, nil
}

// Passed reports whether an earlier part of the run has finished all of the next n repeats, and steps over
// them. It is for what many repeats need together: a cluster that is opened once.
func (s *Session) Passed(n int) bool {
	if s.finished-s.order < n {
		return false
	}
	s.order += n
	return true
}

// steppedOver refuses the end of a run that has come before all that is finished.
func (s *Session) steppedOver() error {
	if s.hasFinished() {
		return lab.Cannot("Resume", "the run in %s has %s, and here it ends after %d: it was begun by another program", s.Out, report.Plural(s.finished, "repeat"), s.order)
	}
	return nil
}

// writeComplete says that nothing is left to do.
func writeComplete(out io.Writer, dir string) error {
	_, err := fmt.Fprintf(out, "The run in %s is complete: nothing is left to resume. A page of it: millrace lab report %s\n", dir, dir)
	return err
}

// untold tells nothing of points that are finished.
type untold struct {
	report.Progress
	finished func() bool
	silent   bool // the present point is finished
}

// Point implements report.Progress.
func (u *untold) Point(i int, name string, window time.Duration) {
	if u.silent = u.finished(); !u.silent {
		u.Progress.Point(i, name, window)
	}
}

// Phase implements load.Observer.
func (u *untold) Phase(name string) {
	if !u.silent {
		u.Progress.Phase(name)
	}
}

// Live implements load.Observer.
func (u *untold) Live(now func() load.Live) {
	if !u.silent {
		u.Progress.Live(now)
	}
}

// PointDone implements report.Progress.
func (u *untold) PointDone(r report.Result) {
	if !u.silent {
		u.Progress.PointDone(r)
	}
}
