package wal_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"syscall"

	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal"
)

// One workload of the crash laboratory: the lives of a log on one disk, one after the other, and what is looked at between
// their disk operations. The workload's own random numbers do not depend on what is looked at, so that a replay, which looks
// at one image only, comes to the same disk.

// crashLab is one workload under examination.
type crashLab struct {
	seed     uint64
	rng      *rand.Rand
	config   labConfig
	disk     *crashfs.FS
	plant    func(vfs.FS) vfs.FS    // what stands between the workload's log and the disk; nil: nothing
	faults   func(crashfs.Op) error // what the disk does to the workload's log; nil: nothing
	hidden   bool                   // the laboratory does not know of the faults
	room     bool                   // the disk has a capacity
	stale    bool                   // new blocks may show old bytes
	history  labHistory
	injected bool // the disk did something to this life of the log
	lossy    bool // a life since the last recovery ended in something that may have lost what it wrote
	kernel   bool // none did: the kernel has everything
	stats    labStats
	op       int64 // operations of the disk so far
	last     crashfs.Op
	enough   func() bool // no more steps if it says so; nil: go on to the end
	replay   labPath     // nil: examine everything
	failed   string
}

// newCrashLab draws a laboratory from a seed.
func newCrashLab(seed uint64) *crashLab {
	l := &crashLab{seed: seed, rng: rand.New(rand.NewPCG(seed, 0x6c6162)), disk: crashfs.New()}
	l.config = labConfig{
		segmentBytes: []int64{labMinSegment, labMinSegment, 2048, 4096, 8192}[l.rng.IntN(5)],
		syncMode:     l.rng.IntN(5) == 0,
		coldReads:    l.rng.IntN(3) == 0,
	}
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
	l.history.settle(labState{})
	l.stats.seeds = 1
	return l
}

// grow makes the disk have room for some more segments than it has.
func (l *crashLab) grow(segments int64) {
	const block = 4096
	l.room = true
	l.disk.SetCapacity(l.disk.UsedBytes() + segments*(l.config.segmentBytes+block-1)/block*block)
}

// full reports whether err says that a disk of bounded size is full.
func (l *crashLab) full(err error) bool { return l.room && errors.Is(err, syscall.ENOSPC) }

// mayStayClosed reports whether a log need not open for want of room: where nothing was ever written there is nothing to open.
func (l *crashLab) mayStayClosed(err error) bool {
	_, empty := l.history.states[labState{}.fingerprint()]
	return l.full(err) && (empty || !labOpensFull)
}

// fail notes the first thing that went wrong.
func (l *crashLab) fail(path labPath, format string, args ...any) {
	if l.failed == "" {
		l.failed = fmt.Sprintf("after %v: %s\n  replay: go test ./wal -run 'TestCrashLab$' -crashlab.replay=%d%s", l.last, fmt.Sprintf(format, args...), l.seed, path)
	}
}

// run runs the workload to its end, or to the first failure, and reports the failure.
func (l *crashLab) run() string {
	l.disk.SetHook(l.examine)
	w := &labWorkload{rng: l.rng}
	var now labState // what a reader sees
	steps := labSteps
	if l.rng.IntN(6) == 0 {
		steps = labLongSteps
	}
	for steps > 0 && l.failed == "" {
		sched := &labScheduler{}
		log, err := l.open(l.disk, sched)
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
		if now = l.recovered(log); now == nil {
			break
		}
		steps = l.live(log, sched, w, now, steps)
		l.stats.add(labStats{work: labWork(log)})
	}
	l.examine(crashfs.Op{Kind: crashfs.OpSync}) // what the last operation left
	l.disk.SetHook(nil)
	return l.failed
}

// recovered judges what the main line found after a crash of its own, and goes on from there.
func (l *crashLab) recovered(log *wal.Log) labState {
	s, err := observe(log)
	if err != nil {
		l.fail(nil, "the workload could not read its log: %v", err)
		return nil
	}
	if _, ok := l.history.states[s.fingerprint()]; !ok || l.kernel && s.fingerprint() != l.history.now.fingerprint() {
		l.fail(nil, "the workload's own recovery shows %v; %s", s, l.expected())
		return nil
	}
	l.history.settle(s)
	l.kernel, l.lossy = false, false
	return s
}

// live appends and syncs until a crash or a clean end, and returns the steps that are left.
func (l *crashLab) live(log *wal.Log, sched *labScheduler, w *labWorkload, now labState, steps int) int {
	for ; steps > 0 && l.failed == ""; steps-- {
		if l.enough != nil && l.enough() {
			return 0
		}
		var err error
		switch l.rng.IntN(12) {
		case 0, 1:
			if err = log.Sync(); err == nil {
				l.history.settle(l.history.now)
			}
		case 2, 3, 4:
			for range 1 + l.rng.IntN(6) {
				sched.step()
			}
		case 5:
			if l.rng.IntN(3) == 0 {
				l.end(log)
				return steps - 1
			}
		default:
			before := l.history.now
			writes := w.next(before)
			could := maps.Clone(l.history.states)
			l.history.write(writes)
			err = appendLab(log, writes)
			switch {
			case err == nil && l.config.syncMode:
				l.history.settle(l.history.now)
			case isLabFull(err):
				// Refused, it must not come back. While it was under way a crash could leave it.
				l.history.now, l.history.states, err = before, could, nil
				l.stats.full++
			case l.full(err):
				l.stats.full++
			}
		}
		switch {
		case err == nil || l.failed != "":
		case (l.injected || l.full(err)) && isLabStop(err):
			l.injected = true
			l.die()
			return steps - 1
		default:
			l.fail(nil, "the workload's log failed, on a disk that did not: %v", err)
		}
	}
	return steps
}

// die ends a process, by a power cut or by itself: then the kernel has everything that was written, but knows of nothing to
// write where a sync failed.
func (l *crashLab) die() {
	l.lossy = l.lossy || l.injected // of a write that failed, the kernel may have a part
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
	// Seen with seed 1795253357570377399: a power cut, a recovery that found no room, and then the death of a process.
	l.kernel = !l.lossy
	l.injected = false
	if l.room && l.rng.IntN(2) == 0 {
		l.grow(1 + l.rng.Int64N(4))
	}
}

// end ends a life of the log: in order, by the death of the process, or by a power cut.
func (l *crashLab) end(log *wal.Log) {
	switch l.rng.IntN(4) {
	case 0:
		switch err := log.Close(); {
		case err == nil:
			l.history.settle(l.history.now)
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

func (l *crashLab) open(disk *crashfs.FS, s *labScheduler) (*wal.Log, error) {
	fs := disk.Mount()
	if l.plant != nil && disk == l.disk {
		fs = l.plant(fs)
	}
	return openLabLog(fs, labDir, s, l.config, func(message string) {
		if isLabTornTail(message) {
			l.stats.torn++
		}
	})
}

// changes reports whether an operation can change what a crash leaves.
func changes(k crashfs.OpKind) bool {
	switch k {
	case crashfs.OpOpen, crashfs.OpReadDir, crashfs.OpRead, crashfs.OpLock:
		return false
	}
	return true
}

// examine is the disk's hook: it looks at what a crash would leave before op, which is after all others.
func (l *crashLab) examine(op crashfs.Op) error {
	if !changes(op.Kind) || l.failed != "" {
		return nil
	}
	l.op++
	l.stats.operations++
	if l.replay != nil {
		l.follow()
	} else {
		l.enumerate()
	}
	l.last = op
	if l.faults == nil {
		return nil
	}
	err := l.faults(op)
	if err != nil {
		l.stats.injected++
		l.injected = !l.hidden
	}
	return err
}

func (l *crashLab) enumerate() {
	n := 0
	for d, image := range l.disk.Images(imageBudget, l.seed<<20+uint64(l.op)) {
		n++
		l.stats.images++
		path := labPath{{l.op, d.Code()}}
		nested := l.draw(path)%nestedOdds == 0
		if l.judge(image, path, nested); l.failed != "" {
			l.failed += "\n  " + d.String()
			return
		}
	}
	l.stats.pending = max(l.stats.pending, int64(l.disk.Pending()))
	if n < imageBudget {
		l.stats.complete++
	}
}

// draw makes a number of a path, so that what is done with an image follows from its name.
func (l *crashLab) draw(path labPath) uint64 {
	h := mix(l.seed, 0x70617468)
	for _, t := range path {
		h = mix(h, uint64(t.op))
		for i := range len(t.code) {
			h = mix(h, uint64(t.code[i]))
		}
	}
	return mix(h, 1) >> 8
}

// judge recovers an image, and says what is wrong.
func (l *crashLab) judge(image *crashfs.FS, path labPath, nested bool) {
	inner := &recovery{lab: l, image: image, path: path}
	if nested {
		image.SetHook(inner.examine)
	}
	s, log := l.recover(image, path, "recovery")
	image.SetHook(nil)
	if s == nil {
		return
	}
	sum := s.fingerprint()
	if _, ok := l.history.states[sum]; !ok {
		l.fail(path, "recovery shows %v; %s", s, l.expected())
		return
	}
	for i, seen := range inner.sums {
		if seen != sum {
			l.fail(inner.paths[i], "recovery shows %v, but cut short and done again it shows %v", s, inner.states[i])
			return
		}
	}
	if nested && l.failed == "" {
		if s = l.goOn(log, s, path); s == nil {
			return
		}
		sum = s.fingerprint()
	}
	image.Crash(crashfs.LoseAll, nil)
	if again, _ := l.recover(image, path, "the second recovery"); again != nil && again.fingerprint() != sum {
		l.fail(path, "recovery shows %v, and after a power cut at once %v", s, again)
	}
}

func (l *crashLab) recover(image *crashfs.FS, path labPath, which string) (labState, *wal.Log) {
	log, err := l.open(image, &labScheduler{})
	if l.stale && isLabReport(err) {
		l.stats.refused++ // a new file with the header of an old one could be a copy, and that must be refused
		return nil, nil
	}
	if err != nil && l.mayStayClosed(err) { // but where there is space it opens
		l.stats.closed++
		image.SetCapacity(0)
		log, err = l.open(image, &labScheduler{})
	}
	if err != nil {
		l.fail(path, "%s refuses: %v; %s", which, err, l.expected())
		return nil, nil
	}
	s, err := observe(log)
	if err != nil {
		l.fail(path, "%s cannot be read: %v", which, err)
		return nil, nil
	}
	return s, log
}

// goOn uses the log that was recovered from an image, and returns what it has acknowledged.
func (l *crashLab) goOn(log *wal.Log, s labState, path labPath) labState {
	l.stats.went++
	w := &labWorkload{rng: rand.New(rand.NewPCG(l.draw(path), 2)), count: 1 << 40}
	var h labHistory
	h.settle(s)
	for range 1 + w.rng.IntN(4) {
		writes := w.next(h.now)
		h.write(writes)
		err := appendLab(log, writes)
		if l.full(err) {
			return nil
		}
		if err != nil {
			l.fail(path, "the recovered log does not go on: %v", err)
			return nil
		}
	}
	if err := log.Sync(); err != nil && !l.full(err) {
		l.fail(path, "the recovered log does not sync: %v", err)
		return nil
	}
	return h.now
}

// expected describes what an image may show.
func (l *crashLab) expected() string {
	return fmt.Sprintf("it may show one of %d states, the newest of which is %v", len(l.history.states), l.history.now)
}

// recovery is one recovery whose disk operations are looked at like those of the workload.
type recovery struct {
	lab    *crashLab
	image  *crashfs.FS
	path   labPath
	op     int64
	paths  []labPath
	sums   []uint64
	states []labState
}

// examine is the image's hook.
func (r *recovery) examine(op crashfs.Op) error {
	l := r.lab
	if !changes(op.Kind) || l.failed != "" {
		return nil
	}
	r.op++
	for d, image := range r.image.Images(nestedBudget, l.draw(r.path)+uint64(r.op)) {
		r.judge(image, append(slices.Clone(r.path), labTurn{r.op, d.Code()}))
		if l.failed != "" {
			l.failed += "\n  " + d.String()
			return nil
		}
	}
	return nil
}

// judge recovers an image of a recovery. What it shows is compared when the recovery around it is over.
func (r *recovery) judge(image *crashfs.FS, path labPath) {
	l := r.lab
	deeper := &recovery{lab: l, image: image, path: path}
	if len(path) == 2 {
		l.stats.nested++
		if l.draw(path)%nestedOdds == 0 {
			image.SetHook(deeper.examine)
		}
	} else {
		l.stats.deeper++
	}
	s, _ := l.recover(image, path, "recovery after a crash in a recovery")
	image.SetHook(nil)
	if s == nil {
		return
	}
	r.paths, r.sums, r.states = append(r.paths, path), append(r.sums, s.fingerprint()), append(r.states, s)
	r.paths, r.sums, r.states = append(r.paths, deeper.paths...), append(r.sums, deeper.sums...), append(r.states, deeper.states...)
}

// follow looks only at what a replayed path names.
func (l *crashLab) follow() {
	if l.op != l.replay[0].op {
		return
	}
	image, err := l.disk.Replay(l.replay[0].code)
	if err != nil {
		l.fail(nil, "%v", err)
		return
	}
	l.judge(image, l.replay[:1], len(l.replay) > 1 || l.draw(l.replay[:1])%nestedOdds == 0)
}
