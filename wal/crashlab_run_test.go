package wal_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"time"

	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal"
)

// One workload of the crash laboratory: the lives of a log on one disk, one after the other. The examination
// of images between their disk operations is in crashlab_image_test.go. The random numbers of the workload do
// not depend on the examination. So a replay, which examines one image only, arrives at the same disk.

// crashLab is one workload of the crash laboratory.
type crashLab struct {
	seed     uint64
	rng      *rand.Rand
	config   labConfig
	disk     *crashfs.FS
	plant    func(vfs.FS) vfs.FS    // wraps the disk for the workload's log; nil: nothing does
	faults   func(crashfs.Op) error // makes operations of the workload's log fail; nil: none fails
	refuses  func(crashfs.Op) error // as faults, during refuseRoll; nil otherwise
	hidden   bool                   // the laboratory does not know of the faults, and excuses nothing
	limited  bool                   // the disk has a capacity
	stale    bool                   // new blocks may show old bytes
	history  labHistory
	past     labPast
	injected bool // an operation of the disk failed in this life of the log
	lossy    bool // a life since the last recovery ended in a way that may have lost what it wrote
	kernel   bool // no such life: the kernel has everything that was written
	stats    labStats

	// The fields below belong to one life.
	log     *wal.Log // nil while it opens or closes
	sched   *labScheduler
	before  uint64 // fingerprint of the state before the current append
	flushes []labFlush
	work    *labWorkload
	waits   bool  // a flush waits for the disk, and appendBeside may append during its sync
	late    error // the error of that append
	calm    bool  // no faults in that append: undoing it would need the sync that waits for it

	op     int64 // operations of the disk so far
	last   crashfs.Op
	enough func() bool // ends the workload if it returns true; nil: the workload runs to its end
	replay labPath     // nil: examine everything
	seen   map[uint64]labVerdict
	failed string
	again  string // the command that repeats a failure; "" if a path does
}

// newCrashLab draws a laboratory from a seed.
func newCrashLab(seed uint64) *crashLab {
	l := &crashLab{seed: seed, rng: rand.New(rand.NewPCG(seed, 0x6c6162)), disk: crashfs.New(), seen: map[uint64]labVerdict{}}
	l.config = labConfig{
		segmentBytes: []int64{labMinSegment, labMinSegment, 2048, 4096, 8192}[l.rng.IntN(5)],
		coldReads:    l.rng.IntN(3) == 0,
		chance:       seed << 20,
	}
	l.disk.SetWriteZeroes(seed%3 == 0)
	if l.rng.IntN(8) == 0 {
		l.stale = true
		l.disk.SetStale(true)
	}
	if l.rng.IntN(8) == 0 {
		l.grow(3 + l.rng.Int64N(6))
	}
	if l.rng.IntN(4) == 0 {
		l.faults = crashfs.Odds{SyncError: 60, WriteError: 150, ShortWrite: 150, NoSpace: 60, NameError: 60}.Hook(seed)
	}
	l.history.setOnly(labState{})
	l.stats.seeds = 1
	return l
}

// grow adds space for some segments to the disk, and makes its capacity limited.
func (l *crashLab) grow(segments int64) {
	const block = 4096
	l.limited = true
	l.disk.SetCapacity(l.disk.UsedBytes() + segments*(l.config.segmentBytes+block-1)/block*block)
}

// full reports whether err says that a disk of limited capacity is full.
func (l *crashLab) full(err error) bool { return l.limited && errors.Is(err, syscall.ENOSPC) }

// mayStayClosed reports whether Open may fail with err because the disk is full: on a disk to which nothing
// was ever written there is nothing to open.
func (l *crashLab) mayStayClosed(err error) bool {
	_, empty := l.history.moments[labState{}.fingerprint()]
	return l.full(err) && (empty || !labOpensFull)
}

// fail keeps the first failure.
func (l *crashLab) fail(path labPath, format string, args ...any) {
	if l.failed == "" && l.again != "" {
		l.failed = fmt.Sprintf("before %v: %s\n  again: %s", l.last, fmt.Sprintf(format, args...), l.again)
	}
	if l.failed == "" {
		l.failed = fmt.Sprintf("after %v: %s\n  replay: go test ./wal -run 'TestCrashLab$' -crashlab.replay=%d%s", l.last, fmt.Sprintf(format, args...), l.seed, path)
	}
}

// run runs the workload to its end, or to the first failure, and reports the failure.
func (l *crashLab) run() string {
	l.disk.SetHook(l.examine)
	l.work = &labWorkload{rng: l.rng}
	steps := labSteps
	if l.rng.IntN(6) == 0 {
		steps = labLongSteps
	}
	for steps > 0 && l.failed == "" {
		if l.rng.IntN(3) == 0 { // lives may have different modes
			l.config.mode = labMode(l.rng.IntN(len(labModes)))
		}
		l.past.unsafe = l.past.unsafe || l.config.mode.unsafe()
		l.sched, l.config.clock = &labScheduler{}, &labClock{}
		l.config.chance++
		log, err := l.open(l.disk, l.config, l.sched)
		if err != nil && (l.injected || l.mayStayClosed(err)) {
			l.die()
			steps--
			continue
		}
		if l.stale && isLabReport(err) {
			l.stats.refused++
			break
		}
		if err != nil {
			l.fail(nil, "the workload could not open its log: %v", err)
			break
		}
		if !l.recovered(log) {
			break
		}
		steps = l.live(log, steps)
		l.stats.add(labStats{work: labWork(log)})
	}
	l.log = nil
	l.examine(crashfs.Op{Kind: crashfs.OpSync}) // the images after the last operation
	l.disk.SetHook(nil)
	return l.failed
}

// recovered judges the log that the workload itself recovered after a crash. The workload continues with it.
func (l *crashLab) recovered(log *wal.Log) bool {
	s, err := observe(log)
	if err != nil {
		l.fail(nil, "the workload could not read its log: %v", err)
		return false
	}
	f, sum := fenceOf(log), s.fingerprint()
	reason := l.past.reject(f)
	switch {
	case reason != "":
	case l.kernel && sum != l.history.now.fingerprint():
		reason = fmt.Sprintf("the process died, the kernel had %v", l.history.now)
	default:
		reason = l.history.reject(sum, f)
	}
	if reason != "" {
		l.fail(nil, "the workload's own recovery shows %v; %s", s, reason)
		return false
	}
	l.past.generation, l.past.amnesia = f.generation, f.amnesia
	l.history.setOnly(s)
	l.kernel, l.lossy = false, false
	return true
}

// live appends and syncs until a crash or a clean end, and returns the number of remaining steps.
func (l *crashLab) live(log *wal.Log, steps int) int {
	l.log, l.flushes, l.before = log, nil, l.history.now.fingerprint()
	defer func() { l.log, l.flushes = nil, nil }()
	for ; steps > 0 && l.failed == ""; steps-- {
		if l.enough != nil && l.enough() {
			return 0
		}
		l.config.clock.advance(time.Duration(l.rng.IntN(400)) * time.Microsecond)
		over, err := l.step(log)
		switch {
		case over:
			return steps - 1
		case l.failed != "":
		case err == nil:
			l.before = l.history.now.fingerprint()
			for id := range l.history.now {
				l.history.indexes[id] = log.Group(id).DurableIndex()
			}
		case (l.injected || l.full(err)) && isLabStop(err):
			l.injected = true
			l.die()
			return steps - 1
		default:
			l.fail(nil, "the workload's log failed, although the disk did not: %v", err)
		}
	}
	return steps
}

// step makes one random call on the log or its helper. It reports whether the log's life is over.
func (l *crashLab) step(log *wal.Log) (over bool, err error) {
	unsafe := l.config.mode.unsafe()
	if l.drawsRefusal() {
		return false, l.refuseRoll(log)
	}
	switch l.rng.IntN(17) {
	case 0, 1:
		if err = log.Sync(); err == nil {
			l.history.counts(unsafe)
		}
	case 2, 3, 4:
		for range 1 + l.rng.IntN(6) {
			l.sched.step()
		}
	case 5:
		if l.rng.IntN(3) == 0 {
			l.end(log)
			return true, nil
		}
		if l.past.amnesia {
			l.past.amnesia = false // the next power cut may leave it or not
			return false, log.CaughtUp()
		}
	case 6, 7:
		return false, l.take(log)
	case 8, 9, 10:
		return false, l.goOnWithFlush()
	default:
		return false, l.append(log, l.work.next(l.history.now))
	}
	return false, err
}

// append appends writes.
func (l *crashLab) append(log *wal.Log, writes []labWrite) error {
	saved := l.history.save()
	l.history.write(writes)
	err := appendLab(log, writes)
	if err == nil {
		l.history.nothingLeft()
	}
	switch {
	case err == nil && l.config.mode == labSyncMode:
		l.history.keeps(l.history.at, l.history.now)
	case isLabFull(err):
		// A refused append must not come back, unless the disk refused its removal, too. A crash during the
		// append could leave it.
		tried := l.history
		if l.history = saved; isLabLeft(err) {
			l.history.leaves(&tried)
			l.lossy = true
		}
		err = nil
		l.stats.full++
	case l.full(err):
		l.stats.full++
	}
	return err
}

// appendBeside appends a small write after a sync that a flush waits for, and before that sync returns. The
// flush must not take the write for durable. The write must fit into the segment that is being synced: if it
// needed another segment, it might wait for the sync, which waits for it here. An append in ModeSync would
// wait too.
func (l *crashLab) appendBeside(op crashfs.Op) error {
	if !l.waits || l.config.mode == labSyncMode || op.Kind != crashfs.OpSync || l.rng.IntN(2) == 0 || l.spaceBehind(op.Name) < 300 {
		return nil
	}
	l.waits = false
	return crashfs.Then(func() {
		l.stats.late++
		l.before = l.history.now.fingerprint()
		l.calm = true
		l.late = l.append(l.log, []labWrite{l.work.small(l.history.now)})
		l.calm = false
	})
}

// spaceBehind returns the number of bytes after the last record of a segment, or 0 if a later segment has
// records.
func (l *crashLab) spaceBehind(segment string) (space int) {
	names, err := l.disk.ReadDir(labDir)
	if err != nil {
		return 0
	}
	for _, name := range names {
		path := labDir + "/" + name
		if !strings.HasSuffix(name, labSegments[1:]) || path < segment {
			continue
		}
		data := readDisk(l.disk, path)
		end := labHeadBytes
		for ; end+labZeros <= len(data) && len(bytes.Trim(data[end:end+labZeros], "\x00")) > 0; end += 8 {
		}
		switch {
		case path == segment:
			space = len(data) - end
		case end > labHeadBytes:
			return 0
		}
	}
	return space
}

// take begins a flush.
func (l *crashLab) take(log *wal.Log) error {
	f, wait, err := log.TakeSync()
	switch {
	case err != nil:
		return err
	case f != nil:
		l.flushes = append(l.flushes, labFlush{flush: f, at: l.history.at, state: l.history.now})
	case wait == 0:
		l.history.counts(l.config.mode.unsafe())
	}
	return nil
}

// goOnWithFlush picks one of the flushes under way at random, and waits for it or completes it.
func (l *crashLab) goOnWithFlush() error {
	if len(l.flushes) == 0 {
		return nil
	}
	i := l.rng.IntN(len(l.flushes))
	f := &l.flushes[i]
	if !f.waited {
		l.waits, l.late = true, nil
		err := f.flush.Wait()
		l.waits = false
		f = &l.flushes[i]
		if err != nil {
			return err
		}
		f.waited = true
		l.history.keeps(f.at, f.state)
		return l.late
	}
	flush := f.flush
	l.flushes = append(l.flushes[:i], l.flushes[i+1:]...)
	_, err := flush.Complete()
	return err
}

// die ends a process, by a power cut or by the death of the process alone. After a death the kernel still has
// everything that was written, except where a sync failed: the kernel does not write that again.
func (l *crashLab) die() {
	l.lossy = l.lossy || l.injected // the kernel may have only a part of a write that failed
	switch l.rng.IntN(6) {
	case 0, 1:
		l.disk.Crash(crashfs.LoseNothing, nil)
	case 2:
		l.lossy = true
		l.disk.Crash(crashfs.LoseAll, nil)
	default:
		l.lossy = true
		l.disk.Crash(crashfs.LoseSome, l.rng.Uint64)
	}
	// Seen with seed 1795253357570377399: a power cut, a recovery that found no space, and then the death of a
	// process.
	l.kernel = !l.lossy
	l.injected = false
	if l.limited && l.rng.IntN(2) == 0 {
		l.grow(1 + l.rng.Int64N(4))
	}
}

// end ends a life of the log: in order, by the death of the process, or by a power cut.
func (l *crashLab) end(log *wal.Log) {
	switch l.rng.IntN(4) {
	case 0:
		l.log = nil // a read while the log closes may fail or not
		switch err := log.Close(); {
		case err == nil:
			l.history.setOnly(l.history.now)
		case l.injected || l.full(err):
			l.injected = true
			l.die()
		default:
			l.fail(nil, "close: %v", err)
		}
	default:
		l.die()
	}
}

func (l *crashLab) open(disk *crashfs.FS, c labConfig, s *labScheduler) (*wal.Log, error) {
	fs := disk.Mount()
	if l.plant != nil && disk == l.disk {
		fs = l.plant(fs)
	}
	return openLabLog(fs, labDir, s, c, func(message string) {
		if isLabTornTail(message) {
			l.stats.torn++
		}
	})
}
