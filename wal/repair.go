package wal

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs"
)

// A repair is salvaging (salvage.go) for somebody who wants to know beforehand what it will cost, and afterwards what it
// did cost: everything from the first damage on is given up, whole as it may be, and what is kept is the state of some
// moment in the past. The host must not vote with it before it has caught up: the fence says amnesia.
//
// A plan is the same repair on an overlay of the disk, whose changes stay in memory. So there is one way to repair, and
// no second opinion of what it would do. What is lost is what an inspection found before and does not find after.
//
// Rejected: to keep what is valid behind the damage (a truncation or a vote may be in the hole).

// RepairOptions configure RepairLog.
type RepairOptions struct {
	InspectOptions // FS is written to only if Write is set
	// Write says that the repair is to be done. Otherwise it is only planned, and nothing is changed.
	Write bool
	// AcceptLoss says that the log shall not remember that it may lack something: it will vote at once. That is right
	// only if no peer has what it lacks, and somebody has decided that it is lost.
	AcceptLoss bool
}

// Repair is what a repair does, or would do.
type Repair struct {
	// Refused says why nothing can be done; "" if something can.
	Refused string `json:"refused,omitempty"`
	// Needed means that there is something to do.
	Needed bool `json:"needed"`
	// Findings are what was wrong with the log.
	Findings []Finding `json:"findings"`
	// Steps are the changes to files, in order. Of a repair that was done they are what had been planned.
	Steps []RepairStep `json:"steps"`
	// Losses are the groups that are not as they were: what this repair gives up, and what earlier ones gave up since the
	// log last held everything.
	Losses []GroupLoss `json:"losses"`
	// LossUnknown means that there may be more: what earlier repairs gave up is not known, or a power cut took it.
	LossUnknown bool `json:"loss_unknown"`
	// Fence is what is written down about the log's past when it is repaired.
	Fence FenceInfo `json:"fence"`
	// Done means that it is all written, durable, and the log was read again and found whole.
	Done bool `json:"done"`
}

// RepairStep is a change to one file.
type RepairStep struct {
	Action string `json:"action"` // create, write, rename, remove
	File   string `json:"file"`
	To     string `json:"to,omitempty"` // of a rename
	Bytes  int64  `json:"bytes,omitempty"`
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
// is vfs.ErrLocked. Whether something can be done at all is in Repair.Refused. A repair that was interrupted can be
// repeated.
func RepairLog(ctx context.Context, opts RepairOptions) (_ *Repair, err error) {
	if opts.FS == nil {
		opts.FS = vfs.OS()
	}
	before, err := Inspect(ctx, opts.InspectOptions)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, before.Close()) }()
	if opts.Write && before.InUse() {
		return nil, fmt.Errorf("wal: %w", &vfs.LockedError{Path: filepath.Join(opts.Dir, "LOCK")})
	}
	r := &Repair{Findings: before.Findings, Fence: before.Fence, LossUnknown: before.lossUnknown()}
	if before.Fence.Amnesia {
		r.Losses = before.losses(before)
	}
	r.decide(before, opts.AcceptLoss)
	if r.Refused != "" || !r.Needed {
		return r, nil
	}
	overlay := vfs.NewOverlay(opts.FS)
	if err := r.salvage(ctx, before, overlay, opts); err != nil {
		return r, err
	}
	for _, c := range overlay.Changes() {
		step := RepairStep{Action: c.Action, File: filepath.Base(c.Name), Bytes: c.Bytes}
		if c.To != "" {
			step.To = filepath.Base(c.To)
		}
		r.Steps = append(r.Steps, step)
	}
	if err := context.Cause(ctx); err != nil || !opts.Write {
		return r, err
	}
	if err := r.salvage(ctx, before, opts.FS, opts); err != nil {
		return r, err
	}
	r.Done = true
	return r, nil
}

// decide says whether something is to be done, and whether it can be.
func (r *Repair) decide(in *Inspection, acceptLoss bool) {
	r.Needed = acceptLoss && in.Fence.Amnesia
	for _, f := range in.Findings {
		switch {
		case f.Kind == Unreadable:
			r.Refused = fmt.Sprintf("%s; this is not damage that a cut could mend", f.Reason)
		case f.Kind == Damaged:
			r.Needed = true
		}
	}
	if r.Needed && in.Owner == 0 && r.Refused == "" {
		r.Refused = "no segment says which host the log belongs to; let the host join anew with an empty directory"
	}
}

// salvage repairs the log on a disk, real or not, and says what that cost.
func (r *Repair) salvage(ctx context.Context, before *Inspection, disk vfs.FS, opts RepairOptions) error {
	l, err := Open(Options{FS: disk, Dir: opts.Dir, Owner: before.Owner, SegmentBytes: before.segmentBytes(), Salvage: true, Scheduler: noHelper{}})
	if err != nil {
		return err
	}
	if opts.AcceptLoss {
		err = l.CaughtUp()
	}
	if err := errors.Join(err, l.Close()); err != nil {
		return err
	}
	look := opts.InspectOptions
	look.FS = disk
	after, err := Inspect(ctx, look)
	if err != nil {
		return fmt.Errorf("wal: the repair is done, and the log cannot be read again: %w", err)
	}
	r.Losses, r.Fence = before.losses(after), after.Fence
	for _, f := range after.Findings {
		if f.Kind == Warned {
			continue
		}
		err = errors.Join(err, fmt.Errorf("wal: the repair is done, and the log is still not whole: %s at offset %d: %s", f.File, f.Offset, f.Reason))
	}
	return errors.Join(err, after.Close())
}

// segmentBytes is the size of segment that the log was written with, as far as can be told: what most files have.
func (in *Inspection) segmentBytes() (size int64) {
	files := map[int64]int{}
	for _, f := range in.Spares {
		files[f.Bytes]++
	}
	for _, s := range in.Segments {
		files[s.Bytes]++
	}
	for bytes, n := range files {
		if n > files[size] || n == files[size] && bytes > size {
			size = bytes
		}
	}
	return min(max(size, minSegmentBytes), maxSegmentBytes)
}

// losses compares what the log held with what it holds now.
func (in *Inspection) losses(after *Inspection) (losses []GroupLoss) {
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
	for _, h := range in.Missing {
		if h.First <= h.Through {
			had[h.Group] = append(had[h.Group], EntryRange{h.Group, h.First, h.Through})
		}
		states[h.Group] = states[h.Group] || h.State || h.Term > in.scan.table.group(h.Group).hs.Term
	}
	for _, g := range in.scan.table.allGroups() {
		for i := range g.index.runs {
			had[g.id] = append(had[g.id], EntryRange{g.id, g.index.runs[i].lo, g.index.runs[i].hi() - 1})
		}
		is := after.scan.table.group(g.id)
		loss := GroupLoss{Group: g.id, Through: is.last, Lost: joinRanges(after.gone(had[g.id], 0)), StateWas: g.hs, StateIs: is.hs}
		loss.StateLost = states[g.id] || g.hs.Term != is.hs.Term || g.hs.Vote != is.hs.Vote
		if len(loss.Lost) > 0 || loss.StateLost || g.start != is.start {
			losses = append(losses, loss)
		}
	}
	return losses
}

// lossUnknown reports whether the log may lack what nobody can name.
func (in *Inspection) lossUnknown() bool {
	return in.MissingUnknown || in.Fence.Amnesia && len(in.Missing) == 0
}

// noHelper is a scheduler that runs nothing: a repair needs no helper.
type noHelper struct{}

func (noHelper) Go(string, env.Kind, env.Worker) env.Task { return noHelper{} }
func (noHelper) Wake()                                    {}
func (noHelper) Stop()                                    {}
