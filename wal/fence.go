package wal

import (
	"fmt"
	"io"

	"github.com/millrace/millrace/internal/lock"
	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/wal/record"
)

// The fence is what a log knows of its own past besides its records (docs/internals/durability.md §7). A
// member that acknowledged an entry and lost it to a power cut must not vote as if it had never had it: it
// could help elect a leader that lacks a committed entry. The unsafe modes allow such a loss, so:
//
//   - before anything counts that is not durable, the fence becomes dirty and names the machine's boot;
//   - a clean Close clears dirty, and so does an Open in a safe mode when its recovery is done;
//   - a log has amnesia if it was dirty and is opened on another boot, if it had to be salvaged
//     (salvage.go), or if its mode was unsafe and it was closed after a failed write or sync. Amnesia
//     survives restarts. It ends with CaughtUp, when the log again holds what the cluster had committed
//     when the member came back. After a salvage terms and votes may be missing, too.
//
// The end of a log may also be missing without a trace in the rest: a file that was deleted, cut short or
// not copied. So the fence says that there is a log, which one, and how far it reached (missing.go judges):
//
//   - made: the first segment was durable once, so there is one;
//   - the log id, which is also in the header of each segment;
//   - the end: the place where the log ended, and the chain there. After a clean Close that is the exact
//     end (closed). Otherwise the log reaches at least there: it is where the log ended when it was last
//     opened, or the beginning of a segment into which it has rolled over since.
//
// Each Open raises the generation. It tells what this log said before an Open from what it said after.

// Fence is what Open found out about the log's past.
type Fence struct {
	// Generation is higher after each Open of the directory.
	Generation uint64
	// Amnesia means that the log may lack entries that it acknowledged. The member must not vote, nor count
	// for a commit, until it has caught up (CaughtUp).
	Amnesia bool
	// LacksTerms means that the log may lack terms and votes, too, because it was salvaged. A power cut
	// takes no terms and votes in any mode but memory. It is set with Amnesia only.
	LacksTerms bool
}

// fenceState is the fence of a log that is open. Its version is 0 before Open has written it, and after
// Close.
type fenceState struct {
	mu   lock.Mutex // held while the file is written
	now  fence      // as it is on disk
	file vfs.File   // held from Open to Close, so that no lack of descriptors stops the log
}

// past is what FENCE says of the log's last life, and what happened to the machine since.
type past struct {
	fence    fence
	copy     int    // the copy that was read
	lost     bool   // the file cannot be read
	boot     string // the machine's, now
	mount    uint64 // the directory's, now
	bootErr  error  // why the boot is not known
	sameBoot bool   // machine and filesystem stayed up, so what the kernel had in memory is still there
}

// recallFence reads the fence of the log's last life, for the checks of missing.go and for enterFence. It
// does not read a fence that a salvage rebuilds.
func (sc *scan) recallFence() (err error) {
	sc.past.copy = noCopy
	if sc.damage != nil && sc.damage.fence {
		sc.past.lost = true
		sc.recallBoot()
		return nil
	}
	if sc.past.fence, sc.past.copy, err = sc.dir.readFence(); err != nil {
		sc.past.lost = true
		return err
	}
	sc.logID = sc.past.fence.log
	sc.recallBoot()
	return nil
}

// recallBoot finds out whether the machine stayed up and the filesystem stayed mounted since the fence was
// written.
func (sc *scan) recallBoot() {
	sc.past.boot, sc.past.bootErr = sc.dir.fs.BootID()
	sc.past.boot = sc.past.boot[:min(len(sc.past.boot), bootBytes)]
	sc.past.mount = vfs.MountID(sc.dir.fs, sc.dir.path)
	sc.past.sameBoot = sc.past.fence.version == fenceVersion && sc.past.bootErr == nil && sc.past.boot != "" && sc.past.boot == sc.past.fence.boot &&
		sc.past.mount != 0 && sc.past.mount == sc.past.fence.mount && !sc.past.fence.has(flagPowerCut)
}

// enterFence begins a new generation, and finds out whether the last life forgot something. tail is the
// segment in which the log continues, or nil if none has a record.
func (r *recovery) enterFence(tail *trace) error {
	if r.scan.past.bootErr != nil {
		return r.scan.past.bootErr
	}
	f := r.scan.past.fence
	if f.has(flagDirty) && (r.scan.past.boot == "" || r.scan.past.boot != f.boot) {
		f.flags |= flagAmnesia
		r.log.opts.Logger.Warn(Amnesia, "dir", r.log.opts.Dir, "generation", f.generation)
		r.log.opts.emit(AmnesiaFound{Dir: r.log.opts.Dir, Generation: f.generation})
	}
	if r.scan.damage != nil {
		f.flags |= flagAmnesia // before anything is set aside
		f.flags |= flagTerms
	}
	if r.scan.damage != nil || tail == nil || tail.seg.id < f.end.Segment {
		f.end = record.End{} // it will be another one; a segment that has no record will be removed
	}
	if r.log.opts.Mode.Unsafe() { // dirty of an earlier life stays until recovery has made everything durable: completeFence
		f.flags |= flagDirty
	}
	f.flags = f.flags&^flagClosed | flagPowerCut // until completeFence: a recovery writes through the page cache
	f.generation = max(f.generation, r.scan.newest) + 1
	f.version, f.boot, f.mount, f.owner = fenceVersion, r.scan.past.boot, r.scan.past.mount, r.log.opts.Owner
	if r.log.logID == (record.LogID{}) {
		if _, err := io.ReadFull(r.log.opts.Rand, r.log.logID[:]); err != nil {
			return fmt.Errorf("wal: random numbers for the id of the log: %w", err)
		}
	}
	f.log = r.log.logID
	r.log.fence.now, r.log.generation = f, f.generation
	if err := r.log.dir.writeFence(f, r.scan.past.copy); err != nil {
		return err
	}
	var err error
	r.log.fence.file, err = r.log.opts.FS.Open(r.log.dir.fencePath())
	return err
}

// completeFence notes, when the recovery is done, that there is a log and how far it reaches. In a safe mode
// it clears dirty: everything that the log shows is durable now, and so will be everything that counts. If
// there is no space for that, the old fence stays. Then the next power cut may leave amnesia without need,
// and a missing end is noticed only after the older place.
func (r *recovery) completeFence() error {
	f := r.log.fence.now
	f.flags |= flagMade
	f.end = r.reached
	if !r.log.opts.Mode.Unsafe() {
		f.flags &^= flagDirty
	}
	if !r.log.tail.seg.head.Direct || r.log.tail.seg.block() > 1 && !r.log.cuts { // else its header promises direct writes that do not happen
		f.flags &^= flagPowerCut
	}
	if f == r.log.fence.now {
		return nil
	}
	if err := writeCopies(r.log.fence.file, f, 0); isFull(err) { // both copies are whole since enterFence
		return nil
	} else if err != nil {
		return err
	}
	r.log.fence.now = f
	return nil
}

// noteAmnesia notes that what counted in an unsafe mode and was not synced must be taken as lost: a write
// or a sync has failed, and the kernel may drop what it could not write, on the same boot. (If FENCE cannot
// be written either, it is still dirty.)
func (l *Log) noteAmnesia() error {
	return l.editFence(func(f *fence) { f.flags |= flagAmnesia })
}

// distrustBoot makes the next Open judge the end of the log as after a power cut, although the machine
// stays up: a write or a sync has failed, or the tail is not written directly any more.
func (l *Log) distrustBoot() error {
	return l.editFence(func(f *fence) { f.flags |= flagPowerCut })
}

// Amnesia is the message that Options.Logger gets, as a warning, when a log of an unsafe mode is opened after
// a power cut.
const Amnesia = "wal: the machine lost power while appends counted that were not durable; do not vote before the log has caught up"

// Fence returns what Open found out about the log's past.
func (l *Log) Fence() Fence {
	l.fence.mu.Lock()
	defer l.fence.mu.Unlock()
	return Fence{
		Generation: l.fence.now.generation,
		Amnesia:    l.fence.now.has(flagAmnesia),
		LacksTerms: l.fence.now.has(flagAmnesia | flagTerms),
	}
}

// ID returns the log's id: 128 random bits, drawn when the directory was made. They are in FENCE and in every
// segment.
func (l *Log) ID() [16]byte { return l.logID }

// CaughtUp ends the log's amnesia. The caller knows that the log holds, durably, everything that the
// cluster had committed when the member came back, or accepts the loss. An error is final.
func (l *Log) CaughtUp() error {
	if err := l.syncNow(); err != nil {
		return err
	}
	if err := l.changeFence(func(f *fence) { f.flags &^= flagAmnesia | flagTerms }); err != nil {
		return err
	}
	l.mu.Lock()
	l.holes = nil
	l.mu.Unlock()
	if err := l.forgetLoss(); err != nil {
		return err
	}
	l.opts.emit(AmnesiaEnded{Dir: l.opts.Dir, Generation: l.generation})
	return nil
}

// changeFence changes the fence of an open log. An error is final.
func (l *Log) changeFence(change func(*fence)) error {
	if err := l.failure(); err != nil {
		return err
	}
	if err := l.editFence(change); err != nil {
		return l.failAt("write", l.dir.fencePath(), 0, err)
	}
	return nil
}

// fenceReaches reports whether the fence says that the log reaches into a segment. It returns true if there
// is no fence to write.
func (l *Log) fenceReaches(segment uint64) bool {
	l.fence.mu.Lock()
	defer l.fence.mu.Unlock()
	return l.fence.now.version == 0 || l.fence.now.end.Segment >= segment
}

// editFence writes the fence again if change changes it.
func (l *Log) editFence(change func(*fence)) error {
	l.fence.mu.Lock()
	defer l.fence.mu.Unlock()
	f := l.fence.now
	change(&f)
	if f == l.fence.now || f.version == 0 { // the latter before Open has written one, and after Close
		return nil
	}
	if err := writeCopies(l.fence.file, f, 0); err != nil { // both copies are whole since Open
		return err
	}
	l.fence.now = f
	return nil
}
