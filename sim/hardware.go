package sim

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/transport"
	"github.com/millrace/millrace/vfs/crashfs"
)

// Hardware is what the hosts of an experiment run on. Elsewhere in this package the time that work takes is
// drawn at random, so that events come in many orders. Here it follows from what the work is, so the times
// of an experiment mean something. Each host has some processors, which run one piece of work after the
// other, a disk, and a line to each other host.
type Hardware struct {
	// Delay is how long a frame travels, one way, besides the time that its bytes take on the line.
	Delay time.Duration
	// LineRate is how many bytes a second a line takes in one direction.
	LineRate float64
	// Sync is how long one sync of a disk takes, besides the time of the bytes that it covers.
	Sync time.Duration
	// DiskRate is how many bytes a second a disk takes.
	DiskRate float64
	// Jitter is the part by which a delay or a sync may be longer, at random.
	Jitter float64
	// Processors is how many pieces of work a host does at once.
	Processors int
	Costs
}

// Costs are the processor times of the pieces of work of a host.
type Costs struct {
	Wake    time.Duration // a worker that slept runs again
	Turn    time.Duration // each run of a worker, besides what follows
	Send    time.Duration // a frame is passed to the kernel
	Receive time.Duration // a frame is taken from it
	Write   time.Duration // a write call of the log
	Sync    time.Duration // a sync call of the log
	Client  time.Duration // a client is answered, and hands in its next command, which the leader proposes and applies
	KiB     time.Duration // for each KiB, wherever bytes are sent, received or written: copies and checksums
}

// DefaultCosts are those of the machine on which the experiment's page was made. They were set so that the
// sum over three hosts is what millrace bench measured there. That is about 240 us for the round of a lone
// client, half of it syncs (the kernel's part of a virtual disk). It is 5 us for each command of a thousand
// clients.
var DefaultCosts = Costs{
	Wake: 4 * time.Microsecond, Turn: 3 * time.Microsecond, Send: 5 * time.Microsecond, Receive: 5 * time.Microsecond,
	Write: 8 * time.Microsecond, Sync: 30 * time.Microsecond, Client: 1500 * time.Nanosecond, KiB: 250 * time.Nanosecond,
}

func (c Costs) ofBytes(n int) time.Duration {
	return time.Duration(float64(c.KiB) * float64(n) / 1024)
}

// hardware is the Hardware of a run, at work.
type hardware struct {
	Hardware
	w        *world
	rng      *rand.Rand
	of       map[uint64]*processors // by host
	lines    map[link]time.Duration // when a line is free,
	arrivals map[link]time.Duration // and when its last frame arrives
	current  *piece                 // that runs; nil: none
	used     time.Duration          // processor time, on all hosts
	told     func(*life)            // is called after each piece of work of a host; nil: nothing is
	echoes   bool                   // each frame that reaches a follower is answered at once, and the answer only costs
}

func newHardware(w *world, h Hardware, rng *rand.Rand) *hardware {
	return &hardware{Hardware: h, w: w, rng: rng, of: map[uint64]*processors{}, lines: map[link]time.Duration{}, arrivals: map[link]time.Duration{}}
}

// processors run the pieces of work of a host in the order in which they came. That is what the gathering
// of a group aims at (host/internal/sched/gather.go): clients that are ready hand in their commands
// before the turn.
type processors struct {
	queue []*piece
	busy  int
}

// piece is a piece of work. What it causes (frames, wakes, further work) happens when its processor time has
// passed.
type piece struct {
	life    *life
	cost    time.Duration
	do      func(*piece)
	effects []func()
	wrote   int // bytes, to the log
	synced  bool
}

// add queues a piece of work.
func (h *hardware) add(p *piece) {
	h.after(func() {
		of := h.of[p.life.host.id]
		if of == nil {
			of = &processors{}
			h.of[p.life.host.id] = of
		}
		of.queue = append(of.queue, p)
		h.dispatch(of)
	})
}

// after calls f when the piece of work that runs ends, or at once.
func (h *hardware) after(f func()) {
	if h.current != nil {
		h.current.effects = append(h.current.effects, f)
	} else {
		f()
	}
}

func (h *hardware) dispatch(of *processors) {
	for h.current == nil && of.busy < h.Processors && len(of.queue) > 0 {
		p := of.queue[0]
		of.queue[0], of.queue = nil, of.queue[1:]
		of.busy++
		h.current = p
		p.do(p)
		h.current = nil
		h.used += p.cost
		h.w.plan(p.cost, "work ends", nil, func() {
			of.busy--
			for _, effect := range p.effects {
				effect()
			}
			if h.told != nil {
				h.told(p.life)
			}
			h.dispatch(of)
		})
	}
}

// wake runs a worker. Wakes during a run lead to one run after it.
func (h *hardware) wake(t *task) {
	if t.planned || t.stopped || t.life.dead {
		return
	}
	t.planned = true
	h.after(func() { h.start(t) })
}

// start queues the next run of a worker, when its disk allows it.
func (h *hardware) start(t *task) {
	if t.running {
		return // its end starts it
	}
	if wait := t.ready - h.w.now; wait > 0 {
		h.w.plan(wait, "a disk is ready", t.life, func() { h.start(t) })
		return
	}
	t.running = true
	cost := h.Turn
	if !t.goesOn {
		cost += h.Wake
	}
	h.add(&piece{life: t.life, cost: cost, do: func(p *piece) { h.run(p, t) }})
}

func (h *hardware) run(p *piece, t *task) {
	t.planned = false
	if !t.stopped {
		t.goesOn = t.callWorker()
	}
	if p.wrote > 0 {
		p.cost += h.Write + h.ofBytes(p.wrote)
	}
	if p.synced {
		p.cost += h.Costs.Sync
	}
	p.effects = append(p.effects, func() {
		t.running = false
		if p.wrote > 0 && t.syncs() {
			// The next run of the lane syncs what this one wrote. What the sync covers is written, so it
			// may begin now; its answers come when it has ended, which is when the lane runs again.
			t.ready = h.w.now + h.longer(h.Hardware.Sync) + seconds(float64(p.wrote)/h.DiskRate)
		}
		if t.goesOn || t.planned {
			t.planned = true
			h.start(t)
		}
	})
}

func (t *task) syncs() bool {
	return t.kind&env.Disk != 0 && strings.HasSuffix(t.name, "append")
}

// onOperation charges an operation of a disk to the piece of work that runs.
func (h *hardware) onOperation(op crashfs.Op) {
	if p := h.current; p != nil && strings.HasSuffix(op.Name, ".wal") {
		switch op.Kind {
		case crashfs.OpWrite:
			p.wrote += int(op.Len)
		case crashfs.OpSync:
			p.synced = true
		}
	}
}

// carry sends a frame. Frames of one line keep their order.
func (h *hardware) carry(from *life, to uint64, class transport.Class, frame []byte) {
	if p := h.current; p != nil {
		p.cost += h.Send + h.ofBytes(len(frame))
	}
	frame = append([]byte(nil), frame...)
	h.after(func() {
		lk := link{from.host.id, to}
		h.lines[lk] = max(h.lines[lk], h.w.now) + seconds(float64(len(frame))/h.LineRate)
		h.arrivals[lk] = max(h.arrivals[lk], h.lines[lk]+h.longer(h.Delay))
		h.w.plan(h.arrivals[lk]-h.w.now, "a frame arrives", nil, func() { h.receive(lk, class, from, frame) })
	})
}

func (h *hardware) receive(lk link, class transport.Class, from *life, frame []byte) {
	l := h.w.net.at(lk.to)
	if l == nil || l.receiver == nil || !h.w.net.introduce(from, l) {
		return
	}
	cost := h.Receive + h.ofBytes(len(frame))
	if h.echoes && len(frame) > echoedBytes {
		cost += h.Send
		h.w.plan(h.Delay, "an echo arrives", nil, func() {
			h.add(&piece{life: from, cost: h.Receive + h.Wake + h.Turn, do: func(*piece) {}})
		})
	}
	h.add(&piece{life: l, cost: cost, do: func(*piece) { h.w.net.open(lk, l, class, frame) }})
}

// echoedBytes is less than a frame with a command of the experiment has.
const echoedBytes = 512

// longer adds the jitter to a time.
func (h *hardware) longer(d time.Duration) time.Duration {
	return d + time.Duration(h.Jitter*h.rng.Float64()*float64(d))
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func (h Hardware) String() string {
	return fmt.Sprintf("%v one way, sync %v", h.Delay, h.Sync)
}
