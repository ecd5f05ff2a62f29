package sim

import (
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
	"github.com/millrace/millrace/transport"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal"
)

// server is a machine: a disk that stays, and at times a process on it.
type server struct {
	w       *world
	id      uint64
	disk    *crashfs.FS
	trouble trouble
	isFull  bool
	power   powerFailure
	memory
	alive *incarnation // nil: down
	lives int
	clock hardwareClock

	stallUntil   time.Duration // the disk hangs until then
	machineUntil time.Duration // the state machine hangs until then
	pausedUntil  time.Duration // the process is paused until then
}

// incarnation is one life of a process.
type incarnation struct {
	w        *world
	host     *server
	name     string
	dead     bool
	impostor bool // impostor.go
	rng      *rand.Rand
	process  *host.Host
	receiver transport.Receiver
	watch    watch
	pending  []pending
	refused  bool // its disk has refused entries and is still full
	sawError bool // its disk has returned an error
	sawFull  bool // its disk may have been full
	failed   bool // its group has stopped
}

func newServer(w *world, id uint64) *server {
	h := &server{w: w, id: id, disk: crashfs.New(), clock: hardwareClock{drift: 1}}
	h.disk.SetHook(h.onOperation)
	return h
}

const directory = "data"

// open starts the process of an incarnation in the simulated environment.
func (i *incarnation) open(c host.Config, m host.StateMachine) (*host.Host, error) {
	c.ID, c.Dir = i.host.id, directory
	return host.Open(c, m,
		host.WithEnv(i.env()),
		host.WithFS(i.host.disk.Mount()),
		host.WithTransport(i),
		host.WithPipeline(i.w.pipeline),
		host.WithLogger(slog.New(i)),
		host.WithEvents(i.event))
}

// start opens the host's directory, whatever its state. If the power or the disk fails meanwhile, it tries
// again later.
func (h *server) start() {
	if h.alive != nil || h.gone {
		return
	}
	h.lives++
	i := &incarnation{w: h.w, host: h, name: fmt.Sprintf("host %d.%d", h.id, h.lives), rng: splitSeed(h.w.options.Seed, h.id<<32|uint64(h.lives))}
	i.watch.leaderIn = map[uint64]bool{}
	i.sawFull = h.isFull
	h.alive = i
	process, err := i.open(h.w.config, machine{i})
	switch {
	case i.dead: // during Open
		return
	case errors.Is(err, host.ErrAmnesia) && h.mayForget:
		i.dead, h.alive = true, nil
		h.leaveForGood(i)
		return
	case err != nil && i.excused(err):
		i.dead, h.alive = true, nil
		h.w.count(FailedStarts)
		h.w.note(fmt.Sprintf("%s does not start: %v", i.name, err))
		h.w.nemesis.restart(h)
		return
	case err != nil:
		h.w.violate("%s does not start from its own disk: %v", i.name, err)
	case h.forgot:
		h.w.violate("%s starts, although its machine has lost its power and appends counted in mode %v that were not durable", i.name, h.w.mode)
	}
	i.process = process
	h.promised = h.w.mode.Unsafe()
	h.w.note(i.name + " is up")
}

// excused reports whether this process's disk explains an error.
func (i *incarnation) excused(err error) bool {
	return i.sawError && errors.Is(err, syscall.EIO) || i.sawFull && (errors.Is(err, syscall.ENOSPC) || errors.Is(err, wal.ErrDiskFull))
}

// mayStop reports whether an error is reason enough for a group to stop. An error of the disk is. A full disk
// is only in the synchronous pipelines, even if not even preallocated space can be written.
func (i *incarnation) mayStop(err error) bool {
	return i.excused(err) && (i.sawError || !i.w.pipeline.AsyncStorageWrites())
}

// crash ends the process, and cuts the machine's power unless loss is LoseNothing. The rest of the process's
// current call has no effect: its disk handles are dead, its messages are dropped, and its workers never run
// again.
func (h *server) crash(loss crashfs.Loss) {
	i := h.alive
	if i == nil {
		return
	}
	if loss == crashfs.LoseNothing {
		h.w.count(ProcessCrashes)
	} else {
		h.w.count(PowerCuts)
	}
	h.w.note(fmt.Sprintf("%s crashes, losing %v", i.name, loss))
	i.dead, h.alive = true, nil
	h.power.after = 0
	h.disk.Crash(loss, h.w.nemesis.rng.Uint64)
	h.ended(i, loss)
}

// crashAtOperation makes the power fail at the n-th disk operation from now. Half of the time only syncs are
// counted, because just before a sync there is most to lose.
func (h *server) crashAtOperation(n int, loss crashfs.Loss, then func()) {
	h.power = powerFailure{after: n, onlySyncs: h.w.nemesis.rng.IntN(2) == 0, loss: loss, then: then}
}

// close ends the process in good order, and demands that all its clients are answered by then.
func (h *server) close() {
	i := h.alive
	h.promised = false // a crash may come at any point of Close, even after the log is marked whole
	err := i.process.Close(context.Background())
	if i.dead { // the power failed meanwhile
		return
	}
	h.w.note(fmt.Sprintf("%s is closed: %v", i.name, err))
	if err != nil && !i.excused(err) {
		h.w.violate("%s does not close: %v", i.name, err)
	}
	h.w.clients.poll(i)
	if len(i.pending) > 0 {
		h.w.violate("%s is closed, and the client of %q still waits", i.name, i.pending[0].command)
	}
	i.dead, h.alive = true, nil
	h.power.after = 0
	if err != nil && h.w.mode.Unsafe() {
		h.mayForget = true // a log whose end could not be written counts as lost at the next start
	}
	if h.w.mode.Kind == wal.KindMemory {
		h.leaveForGood(i)
	}
}

// delay draws how long a worker's next piece of work takes.
func (h *server) delay(t *task) time.Duration {
	d := between(h.w.rng, 0, 100*time.Microsecond)
	if t.kind&env.Disk != 0 {
		d = between(h.w.rng, 50*time.Microsecond, 2*time.Millisecond) + max(0, h.stallUntil-h.w.now)
	}
	if t.kind&env.StateMachine != 0 {
		d += max(0, h.machineUntil-h.w.now)
	}
	return d
}

// event counts what the process reports.
func (i *incarnation) event(e host.Event) {
	switch e := e.(type) {
	case host.LogEvent:
		if _, cut := e.Event.(wal.TailCut); cut {
			i.w.count(TornTails)
		}
	case host.RefusedForgotten:
		i.w.count(Forgettings)
		i.refused = false
	case host.DiskFull:
		i.w.count(Refusals)
		i.refused = true
	}
}

// The incarnation is also the process's log handler: with a trace, its log lines appear among the events.

func (i *incarnation) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn || i.w.options.Trace != nil
}

func (i *incarnation) Handle(_ context.Context, r slog.Record) error {
	if i.w.options.Trace == nil {
		return nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%12v %s   log: %s", i.w.now, i.name, r.Message)
	r.Attrs(func(a slog.Attr) bool { fmt.Fprintf(&b, " %s", a); return true })
	_, err := fmt.Fprintln(i.w.options.Trace, b.String())
	return err
}

func (i *incarnation) WithAttrs([]slog.Attr) slog.Handler { return i }
func (i *incarnation) WithGroup(string) slog.Handler      { return i }
