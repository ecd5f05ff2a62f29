package wal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs"
)

// Repair makes a damaged log one that Open accepts, at a price that it names: everything from the first damage on is
// given up, whole as it may be, because the log is one sequence and a record proves only that it follows what is before
// it. What is kept is the state of some moment in the past, as if the host had slept since. Such a host must not vote:
// it may have given its word since then. So the first thing that is written is the amnesia of fence.go, which stays until
// the log has caught up from its peers.
//
//	amnesia, durable ── copy what will be changed ── set aside what is dropped, highest first ── cut, front, truncations ── sync
//
// A repair that is interrupted leaves a log with amnesia that Open refuses or accepts, and either is right; the next
// repair goes on from what it finds. Nothing is deleted: files that are dropped, and copies of those that are changed,
// stay beside the log under names that it does not know (backup.go).
//
// Rejected: to keep what is valid behind the damage (a truncation or a vote may be in the hole), and to repair in Open
// (a disk that loses data is a thing somebody should hear of).

// RepairOptions configure Repair.
type RepairOptions struct {
	InspectOptions
	// Write says that the repair is to be done. Otherwise it is only planned, and nothing is changed.
	Write bool
}

// Repair is what a repair does, or would do.
type Repair struct {
	// Refused says why nothing can be done; "" if something can.
	Refused string
	// Damage is the finding at which the log is cut; nil if the log is whole.
	Damage *Finding
	// Steps are the changes to files, in order.
	Steps []RepairStep
	// Losses are the groups that are not as they were.
	Losses []GroupLoss
	// NeedBytes is the room that the copies take.
	NeedBytes int64
	// Done means that it is all written, durable, and the log was read again and found whole.
	Done bool

	keep  []FileInfo
	drop  []FileInfo
	front bool
}

// RepairStep is a change to one file.
type RepairStep struct {
	Action string `json:"action"`           // write, copy, set aside, cut, append
	File   string `json:"file"`             // name
	Offset int64  `json:"offset,omitempty"` // of a cut
	Bytes  int64  `json:"bytes"`
	To     string `json:"to,omitempty"` // the new name; in a plan the first that may be free
	Reason string `json:"reason"`
}

// GroupLoss is what a group loses.
type GroupLoss struct {
	Group     uint64           `json:"group"`
	Through   uint64           `json:"through"` // the last entry that is left; 0 if none is
	Lost      []EntryRange     `json:"lost"`    // as far as is known
	StateWas  raftpb.HardState `json:"-"`
	StateIs   raftpb.HardState `json:"-"`
	StateLost bool             `json:"state_lost"` // a later term or vote stood in what is given up
}

// RepairLog plans a repair of a log, and does it if opts.Write is set. A log that is in use cannot be repaired: the error
// is vfs.ErrLocked. Whether something can be done at all is in Repair.Refused.
func RepairLog(ctx context.Context, opts RepairOptions) (r *Repair, err error) {
	disk := opts.FS
	if disk == nil {
		disk = vfs.OS()
	}
	if !opts.Write {
		return planRepair(ctx, opts.InspectOptions)
	}
	if _, err := disk.ReadDir(opts.Dir); err != nil {
		return nil, fmt.Errorf("wal: %w", err) // before a lock file is made
	}
	lock, err := disk.Lock(filepath.Join(opts.Dir, "LOCK"))
	if err != nil {
		return nil, fmt.Errorf("wal: %w", err)
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	r, err = planRepair(ctx, opts.InspectOptions)
	if err != nil || r.Refused != "" || r.Damage == nil {
		return r, err
	}
	if err := r.do(ctx, disk, opts.Dir); err != nil {
		return r, fmt.Errorf("wal: repair of %s: %w", opts.Dir, err)
	}
	in, err := Inspect(ctx, opts.InspectOptions)
	if err != nil {
		return r, fmt.Errorf("wal: the repair is written, and the log cannot be read again: %w", err)
	}
	for _, f := range in.Findings {
		if f.Kind != TornEnd {
			err = fmt.Errorf("wal: the repair is written, and the log is still not whole: %s at offset %d: %s", f.File, f.Offset, f.Reason)
		}
	}
	r.Done = err == nil
	return r, errors.Join(err, in.Close())
}

// planRepair decides.
func planRepair(ctx context.Context, opts InspectOptions) (_ *Repair, err error) {
	in, err := Inspect(ctx, opts)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	r := &Repair{}
	if r.Refused = r.decide(in); r.Refused != "" || r.Damage == nil {
		return r, nil
	}
	kept, found, err := replayKept(in.log.opts, r.keep)
	if err != nil {
		return nil, errors.Join(err, kept.closeFiles())
	}
	r.front = found.checkFront(kept.front) != nil
	r.planSteps(in, kept, found.last())
	return r, kept.closeFiles()
}

// decide finds what to keep, or returns why there is nothing to be done.
func (r *Repair) decide(in *Inspection) (refused string) {
	var at *Finding // where the sequence of records breaks
	for i := range in.Findings {
		f := &in.Findings[i]
		switch {
		case f.Kind == Unreadable:
			return fmt.Sprintf("%s; this is not damage that a cut could mend", f.Reason)
		case f.Kind == Damaged && f.Rule == ruleFence:
			return fmt.Sprintf("%s: %s. Which incarnation this log was is lost with it: let the host join anew with an empty directory", f.File, f.Reason)
		case f.Kind != Damaged:
			continue
		}
		if r.Damage == nil {
			r.Damage = f
		}
		if at == nil && f.breaksSequence() {
			at = f
		}
	}
	if r.Damage == nil {
		return ""
	}
	r.sort(in, at)
	if len(r.keep) == 0 {
		return fmt.Sprintf("nothing stands before the damage in %s that could be kept; let the host join anew with an empty directory", r.Damage.File)
	}
	return ""
}

// breaksSequence reports whether nothing behind f can be kept. If only segments before the first are missing (R7), or
// entries of some groups (R9), all records are valid, and the groups that have a hole are cut.
//
// Seen in TestRepairIsRepeatable: a repair that was interrupted may itself have set aside the front that R7 misses.
func (f *Finding) breaksSequence() bool { return f.Rule != "R7" && f.Rule != "R9" }

// sort decides which segments are kept, if the sequence of records breaks at f; nil: it does not.
func (r *Repair) sort(in *Inspection, f *Finding) {
	cut, inside := in.cutAt(f)
	last := uint64(0) // with a record: the log goes on in it, and what was prepared behind it is in the way
	for _, t := range in.traces {
		if t.records > 0 && (t.seg.id < cut || t.seg.id == cut && inside) {
			last = t.seg.id
		}
	}
	for _, s := range in.Segments {
		file := FileInfo{Name: s.Name, Bytes: s.Bytes}
		if s.ID <= last {
			r.keep = append(r.keep, file)
		} else {
			r.drop = append(r.drop, file)
		}
	}
}

// cutAt returns the first segment that cannot be kept whole, and whether its beginning can.
func (in *Inspection) cutAt(f *Finding) (segment uint64, inside bool) {
	if f == nil {
		return in.Segments[len(in.Segments)-1].ID, true
	}
	id, _ := parseSegmentName(filepath.Base(f.File))
	for _, t := range in.traces {
		if t.seg.id == id {
			return id, t.records > 0 && t.end == f.Offset
		}
	}
	return id, false
}

// replayKept replays only the segments that are kept. Its files are open for writing if opts.FS lets them be.
func replayKept(opts Options, keep []FileInfo) (*Log, traces, error) {
	l := emptyLog(opts)
	var found traces
	var buf []byte
	for _, file := range keep {
		id, _ := parseSegmentName(file.Name)
		t, b, err := l.scanFile(id, buf)
		if err != nil {
			return l, nil, err
		}
		found, buf = append(found, t), b
	}
	if found.last() == nil {
		return l, nil, fmt.Errorf("%w: no record is left to keep", ErrCorrupt)
	}
	return l, found, nil
}

// holes returns, for each group whose entries have a hole, the first index that is missing.
func (l *Log) holes() (holes []entryPlace) {
	for _, g := range l.allGroups() {
		if lo, _, ok := g.index.gap(g.start.index + 1); ok {
			holes = append(holes, entryPlace{g, lo})
		}
	}
	return holes
}

type entryPlace struct {
	group *Group
	index uint64
}

// planSteps says what will be done to which file, and what the groups lose by it.
func (r *Repair) planSteps(in *Inspection, kept *Log, tail *trace) {
	name := filepath.Base(tail.seg.path)
	r.NeedBytes = tail.seg.size
	add := func(action, file string, bytes int64, to, reason string) *RepairStep {
		r.Steps = append(r.Steps, RepairStep{Action: action, File: file, Bytes: bytes, To: to, Reason: reason})
		return &r.Steps[len(r.Steps)-1]
	}
	add("write", fenceName, fenceBytes, "", "amnesia: the host must not vote before it has caught up from its peers")
	add("copy", name, tail.seg.size, backupName(name, 1), "it will be changed")
	for _, file := range slices.Backward(r.drop) {
		add("set aside", file.Name, file.Bytes, backupName(file.Name, 1), "it stands behind what is kept")
	}
	add("cut", name, tail.written-tail.end, "", "the valid records end here").Offset = tail.end
	if r.front {
		add("append", name, recordBytes(0), "", "a front, as the one that allowed earlier segments to be missing is given up")
	}
	for _, hole := range kept.holes() {
		add("append", name, recordBytes(0), "", fmt.Sprintf("a truncation of group %d from index %d on: its entries before %d stood behind the damage",
			hole.group.id, hole.index, hole.group.index.marks[hole.group.index.find(hole.index)].lo))
		hole.group.truncate(hole.index)
	}
	kept.clampCommits()
	r.Losses = in.losses(kept)
}

// losses compares what the log held with what is kept.
func (in *Inspection) losses(kept *Log) (losses []GroupLoss) {
	rest := &Inspection{log: kept}
	had := map[uint64][]EntryRange{}
	states := map[uint64]bool{}
	for _, f := range in.Findings {
		for _, r := range f.Lost {
			had[r.Group] = append(had[r.Group], r)
		}
		for _, id := range f.LostStates {
			states[id] = true
		}
	}
	for _, g := range in.log.allGroups() {
		for i := range g.index.marks {
			had[g.id] = append(had[g.id], EntryRange{g.id, g.index.marks[i].lo, g.index.marks[i].hi() - 1})
		}
		k := kept.Group(g.id)
		loss := GroupLoss{Group: g.id, Through: k.last, Lost: rest.gone(had[g.id]), StateWas: g.hs, StateIs: k.hs}
		loss.StateLost = states[g.id] || g.hs.Term != k.hs.Term || g.hs.Vote != k.hs.Vote
		if len(loss.Lost) > 0 || loss.StateLost || g.start != k.start {
			losses = append(losses, loss)
		}
	}
	slices.SortFunc(losses, func(a, b GroupLoss) int { return cmp.Compare(a.Group, b.Group) })
	return losses
}

// do carries the plan out. The lock is held.
func (r *Repair) do(ctx context.Context, disk vfs.FS, dir string) error {
	l := emptyLog(Options{FS: disk, Dir: dir})
	f, err := l.readFence()
	if err != nil {
		return err
	}
	f.flags |= flagAmnesia
	f.incarnation++
	if err := l.writeFence(f); err != nil {
		return err
	}
	for i := range r.Steps {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		step := &r.Steps[i]
		switch step.Action {
		case "copy":
			step.To, err = copyAside(disk, dir, step.File)
		case "set aside":
			step.To, err = setAside(disk, dir, step.File)
		}
		if err != nil {
			return err
		}
	}
	return r.cut(disk, dir)
}

// cut makes what is kept a log of its own, with recovery's own means.
func (r *Repair) cut(disk vfs.FS, dir string) (err error) {
	last := r.keep[len(r.keep)-1]
	owner, err := ownerOf(disk, filepath.Join(dir, last.Name))
	if err != nil {
		return err
	}
	opts := Options{FS: disk, Dir: dir, Owner: owner, SegmentBytes: min(max(last.Bytes, minSegmentBytes), maxSegmentBytes)}
	l, found, err := replayKept(opts, r.keep)
	defer func() { err = errors.Join(err, l.closeFiles()) }()
	if err != nil {
		return err
	}
	holes := l.holes()
	for _, hole := range holes {
		hole.group.truncate(hole.index)
	}
	if err := l.adoptTail(found.last()); err != nil {
		return err
	}
	if r.front {
		if _, err := l.put(header{kind: kindFront, index: found[0].seg.id}, nil); err != nil {
			return err
		}
	}
	for _, hole := range holes {
		if _, err := l.put(header{kind: kindTruncate, group: hole.group.id, index: hole.index}, nil); err != nil {
			return err
		}
	}
	if err := l.flush(); err != nil {
		return err
	}
	return l.seal()
}

// ownerOf returns the host that a segment names.
func ownerOf(disk vfs.FS, path string) (owner uint64, err error) {
	f, err := disk.Open(path)
	if err != nil {
		return 0, err
	}
	var b [segmentHead]byte
	_, err = f.ReadAt(b[:], 0)
	head, ok := parseSegmentHead(b[:])
	if err == nil && !ok {
		err = &CorruptError{File: path, Reason: "the segment header is damaged"}
	}
	return head.owner, errors.Join(err, f.Close())
}
