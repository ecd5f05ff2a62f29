package sim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"time"

	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/wal"
)

// The directory of a host is moved away while the host runs, or a filesystem is mounted over it. For the
// process paths lead elsewhere then, and what is open goes on. The host touches nothing there
// (property_directory.go). A group that needs another file stops and says why (vfs.ErrMoved). An operator
// brings the directory back, after a while or before a process starts, and restarts what has stopped.

// places are what is in the place of a directory: nothing, an empty directory, or one with the same
// directories in it, as a copy has them.
var places = []string{elsewhere + "/nothing", elsewhere + "/empty", elsewhere + "/copy"}

// runMoved moves the directory of a host away for a while.
func (h *machine) runMoved(rng *rand.Rand) {
	by, lasts := pick(rng, places...), between(rng, time.Millisecond, pick(rng, 20*time.Millisecond, 200*time.Millisecond, 2*time.Second))
	l := h.alive
	if l == nil || l.process == nil || l.isMoved || h.isTroubled() || !h.w.nemesis.mayFail(h) {
		return
	}
	h.w.count(MovedDirectories)
	h.w.well.ill()
	h.mayForget = h.mayForget || h.w.mode.Unsafe()
	h.mayLeave = true
	h.w.looking = true // an operator makes them
	for _, dir := range h.below(by) {
		_ = h.disk.MkdirAll(dir) // it fails in a crash only
	}
	h.w.looking = false
	l.isMoved, l.sawMoved = true, true
	l.paths.Cover("/home/"+directory, by)
	h.w.record(fmt.Sprintf("the directory of %s is moved away, and %s is in its place", l.name, by))
	h.w.plan(lasts, fmt.Sprintf("the directory of %s is back", l.name), l, l.moveBack)
}

// below returns the directories to make in a place.
func (h *machine) below(place string) (dirs []string) {
	if place == places[0] {
		return nil
	}
	if place == places[1] {
		return []string{place}
	}
	var visit func(dir string)
	visit = func(dir string) {
		names, err := h.disk.ReadDir(dir)
		if err != nil {
			return // a file
		}
		dirs = append(dirs, place+dir[len(directory):])
		for _, name := range names {
			visit(path.Join(dir, name))
		}
	}
	visit(directory)
	return dirs
}

// moveBack brings the directory back.
func (l *life) moveBack() {
	l.isMoved = false
	l.paths.Uncover()
	l.w.well.ill()
}

// excusesMove reports whether a directory that was moved away explains an error.
func (l *life) excusesMove(err error) bool { return l.sawMoved && errors.Is(err, vfs.ErrMoved) }

// startMoves moves directories of hosts away at random moments, in one run of eight. A random source of its
// own draws them, so other runs are what they are without them.
func (w *world) startMoves() {
	rng := splitSeed(w.options.Seed, 25)
	if rng.IntN(8) > 0 || w.options.small || w.mode.Kind == wal.KindMemory {
		return
	}
	mean := pick(rng, 100*time.Millisecond, 300*time.Millisecond, time.Second)
	var next func()
	next = func() {
		w.plan(between(rng, 0, 2*mean), "a directory is moved", nil, func() {
			if w.nemesis.stopped {
				return
			}
			if !w.nemesis.resting && !w.nemesis.calm {
				pick(rng, w.hosts...).runMoved(rng)
			}
			next()
		})
	}
	next()
}
