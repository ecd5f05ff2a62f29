//go:build linux

package chaos

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
)

// wholeLog is the committed log from its first entry, put together from the logs of members and copies of
// them. Pieces overlap, and where two of them have lines these are the same.
type wholeLog struct {
	lines   []logLine
	marks   map[string]linePlace // where each mark came first
	waiting [][]logLine          // pieces that begin behind lines
	shared  int                  // lines that were compared
}

// linePlace is the place of a line in the log.
type linePlace struct {
	index uint64
	pos   uint32
}

func (l logLine) where() linePlace { return linePlace{l.Index, l.Pos} }

func (p linePlace) compare(o linePlace) int {
	return cmp.Or(cmp.Compare(p.index, o.index), cmp.Compare(p.pos, o.pos))
}

// add adds a piece, and those that have waited for it.
func (w *wholeLog) add(piece []logLine) error {
	if len(piece) == 0 {
		return nil
	}
	w.waiting = append(w.waiting, piece)
	for again := true; again; {
		again = false
		for k := 0; k < len(w.waiting); {
			joined, err := w.join(w.waiting[k])
			if err != nil {
				return err
			}
			if !joined {
				k++
				continue
			}
			w.waiting, again = slices.Delete(w.waiting, k, k+1), true
		}
	}
	return nil
}

// join adds a piece that begins in the lines, or reports that it does not.
func (w *wholeLog) join(piece []logLine) (bool, error) {
	if len(w.lines) == 0 && piece[0].Revision == 0 {
		return false, nil // a log from its first entry has revisions
	}
	piece = w.once(piece)
	shared, err := sameLines(w.lines, piece)
	if err != nil {
		return false, err
	}
	if len(w.lines) > 0 && len(piece) > 0 && shared == 0 {
		return false, nil
	}
	w.shared += shared
	for _, l := range piece {
		if n := len(w.lines); n > 0 && l.compare(w.lines[n-1]) <= 0 {
			continue
		}
		if w.lines = append(w.lines, l); l.Mark != "" {
			if w.marks == nil {
				w.marks = map[string]linePlace{}
			}
			w.marks[l.Mark] = l.where()
		}
	}
	return true, nil
}

// once leaves out commands that came before the piece begins: a member has sent them again, and they were
// applied once.
func (w *wholeLog) once(piece []logLine) []logLine {
	var kept []logLine
	for _, l := range piece {
		if first, known := w.marks[l.Mark]; !known || first.compare(l.where()) >= 0 {
			kept = append(kept, l)
		}
	}
	return kept
}

// complete says which piece has no other one before it.
func (w *wholeLog) complete() error {
	if len(w.waiting) > 0 || len(w.lines) == 0 {
		return fmt.Errorf("%d lines are known from the first one, and %d pieces begin behind them; the first of those at %v", len(w.lines), len(w.waiting), firstOf(w.waiting))
	}
	return nil
}

func firstOf(pieces [][]logLine) (first linePlace) {
	for k, p := range pieces {
		if k == 0 || p[0].where().compare(first) < 0 {
			first = p[0].where()
		}
	}
	return first
}

// TestWholeLog puts pieces together, in any order, and finds what does not fit.
func TestWholeLog(t *testing.T) {
	line := func(index uint64, revision int64, mark string) logLine {
		return logLine{Index: index, Revision: revision, Mark: mark, hash: index}
	}
	head := []logLine{line(1, 1, ""), line(2, 2, "a.1"), line(3, 3, "b.1")}
	middle := []logLine{line(3, 0, "b.1"), line(4, 0, ""), line(6, 0, "c.1")} // entry 5 repeats a.1, which another log shows
	again := []logLine{line(4, 0, ""), line(5, 0, "a.1"), line(6, 0, "c.1"), line(7, 0, "")}
	wrong, torn := slices.Clone(middle), slices.Clone(again)
	wrong[1].hash++
	torn = slices.Delete(torn, 2, 3)
	revised := slices.Clone(head)
	revised[1].Revision++
	for name, row := range map[string]struct {
		pieces     [][]logLine
		lines      int
		err, whole bool // add fails; all pieces were joined
	}{
		"in order":         {[][]logLine{head, middle, again}, 6, false, true},
		"backwards":        {[][]logLine{again, middle, head}, 6, false, true},
		"a gap":            {[][]logLine{head, again}, 3, false, false},
		"no beginning":     {[][]logLine{middle, again}, 0, false, false},
		"another line":     {[][]logLine{head, middle, wrong}, 6, true, true},
		"a line is lost":   {[][]logLine{head, middle, torn}, 6, true, true},
		"another revision": {[][]logLine{head, revised}, 3, true, true},
	} {
		w := &wholeLog{}
		var err error
		for _, p := range row.pieces {
			if err = w.add(p); err != nil {
				break
			}
		}
		if (err != nil) != row.err || !row.err && (w.complete() == nil) != row.whole || len(w.lines) < row.lines && !row.err {
			t.Errorf("%s: %v, complete: %v, lines %v", name, err, w.complete(), w.lines)
		}
	}
}
