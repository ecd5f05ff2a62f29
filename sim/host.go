package sim

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/transport"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal"
)

// host is a machine: a disk that stays, and now and then a process on it.
type host struct {
	w          *world
	id         uint64
	disk       *crashfs.FS
	alive      *incarnation // nil: down
	lives      int
	drift      float64       // of its clock
	stallUntil time.Duration // its disk answers nothing before
}

// incarnation is one life of a process.
type incarnation struct {
	w        *world
	host     *host
	name     string
	dead     bool
	impostor bool // impostor.go
	rng      *rand.Rand
	process  *millrace.Host
	receiver transport.Receiver
	watch    watch
	pending  []pending
}

func newHost(w *world, id uint64) *host {
	return &host{w: w, id: id, disk: crashfs.New(), drift: 1}
}

const directory = "data"

// start opens the host's directory, whatever state it is in. If the disk's power fails meanwhile, it tries again later.
func (h *host) start() {
	if h.alive != nil {
		return
	}
	h.lives++
	i := &incarnation{w: h.w, host: h, name: fmt.Sprintf("host %d.%d", h.id, h.lives), rng: splitSeed(h.w.options.Seed, h.id<<32|uint64(h.lives))}
	i.watch.leaderIn = map[uint64]bool{}
	h.alive = i
	c := h.w.config
	c.ID, c.Dir = h.id, directory
	process, err := millrace.Open(c, machine{i},
		millrace.WithEnv(i.env()),
		millrace.WithFS(h.disk.Mount()),
		millrace.WithTransport(i),
		millrace.WithPipeline(h.w.pipeline),
		millrace.WithLogger(slog.New(i)))
	switch {
	case i.dead: // in the middle of it
		return
	case err != nil:
		h.w.violate("%s does not start from its own disk: %v", i.name, err)
	}
	i.process = process
	h.w.note(i.name + " is up")
}

// crash ends the process and cuts the disk's power. What the process may still do in this very call stack reaches
// nobody: its disk handles are dead, its messages are dropped, its workers never run again.
func (h *host) crash(loss crashfs.Loss) {
	if h.alive == nil {
		return
	}
	h.w.crashes++
	h.w.note(fmt.Sprintf("%s crashes, losing %v", h.alive.name, loss))
	h.alive.dead = true
	h.alive = nil
	h.disk.SetHook(nil)
	h.disk.Crash(loss, h.w.nemesis.rng.Uint64)
}

// crashAtOperation lets the power fail in the middle of what the process does, at the n-th disk operation from now.
// Half of the time only syncs are counted: just before one there is most to lose.
func (h *host) crashAtOperation(n int, loss crashfs.Loss, then func()) {
	atSync := h.w.nemesis.rng.IntN(2) == 0
	h.disk.SetHook(func(op crashfs.Op) error {
		if h.w.looking || (atSync && op.Kind != crashfs.OpSync) {
			return nil
		}
		if n--; n == 0 {
			h.crash(loss)
			then()
		}
		return nil
	})
}

// delay is how long a worker's next piece of work takes.
func (h *host) delay(disk bool) time.Duration {
	if !disk {
		return between(h.w.rng, 0, 100*time.Microsecond)
	}
	d := between(h.w.rng, 50*time.Microsecond, 2*time.Millisecond)
	if h.stallUntil > h.w.now {
		d += h.stallUntil - h.w.now
	}
	return d
}

// isDiskWork tells the workers that wait for a disk from those that only compute. In the synchronous pipelines the group
// saves in its own turn.
func (i *incarnation) isDiskWork(name string) bool {
	return strings.HasSuffix(name, "append") || strings.HasPrefix(name, "wal") ||
		(strings.HasSuffix(name, "group") && !i.w.pipeline.AsyncStorageWrites())
}

// The incarnation is the process's log handler too: with a trace, what it logs is among the events.

func (i *incarnation) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn || i.w.options.Trace != nil
}

func (i *incarnation) Handle(_ context.Context, r slog.Record) error {
	if r.Message == wal.TornTail {
		i.w.torn++
	}
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
