package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"syscall"
	"time"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/sim/property"
	"github.com/millrace/millrace/snapshot"
	"github.com/millrace/millrace/transport"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal"
)

// machine is one machine of the cluster: a disk that stays, and at times a process on it.
type machine struct {
	rotten   bool // its disk has returned wrong bytes, or none: objects may have gone
	w        *world
	id       uint64
	disk     *crashfs.FS
	trouble  trouble
	isFull   bool
	shortage shortage
	power    powerFailure
	memory
	alive   *life // nil: down
	lives   int
	clock   hardwareClock
	joins   bool                  // it waits to be added to its groups (churn.go)
	cluster uint64                // that it joins (rescue.go); 0: the one of the run
	ghosts  []*ghost              // of another cluster than the run's (rescue.go); nil: it is of that
	lost    transport.Incarnation // the directory that was wiped
	tokens  []string              // with which it starts, to join (join.go)
	key     hostKey               // keys.go
	addr    string                // moves.go
	reached map[uint64]uint64     // the highest index applied in any life, by group
	logged  bool                  // its log has an entry: its founding list stays
	timeout time.Duration         // its election timeout; 0: that of the run

	slowDisk     time.Duration // added to each write and each sync
	stallUntil   time.Duration // the disk hangs until then
	readsUntil   time.Duration // reads of it hang until then
	machineUntil time.Duration // the state machine hangs until then
	pausedUntil  time.Duration // the process is paused until then
	stops        time.Duration // it pauses for so long when it reads its clock next; 0: it does not (reads.go)
	// mayLeave: a directory of its disk could not be synced, so the names in it stay until a process starts.
	mayLeave bool
}

// ghost returns the record of the group that a machine's host takes part in.
func (h *machine) ghost(group uint64) *ghost {
	if h.ghosts != nil {
		return h.ghosts[group-1]
	}
	return h.w.ghosts[group-1]
}

// life is one life of a host: the process between its start and its end.
type life struct {
	w           *world
	host        *machine
	name        string
	dead        bool
	impostor    bool                  // impostor.go
	can         statemachine.Versions // upgrades.go
	rng         *rand.Rand
	paths       crashfs.Namespace
	process     *host.Host
	replicas    []*replica // in the order of their groups
	receiver    transport.Receiver
	book        map[uint64]string // where it dials other hosts; nil: in a run without moves
	others      map[uint64]string // where it dials them next
	refused     bool              // its disk has refused entries and is still full
	sawError    bool              // its disk has returned an error
	sawFull     bool              // its disk may have been full
	sawRot      bool              // its disk has returned wrong bytes of a snapshot
	sawShort    bool              // its machine has had no descriptor
	sawMoved    bool              // its directory was moved away
	isMoved     bool              // and is not back
	sawOverload bool              // it has refused a command for lack of memory
	failed      bool              // one of its groups has stopped
	moments                       // phases.go
}

// newDisk returns an empty disk. That of every second host can write zeros by itself (vfs.WriteZeroes).
func newDisk(id uint64) *crashfs.FS {
	disk := crashfs.New()
	disk.SetWriteZeroes(id%2 == 0)
	return disk
}

func newMachine(w *world, id uint64) *machine {
	h := &machine{w: w, id: id, addr: firstAddr(id), disk: newDisk(id), clock: hardwareClock{drift: 1}, reached: map[uint64]uint64{}}
	h.disk.SetHook(h.onOperation)
	return h
}

// directory is Config.Dir of all hosts. It is relative: the process changes its working directory as soon as
// the host is open (property_directory.go).
const directory = "data"

// open starts the process of a life in the simulated environment, and opens its groups.
func (l *life) open(c host.Config, machine func(*replica) statemachine.Machine) error {
	c.ID, c.Dir = l.host.id, directory
	ctx := context.Background()
	process, err := host.Open(ctx, c,
		host.WithEnv(l.env()),
		host.WithFS(l.host.disk.MountIn(&l.paths)),
		host.WithTransport(l.transport()),
		host.WithPipeline(l.w.pipeline),
		host.WithBatches(l.w.batches),
		host.WithLogger(slog.New(l)),
		host.WithEvents(l.event))
	if err != nil || l.dead {
		return err
	}
	l.paths.Chdir(elsewhere)
	if err := l.openGroups(process, machine); err != nil || l.dead {
		return errors.Join(err, process.Close(ctx))
	}
	l.process = process
	l.tellOfMove()
	return nil
}

// start opens the host's directory, whatever its state. If the power or the disk fails meanwhile, it tries
// again later.
func (h *machine) start() {
	if h.alive != nil || h.gone {
		return
	}
	if r := h.w.restoring; r != nil {
		r.end()
	}
	h.lives++
	h.w.well.ill()
	l := &life{w: h.w, host: h, name: fmt.Sprintf("host %d.%d", h.id, h.lives), rng: splitSeed(h.w.options.Seed, h.id<<32|uint64(h.lives))}
	l.sawFull = h.isFull || h.trouble.full || h.trouble.fullSnapshots
	l.sawShort = h.isShort()
	h.alive = l
	l.can = h.w.upgrades.program(h)
	config := h.w.config
	h.w.mixConfig(&config, h)
	h.w.packing.configure(&config, h)
	config.ElectionTimeout = cmp.Or(h.timeout, config.ElectionTimeout)
	config.JoinTokens = h.tokens
	h.w.lowerMemory(&config, h.id)
	h.w.placing.configure(&config, h.id)
	h.w.churn.nameFewer(&config, h)
	if h.cluster != 0 {
		config.Joins, config.Cluster = true, h.cluster
	}
	err := l.open(config, h.w.machine)
	switch {
	case l.dead: // during Open
		return
	case err != nil && (l.excused(err) || l.excusesShort(err)):
		l.dead, h.alive = true, nil
		h.promised = false // the log may have been closed in good order
		h.w.count(FailedStarts)
		h.w.record(fmt.Sprintf("%s does not start: %v", l.name, err))
		h.w.nemesis.restart(h)
		return
	case err != nil:
		h.w.breaks(property.Failures, "%s does not start from its own disk: %v", l.name, err)
	case l.isWithoutAuthority():
		if !h.mayForget && !h.expendable {
			h.w.breaks(property.Failures, "%s is without authority, although its machine has not lost its power", l.name)
		}
		h.mayForget = true
		h.w.count(LostAuthority)
	case h.forgot:
		h.w.breaks(property.Failures, "%s starts with authority, although its machine has lost its power and appends counted in mode %v that were not durable", l.name, h.w.mode)
	default:
		h.remembers()
	}
	h.promised = h.w.mode.Unsafe()
	h.w.record(l.name + " is up")
	h.strikeShort()
}

// excused reports whether this process's disk explains an error.
func (l *life) excused(err error) bool {
	damage := (*snapshot.DamageError)(nil)
	return l.excusesMove(err) || l.sawError && errors.Is(err, syscall.EIO) || l.sawFull && (errors.Is(err, syscall.ENOSPC) || errors.Is(err, wal.ErrDiskFull)) ||
		l.sawRot && errors.As(err, &damage)
}

// mayStop reports whether a group may stop because of an error. It may if the disk has returned errors. A
// full disk is a reason only in the synchronous pipelines; in the asynchronous one it is none, even if not
// even preallocated space can be written.
func (l *life) mayStop(err error) bool {
	return l.excused(err) && (l.excusesMove(err) || l.sawError || l.sawRot || !l.w.pipeline.AsyncStorageWrites())
}

// crash ends the process, and cuts the machine's power unless loss is LoseNothing. The rest of the process's
// current call has no effect: its disk handles are dead, its messages are dropped, and its workers never run
// again.
func (h *machine) crash(loss crashfs.Loss) {
	l := h.alive
	if l == nil {
		return
	}
	if loss == crashfs.LoseNothing {
		h.w.count(ProcessCrashes)
	} else {
		h.w.count(PowerCuts)
	}
	h.w.record(fmt.Sprintf("%s crashes, losing %v", l.name, loss))
	l.checkFlight()
	l.dead, h.alive = true, nil
	h.power.after = 0
	h.disk.Crash(loss, h.w.nemesis.rng.Uint64)
	h.w.packing.crash(h.disk, loss)
	h.ended(l, loss)
}

// crashAtOperation makes the power fail at the n-th disk operation from now. Half of the time only syncs are
// counted, because just before a sync there is most to lose.
func (h *machine) crashAtOperation(n int, loss crashfs.Loss, then func()) {
	h.power = powerFailure{after: n, onlySyncs: h.w.nemesis.rng.IntN(2) == 0, loss: loss, then: then}
}

// close ends the process in good order, and demands that all its clients are answered by then.
func (h *machine) close() {
	l := h.alive
	h.promised = false // a crash may come at any point of Close, even after the log is marked whole
	l.checkFlight()
	err := l.process.Close(context.Background())
	if l.dead { // the power failed meanwhile
		return
	}
	h.w.record(fmt.Sprintf("%s is closed: %v", l.name, err))
	if err != nil && !l.excused(err) {
		h.w.breaks(property.Failures, "%s does not close: %v", l.name, err)
	}
	for _, r := range l.replicas {
		h.w.clients.poll(r)
		h.w.reads.poll(r)
		if r.isAwaited() {
			h.w.breaks(property.Answered, "%s is closed, and clients still wait: %s", r.name, h.w.waiting())
		}
	}
	l.dead, h.alive = true, nil
	h.power.after = 0
	if err != nil && h.w.mode.Unsafe() {
		h.mayForget = true // a log whose end could not be written counts as lost at the next start
	}
	if h.w.mode.Kind == wal.KindMemory {
		h.leaveForGood(l)
	}
}

// delay draws how long a worker's next piece of work takes.
func (h *machine) delay(t *task) time.Duration {
	d := between(h.w.rng, 0, 100*time.Microsecond)
	if t.kind&env.Disk != 0 {
		d = h.slowDisk + between(h.w.rng, 50*time.Microsecond, 2*time.Millisecond) + max(0, h.stallUntil-h.w.now)
	}
	if t.kind&env.DiskReads != 0 {
		d = between(h.w.rng, 50*time.Microsecond, 2*time.Millisecond) + max(0, h.stallUntil-h.w.now, h.readsUntil-h.w.now)
	}
	if t.kind&env.StateMachine != 0 {
		d += max(0, h.machineUntil-h.w.now)
	}
	return d
}

// event counts what the process reports.
func (l *life) event(e event.Event) {
	l.observeEvent(e)
	switch e := e.(type) {
	case event.LogEvent:
		switch e.Event.(type) {
		case wal.TailCut:
			l.w.count(TornTails)
		case wal.AmnesiaEnded:
			l.host.remembers()
		}
	case event.AuthorityRegained:
		l.w.count(Regained)
	case event.GroupStopped:
		l.w.flights.Stops++
	case event.MachineResumed:
		l.w.count(MadeAgain)
		if s := l.w.diverging; s != nil {
			s.report.Resumed++
		}
	case event.GroupFounded:
		l.host.ghost(e.Group).founded = true
	case event.Diverged:
		if l.w.user != nil {
			l.w.breaks(property.Failures, "the machine is not deterministic: %s reports: %v (package smtest looks for the cause)", l.name, e)
		}
		if l.w.diverging == nil {
			l.w.breaks(property.Failures, "%s reports what is not true: %v", l.name, e)
		}
		l.w.diverging.recordDiverged(e)
	case event.SnapshotTaken:
		l.w.count(SnapshotsTaken)
		l.capturing = max(l.capturing-1, 0)
	case event.ObjectReceived:
		l.w.count(Fetches)
	case event.ObjectTransferFailed:
		l.w.count(FetchesOver)
	case event.SnapshotPassed:
		l.w.count(PassedBy)
	case event.SnapshotReceived:
		l.host.strikeShort()
	case event.SnapshotInstalled:
		l.w.count(Installs)
	case event.SnapshotTransferAborted:
		l.w.count(Aborts)
	case event.SnapshotFailed:
		l.w.count(SnapshotsFailed)
		l.capturing = max(l.capturing-1, 0)
		// It may take one of the very index that it receives, if it gets the entries meanwhile.
		if !l.sawError && !l.sawFull && !l.sawRot && l.host.power.after == 0 && !errors.Is(e.Err, snapshot.ErrBusy) && !errors.Is(e.Err, errDeaf) && !l.excusesShort(e.Err) && !l.excusesMove(e.Err) {
			l.w.breaks(property.Failures, "%s cannot take a snapshot, although its disk works: %v", l.name, e.Err)
		}
	case event.MembersChanged:
		l.host.ghost(e.Group).checkRoster(l.w, l.name, e)
		l.checkHolders(e)
	case event.JoinRefused:
		if e.By == 0 {
			l.w.count(Reuses)
		}
	case event.LeadershipGivenUp:
		l.w.count(HandOvers)
		if e.Placement {
			l.w.count(Placements)
			l.w.placing.checkMove(l, e)
		}
	case event.RefusedForgotten:
		l.w.count(Forgettings)
		l.refused = false
	case event.DiskFull:
		l.w.count(Refusals)
		l.refused = true
	}
}

// A life is also the process's log handler: with a trace, its log lines appear among the events.

// Enabled does not depend on the trace: a line is an event of the host, and a traced run must be the same
// run.
func (l *life) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

func (l *life) Handle(_ context.Context, r slog.Record) error {
	l.observeLine(r)
	if l.w.options.Trace == nil {
		return nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%12v %s   log: %s", l.w.now, l.name, r.Message)
	r.Attrs(func(a slog.Attr) bool { fmt.Fprintf(&b, " %s", a); return true })
	_, err := fmt.Fprintln(l.w.options.Trace, b.String())
	return err
}

func (l *life) WithAttrs([]slog.Attr) slog.Handler { return l }
func (l *life) WithGroup(string) slog.Handler      { return l }
