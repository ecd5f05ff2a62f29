package host

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sort"

	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/wal"
)

// tombstones are the ids of the groups that were removed from a host, as ranges in ascending order. They are
// in removed.json, which is written before the group is deleted from the log: a crash in between leaves a
// group that is deleted when the host starts again (sweepRemoved).
//
// The file grows with the ranges, so ids that are given in order, and removed in any, keep it small.
type tombstones []idRange

// idRange is the ids from First through Last.
type idRange struct {
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
}

const (
	removedFile        = "removed.json"
	removedFileVersion = 1
)

type removedText struct {
	Version int        `json:"version"`
	Groups  tombstones `json:"groups"`
}

func compare(a, b uint64) int { return cmp.Compare(a, b) }

func (t tombstones) has(id uint64) bool {
	i := sort.Search(len(t), func(i int) bool { return t[i].Last >= id })
	return i < len(t) && t[i].First <= id
}

// with returns the tombstones and one more. t is not changed.
func (t tombstones) with(id uint64) tombstones {
	if t.has(id) {
		return t
	}
	i := sort.Search(len(t), func(i int) bool { return t[i].Last >= id })
	joinsLeft := i > 0 && t[i-1].Last+1 == id
	joinsRight := i < len(t) && id+1 == t[i].First
	more := slices.Clone(t)
	switch {
	case joinsLeft && joinsRight:
		more[i-1].Last = more[i].Last
		return slices.Delete(more, i, i+1)
	case joinsLeft:
		more[i-1].Last = id
	case joinsRight:
		more[i].First = id
	default:
		return slices.Insert(more, i, idRange{id, id})
	}
	return more
}

// valid reports whether the ranges are in order and apart.
func (t tombstones) valid() bool {
	for i, r := range t {
		if r.First == 0 || r.Last < r.First || i > 0 && r.First <= t[i-1].Last {
			return false
		}
	}
	return true
}

// readTombstones reads what a directory remembers of removed groups.
func readTombstones(fsys vfs.FS, dir string) (tombstones, error) {
	path := filepath.Join(dir, removedFile)
	var text removedText
	found, err := readWhole(fsys, path, &text)
	switch {
	case errors.Is(err, errDamaged) || err == nil && !text.Groups.valid():
		return nil, fmt.Errorf("millrace: %s is damaged; it names the groups that were removed from this host; restore it, or delete it if no message for a removed group can be under way and no removed id is opened again", path)
	case err != nil:
		return nil, err
	case found && text.Version != removedFileVersion:
		return nil, fmt.Errorf("millrace: %s has version %d, this program supports only version %d; use a newer program", path, text.Version, removedFileVersion)
	}
	return text.Groups, nil
}

// bury records durably that a group is removed. Calls wait for one another.
func (t *groupTable) bury(h *Host, id uint64) error {
	t.burying.Lock()
	defer t.burying.Unlock()
	t.mu.RLock()
	g, taken := t.open[id]
	before := t.removed
	t.mu.RUnlock()
	if taken && g == nil {
		return fmt.Errorf("millrace: group %d is being opened; remove it when OpenGroup has returned", id)
	}
	after := before.with(id)
	if !before.has(id) {
		if err := writeWhole(h.env.fs, h.config.Dir, removedFile, removedText{removedFileVersion, after}); err != nil {
			return err
		}
	}
	t.mu.Lock()
	t.removed = after
	t.mu.Unlock()
	return nil
}

// sweepRemoved deletes from the log what a removal before has left.
func sweepRemoved(log *wal.Log, removed tombstones) error {
	var writes []wal.Write
	for _, id := range slices.Sorted(slices.Values(log.Groups())) { // a simulation repeats this
		if removed.has(id) {
			writes = append(writes, wal.Write{Group: id, Delete: true})
		}
	}
	if len(writes) == 0 {
		return nil
	}
	err := log.Append(writes)
	if err == nil {
		err = log.Sync()
	}
	if err != nil && !errors.Is(err, wal.ErrDiskFull) { // then later
		return fmt.Errorf("millrace: delete %d removed groups from the log: %w", len(writes), err)
	}
	return nil
}
