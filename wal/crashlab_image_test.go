package wal_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"

	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal"
)

// The crash laboratory recovers each image and judges the state that it finds. The contents of an image
// (crashfs.FS.Hash) decide what is done with it: the mode, whether its recovery crashes or fails, whether it
// is salvaged. So an image that was seen before need not be recovered again. It is judged again, because the
// log may have promised more since.

// labVerdict is the state and the fence that the recovery of a disk showed.
type labVerdict struct {
	sum   uint64
	fence labFence
}

// maxSeen bounds the verdicts that a workload remembers. Beyond it some disks are recovered again.
const maxSeen = 1 << 18

func (l *crashLab) remember(disk uint64, v labVerdict) {
	if len(l.seen) < maxSeen {
		l.seen[disk] = v
	}
}

const (
	faultyOdds  = 16 // one distinct image in faultyOdds is also recovered on a disk that fails meanwhile
	salvageOdds = 24 // one in salvageOdds is also spoiled and salvaged
)

// changes reports whether an operation of this kind can change what a crash leaves.
func changes(k crashfs.OpKind) bool {
	switch k {
	case crashfs.OpOpen, crashfs.OpReadDir, crashfs.OpRead, crashfs.OpLock:
		return false
	}
	return true
}

// examine is the disk's hook. It examines what a crash would leave before op, after all earlier operations.
func (l *crashLab) examine(op crashfs.Op) error {
	if !changes(op.Kind) || l.failed != "" {
		return nil
	}
	l.op++
	l.stats.operations++
	l.readBeside(op)
	if l.replay != nil {
		l.follow()
	} else {
		l.enumerate()
	}
	l.last = op
	if l.faults != nil && !l.calm {
		if err := l.faults(op); err != nil {
			l.stats.injected++
			l.injected = !l.hidden
			return err
		}
	}
	if l.refuses != nil {
		if err := l.refuses(op); err != nil {
			return err
		}
	}
	return l.appendBeside(op)
}

// readBeside reads the log while an operation is under way, with nothing cached. Readers wait for no lock of
// an appender, so this must work. The reader must find what was appended before, even if the cleaner moves it
// meanwhile.
func (l *crashLab) readBeside(op crashfs.Op) {
	if l.log == nil || !l.config.coldReads || l.injected || mix(l.seed, uint64(l.op))>>8%readOdds != 0 {
		return
	}
	l.stats.beside++
	s, err := observe(l.log)
	if err != nil {
		l.fail(nil, "a reader during %v: %v", op, err)
		return
	}
	if sum := s.fingerprint(); sum != l.before && sum != l.history.now.fingerprint() {
		l.fail(nil, "a reader during %v finds %v, want %v", op, s, l.history.now)
	}
}

// The log is read during one operation in readOdds.
const readOdds = 2

func (l *crashLab) enumerate() {
	n := 0
	for d, image := range l.disk.Images(imageBudget, l.seed<<20+uint64(l.op)) {
		n++
		l.stats.images++
		if l.judge(image, labPath{{l.op, d.Code()}}); l.failed != "" {
			l.failed += "\n  " + d.String()
			return
		}
	}
	l.stats.pending = max(l.stats.pending, int64(l.disk.Pending()))
	if n < imageBudget {
		l.stats.complete++
	}
}

// judge recovers an image, unless its disk was recovered before, and judges the state that it shows.
func (l *crashLab) judge(image *crashfs.FS, path labPath) {
	disk := image.Hash()
	v, seen := l.seen[disk]
	if !seen {
		l.stats.distinct++
		inner := &recovery{lab: l, image: image, path: path}
		nested := disk>>8%nestedOdds == 0
		var extras *crashfs.FS
		if disk>>16%faultyOdds == 0 || disk>>24%salvageOdds == 0 {
			extras = image.Image(crashfs.LoseNothing, nil)
		}
		if nested {
			image.SetHook(inner.examine)
		}
		found := l.recover(image, disk, path, "recovery")
		image.SetHook(nil)
		if found == nil {
			return
		}
		v = found.verdict()
		l.compare(inner, v, found.state)
		l.afterwards(image, disk, found, nested, path)
		l.extras(extras, disk, v, path)
		if l.failed != "" {
			return
		}
		l.remember(disk, v)
	}
	if reason := l.verdict(v); reason != "" {
		l.fail(path, "recovery shows a state that it must not: %s", reason)
	}
}

// verdict returns the reason why a recovery must not show v, or "".
func (l *crashLab) verdict(v labVerdict) string {
	if reason := l.past.reject(v.fence); reason != "" {
		return reason
	}
	return l.history.reject(v.sum, v.fence)
}

// compare compares a recovery with those that a crash interrupted and that were then repeated.
func (l *crashLab) compare(inner *recovery, v labVerdict, s labState) {
	for i, again := range inner.found {
		if again.sum != v.sum || v.fence.amnesia && !again.fence.amnesia {
			l.fail(inner.paths[i], "recovery shows %v (amnesia %v); interrupted and repeated it shows another state (amnesia %v)", s, v.fence.amnesia, again.fence.amnesia)
			return
		}
	}
}

// imageMode returns the mode in which a disk is recovered. Half of the disks get the first mode.
func imageMode(disk uint64) labMode { return labMode(max(0, int(disk>>32%8)-3)) }

// afterwards cuts the power after a recovery, at once or after the log was used. The next recovery must show
// the same state.
func (l *crashLab) afterwards(image *crashfs.FS, disk uint64, found *labFound, nested bool, path labPath) {
	told, s := found.told(), found.state
	if nested && l.failed == "" && !imageMode(disk).unsafe() {
		if s = l.goOn(found, disk, path); s == nil {
			return
		}
	}
	image.Crash(crashfs.LoseAll, nil)
	sum, again := s.fingerprint(), image.Hash()
	v, ok := l.seen[again]
	if !ok {
		found := l.recover(image, again, path, "the second recovery")
		if found == nil {
			return
		}
		v = found.verdict()
		l.remember(again, v)
	}
	if reason := told.reject(v.fence); v.sum != sum || reason != "" {
		l.fail(path, "recovery shows %v; after a power cut right after it the log shows another state; %s", s, reason)
	}
}

// labFound is a log that was recovered from an image, with the state that it shows.
type labFound struct {
	log   *wal.Log
	sched *labScheduler
	state labState
}

func (f *labFound) verdict() labVerdict { return labVerdict{f.state.fingerprint(), fenceOf(f.log)} }

// told returns what the fence said. The next recovery is judged by it.
func (f *labFound) told() labPast {
	fence := fenceOf(f.log)
	return labPast{generation: fence.generation, amnesia: fence.amnesia, unsafe: true}
}

// recover opens the log on an image and reads all of it. It returns nil if there is nothing to judge.
func (l *crashLab) recover(image *crashfs.FS, disk uint64, path labPath, which string) *labFound {
	c, found := l.config, &labFound{sched: &labScheduler{}}
	c.mode, c.clock, c.chance = imageMode(disk), &labClock{}, disk
	log, err := l.open(image, c, found.sched)
	if l.stale && isLabReport(err) {
		l.stats.refused++ // a new file with the header of an old one could be a copy, and Open must refuse a copy
		return nil
	}
	if err != nil && l.mayStayClosed(err) { // but it must open when there is space
		l.stats.closed++
		image.SetCapacity(0)
		found.sched = &labScheduler{}
		log, err = l.open(image, c, found.sched)
	}
	if err != nil {
		l.fail(path, "%s refuses: %v; the newest state is %v", which, err, l.history.now)
		return nil
	}
	found.log = log
	if found.state, err = observe(log); err != nil {
		l.fail(path, "%s cannot be read: %v", which, err)
		return nil
	}
	return found
}

// goOn uses the log that was recovered from an image, with its helper, and returns what it acknowledged.
func (l *crashLab) goOn(found *labFound, disk uint64, path labPath) labState {
	l.stats.went++
	w := &labWorkload{rng: rand.New(rand.NewPCG(disk, 2)), count: 1 << 40}
	log, sched := found.log, found.sched
	var h labHistory
	h.setOnly(found.state)
	for range 1 + w.rng.IntN(6) {
		for range w.rng.IntN(4) {
			sched.step()
		}
		writes := w.next(h.now)
		h.write(writes)
		err := appendLab(log, writes)
		if l.full(err) {
			return nil
		}
		if err != nil {
			l.fail(path, "the recovered log refuses an append: %v", err)
			return nil
		}
	}
	if err := log.Sync(); err != nil && !l.full(err) {
		l.fail(path, "the recovered log does not sync: %v", err)
		return nil
	}
	for range w.rng.IntN(12) { // cleaning must lose nothing: the helper moves what is needed first
		sched.step()
	}
	return h.now
}

// extras makes copies of an image and tries a failing disk and a salvage on them.
func (l *crashLab) extras(image *crashfs.FS, disk uint64, v labVerdict, path labPath) {
	if image == nil || l.failed != "" || l.stale || l.limited {
		return
	}
	if disk>>16%faultyOdds == 0 {
		l.recoverOnFailingDisk(image.Image(crashfs.LoseNothing, nil), disk, v, path)
	}
	if disk>>24%salvageOdds == 0 && l.failed == "" {
		l.salvage(image, disk, v, path)
	}
}

// recoverOnFailingDisk makes one operation of a recovery fail. Whether the log opens or not, the next
// recovery must show the same state.
func (l *crashLab) recoverOnFailingDisk(image *crashfs.FS, disk uint64, v labVerdict, path labPath) {
	l.stats.failing++
	rng := rand.New(rand.NewPCG(disk, 3))
	at := 1 + rng.IntN(16)
	image.SetHook(func(op crashfs.Op) error {
		if at--; at != 0 || op.Kind == crashfs.OpLock {
			return nil
		}
		fault := []error{syscall.EIO, syscall.ENOSPC}[rng.IntN(2)]
		switch {
		case op.Kind != crashfs.OpWrite:
			return fault
		case op.Direct:
			return crashfs.Scattered(rng.Uint64(), fault)
		}
		return crashfs.Short(rng.IntN(int(op.Len)+1), fault)
	})
	c := l.config
	c.mode, c.clock, c.chance = imageMode(disk), &labClock{}, disk
	log, err := l.open(image, c, &labScheduler{})
	image.SetHook(nil)
	if err == nil {
		if s, err := observe(log); err != nil || s.fingerprint() != v.sum {
			l.fail(path, "a recovery with a disk error shows %v (%v), which is another state than without the error", s, err)
			return
		}
	}
	image.Crash([]crashfs.Loss{crashfs.LoseNothing, crashfs.LoseSome}[rng.IntN(2)], rng.Uint64)
	if found := l.recover(image, disk, path, "recovery after one that failed"); found != nil && found.state.fingerprint() != v.sum {
		l.fail(path, "after a recovery that failed (%v) the log shows %v, which is another state than without the failure", err, found.state)
	}
}

// salvage spoils a bit of a segment and opens the log with Options.Salvage. The log must show a state that it
// was in. If a crash could not have left that state, the log must say that something is lost.
func (l *crashLab) salvage(image *crashfs.FS, disk uint64, v labVerdict, path labPath) {
	rng := rand.New(rand.NewPCG(disk, 4))
	f, err := image.Open(labDir + "/" + labFirstSegment)
	cleaned := err != nil // the first segment is gone, so a salvage may show entries without the ones before them
	if err == nil {
		_ = f.Close() // of a disk in memory
	}
	if !spoil(image, rng) {
		return
	}
	l.stats.salvaged++
	torn, c := false, l.config
	c.salvage, c.mode, c.clock, c.chance = true, labGroupMode, &labClock{}, disk
	log, err := openLabLog(image.Mount(), labDir, &labScheduler{}, c, func(message string) { torn = torn || isLabTornTail(message) })
	if isLabReport(err) {
		return // the flipped bit changed a version or an owner
	}
	if err != nil {
		l.fail(path, "a spoiled log cannot be salvaged: %v", err)
		return
	}
	s, err := observe(log)
	if err != nil {
		l.fail(path, "a salvaged log cannot be read: %v", err)
		return
	}
	fence, sum := fenceOf(log), s.fingerprint()
	switch _, was := l.history.ever[sum]; {
	case sum != v.sum && !fence.amnesia && !torn:
		l.fail(path, "a bit is spoiled; the log shows %v, and does not report a loss", s)
		return
	case !was && !cleaned:
		l.fail(path, "a salvaged log shows %v, and was never in that state", s)
		return
	}
	for _, h := range log.Holes() {
		if g := s[h.Group]; h.First != g.last()+1 {
			l.fail(path, "group %d ends at %d, and its hole begins at %d", h.Group, g.last(), h.First)
			return
		}
	}
	told := labPast{generation: fence.generation, amnesia: fence.amnesia, unsafe: true}
	image.Crash(crashfs.LoseAll, nil)
	again := l.recover(image, 0, path, "recovery after a salvage")
	if again == nil {
		return
	}
	if reason := told.reject(fenceOf(again.log)); again.state.fingerprint() != sum || reason != "" {
		l.fail(path, "a salvaged log shows %v, and after a power cut %v; %s", s, again.state, reason)
	}
}

// spoil flips a bit of what was written to a segment. It reports false if nothing was written.
func spoil(image *crashfs.FS, rng *rand.Rand) bool {
	names, err := image.ReadDir(labDir)
	names = slices.DeleteFunc(names, func(s string) bool { return !strings.HasSuffix(s, labSegments[1:]) })
	if err != nil || len(names) == 0 {
		return false
	}
	name := labDir + "/" + names[rng.IntN(len(names))]
	used := len(bytes.TrimRight(readDisk(image, name), "\x00"))
	return used > 0 && image.FlipBit(name, rng.Int64N(int64(used)), uint(rng.IntN(8))) == nil
}

// readDisk returns the contents of a file of a disk in memory, or nil if it cannot be read.
func readDisk(disk *crashfs.FS, name string) []byte {
	f, err := disk.Open(name)
	if err != nil {
		return nil
	}
	size, err := f.Size()
	data := make([]byte, size)
	if err == nil && size > 0 {
		_, err = f.ReadAt(data, 0)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return nil
	}
	return data
}

// recovery is a recovery whose disk operations are examined like those of the workload.
type recovery struct {
	lab   *crashLab
	image *crashfs.FS
	path  labPath
	op    int64
	paths []labPath
	found []labVerdict
}

// examine is the image's hook.
func (r *recovery) examine(op crashfs.Op) error {
	l := r.lab
	if !changes(op.Kind) || l.failed != "" {
		return nil
	}
	r.op++
	for d, image := range r.image.Images(nestedBudget, mix(l.seed, uint64(r.op))) {
		r.judge(image, append(slices.Clone(r.path), labTurn{r.op, d.Code()}))
		if l.failed != "" {
			l.failed += "\n  " + d.String()
			return nil
		}
	}
	return nil
}

// judge recovers an image that a crash during a recovery leaves. Its verdict is compared with that of the
// outer recovery when that has finished.
func (r *recovery) judge(image *crashfs.FS, path labPath) {
	l := r.lab
	disk := image.Hash()
	if len(path) == 2 {
		l.stats.nested++
	} else {
		l.stats.deeper++
	}
	v, seen := l.seen[disk]
	deeper := &recovery{lab: l, image: image, path: path}
	if !seen {
		l.stats.distinct++
		if len(path) == 2 && disk>>8%nestedOdds == 0 {
			image.SetHook(deeper.examine)
		}
		found := l.recover(image, disk, path, "recovery after a crash in a recovery")
		image.SetHook(nil)
		if found == nil {
			return
		}
		v = found.verdict()
		l.remember(disk, v)
	}
	r.paths, r.found = append(r.paths, path), append(r.found, v)
	r.paths, r.found = append(r.paths, deeper.paths...), append(r.found, deeper.found...)
}

// follow examines only the image that a replayed path names.
func (l *crashLab) follow() {
	if l.op != l.replay[0].op {
		return
	}
	image, err := l.disk.Replay(l.replay[0].code)
	if err != nil {
		l.fail(nil, "%v", err)
		return
	}
	l.judge(image, l.replay[:1])
}
