package sim

import (
	"fmt"
	"slices"
	"strings"
	"syscall"

	"github.com/millrace/millrace/sim/coverage"
	"github.com/millrace/millrace/vfs/crashfs"
)

// trouble is what is wrong with a host's disk. It outlives the process, as a disk does.
type trouble struct {
	// failing are the kinds of operations that return EIO, after failAfter more of them; with once, only one
	// of them fails. That is the worst case: a process that repeats a failed sync, and succeeds, has lost
	// data.
	failing   []crashfs.OpKind
	failAfter int
	once      bool

	full       bool // no segment can be preallocated
	fullWrites bool // and none can be written, even where preallocated, as on a copy-on-write filesystem

	fullSnapshots bool // nothing can be written to the files of snapshots
	rotten        bool // reads of their parts return wrong bits, every so often
}

// powerFailure is a planned crash in the middle of a disk operation.
type powerFailure struct {
	after     int // how many operations, or syncs if onlySyncs; 0: none is planned
	onlySyncs bool
	loss      crashfs.Loss
	then      func()
}

// onOperation is the hook of the host's disk, called before every operation.
func (h *machine) onOperation(op crashfs.Op) error {
	if h.w.hardware != nil {
		h.w.hardware.onOperation(op)
		return nil
	}
	if h.w.looking { // reads of the checks are not operations of the process
		return nil
	}
	h.observeOperation(op)
	h.checkPlace(op)
	if p := &h.power; p.after > 0 && (!p.onlySyncs || op.Kind == crashfs.OpSync) {
		if p.after--; p.after == 0 && h.alive != nil && h.w.injects(h.crashName(p.loss), h) {
			h.w.count(CrashesInside)
			h.crash(p.loss)
			p.then()
			return nil
		}
	}
	if h.alive != nil && h.alive.process != nil && strings.HasSuffix(op.Name, ".wal") && slices.Contains(rolls, op.Kind) {
		h.alive.rolled = h.w.now
	}
	if err := h.shortage.fails(op, h.w.now); err != nil {
		h.w.count(RefusedOpens)
		return err
	}
	if h.fails(op) && h.w.injectsError(op, h) {
		h.w.count(DiskErrors)
		h.alive.sawError = true
		h.rotten = h.rotten || op.Kind == crashfs.OpRead
		return syscall.EIO
	}
	if t := &h.trouble; t.full && (op.Kind == crashfs.OpPreallocate || t.fullWrites && op.Kind == crashfs.OpWrite && (strings.HasSuffix(op.Name, ".wal") || strings.HasSuffix(op.Name, ".spare"))) {
		return syscall.ENOSPC
	}
	return h.spoils(op)
}

// rolls are the operations with which a log begins, recycles and drops segments.
var rolls = []crashfs.OpKind{crashfs.OpCreate, crashfs.OpRename, crashfs.OpRemove, crashfs.OpPreallocate}

// injectsError is injects for an operation that fails. Failures of writes have no row of their own.
func (w *world) injectsError(op crashfs.Op, h *machine) bool {
	switch op.Kind {
	case crashfs.OpSync, crashfs.OpWriteBack, crashfs.OpSyncDir:
		return w.injects(coverage.SyncError, h)
	case crashfs.OpRead:
		return w.injects(coverage.ReadError, h)
	}
	return true
}

// spoils returns what happens to an operation on a file of a snapshot.
func (h *machine) spoils(op crashfs.Op) error {
	t := &h.trouble
	switch {
	case !t.fullSnapshots && !t.rotten, !strings.Contains(op.Name, "/snapshots/"):
	case t.fullSnapshots && (op.Kind == crashfs.OpCreate || op.Kind == crashfs.OpWrite || op.Kind == crashfs.OpPreallocate):
		return syscall.ENOSPC
	case t.rotten && op.Kind == crashfs.OpRead && strings.Contains(op.Name, "/part-") && op.Len > 0 && h.w.net.rng.IntN(3) == 0 && h.w.injects(coverage.BitFlip, h):
		h.w.count(RottenReads)
		h.alive.sawRot, h.rotten = true, true
		return crashfs.Flip(h.w.net.rng.IntN(int(op.Len)), uint(h.w.net.rng.IntN(8)))
	}
	return nil
}

func (h *machine) fails(op crashfs.Op) bool {
	t := &h.trouble
	if h.alive == nil || !slices.Contains(t.failing, op.Kind) {
		return false
	}
	if t.failAfter > 0 {
		t.failAfter--
		return false
	}
	if t.once {
		t.failing = nil
	}
	return true
}

// fill fills a disk: either really, up to a few bytes, or for new segments only, or for every write.
func (h *machine) fill(rng func(n int) int) {
	h.w.count(FullDisks)
	switch rng(4) {
	case 0:
		h.trouble.full = true
	case 1, 2:
		h.trouble.full, h.trouble.fullWrites = true, true
	default:
		h.disk.SetCapacity(h.disk.UsedBytes() + int64(rng(int(2*h.w.config.SegmentBytes))))
	}
	h.isFull = true
	if h.alive != nil {
		h.alive.sawFull = true
	}
	h.w.record(fmt.Sprintf("disk of host %d is full", h.id))
}

// mend repairs the disk and gives it space.
func (h *machine) mend() {
	h.trouble, h.shortage, h.isFull = trouble{}, shortage{}, false
	h.disk.SetCapacity(0)
	h.w.record(fmt.Sprintf("disk of host %d is good", h.id))
}
