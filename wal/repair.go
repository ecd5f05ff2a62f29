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

// A repair is a salvage (salvage.go) that says beforehand what it will cost, and afterwards what it did
// cost. Everything behind the first damage is given up, even what is whole; what is kept is the state of
// some moment in the past. The host must not vote with it before it has caught up: the fence says amnesia.
//
// A plan is the same repair on an overlay of the disk, whose changes stay in memory. So there is one way to
// repair, and the plan cannot differ from it. The loss is what an inspection finds before the repair and
// not after it.
//
// Rejected: keeping what is valid behind the damage (a truncation or a vote may be in the hole).

// RepairOptions configure RepairLog.
type RepairOptions struct {
	InspectOptions // FS is written to only if Write is set
	// Write makes the repair change the log. Otherwise it is only planned, and nothing is changed.
	Write bool
	// AcceptLoss makes the log forget that it may lack something: its member will vote at once. That is
	// right only if no peer has what is missing and an operator has decided that it is lost.
	AcceptLoss bool
}

// Repair is what a repair does, or would do.
type Repair struct {
	// Refused says why nothing can be done; it is empty if something can.
	Refused string `json:"refused,omitempty"`
	// Needed means that there is something to do.
	Needed bool `json:"needed"`
	// Findings are what was wrong with the log.
	Findings []Finding `json:"findings"`
	// Steps are the changes to files, in order. After a repair they are the planned ones.
	Steps []RepairStep `json:"steps"`
	// Losses are the groups that are not as they were. They name what this repair gives up, and what
	// earlier ones gave up since the log last held everything.
	Losses []GroupLoss `json:"losses"`
	// LossUnknown means that there may be more: what earlier repairs gave up is not known, or a power cut took
	// it.
	LossUnknown bool `json:"loss_unknown"`
	// Fence is what FENCE says after the repair.
	Fence FenceInfo `json:"fence"`
	// Done means that everything is written and durable, and that the log was read again and found whole.
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
	StateLost bool             `json:"state_lost"` // a later term or vote was in what is given up
}

// RepairLog plans a repair of a log, and does it if opts.Write is set. For a log that is in use the error
// is vfs.ErrLocked. Repair.Refused says if nothing can be done. A repair that was interrupted can be
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

// decide finds out whether there is something to do, and whether it can be done.
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
		r.Refused = "no segment says which host the log belongs to; let the host join again with an empty directory"
	}
}

// salvage repairs the log on a disk, real or an overlay, and finds out what that cost.
func (r *Repair) salvage(ctx context.Context, before *Inspection, disk vfs.FS, opts RepairOptions) error {
	l, err := Open(Options{FS: disk, Dir: opts.Dir, Owner: before.Owner, SegmentBytes: before.segmentBytes(), Salvage: true, Scheduler: idleScheduler{}})
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
		return wrapped("the repair is done, but the log cannot be read again", err)
	}
	r.Losses, r.Fence = before.losses(after), after.Fence
	for _, f := range after.Findings {
		if f.Kind == Warned {
			continue
		}
		err = errors.Join(err, fmt.Errorf("wal: the repair is done, but the log is still not whole: %s at offset %d: %s", f.File, f.Offset, f.Reason))
	}
	return errors.Join(err, after.Close())
}

// segmentBytes returns the size of segment that the log was probably written with: the size of most files.
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

// lossUnknown reports whether the log may lack something that cannot be named.
func (in *Inspection) lossUnknown() bool {
	return in.MissingUnknown || in.Fence.Amnesia && len(in.Missing) == 0
}

// noHelper is a scheduler that runs nothing: a repair needs no helper.
type idleScheduler struct{}

func (idleScheduler) Go(string, env.Kind, env.Worker) env.Task { return idleScheduler{} }
func (idleScheduler) Wake()                                    {}
func (idleScheduler) Stop()                                    {}
