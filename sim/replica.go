package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/sim/property"
	"github.com/millrace/millrace/wal"
)

// replica is one life of a host in one group.
type replica struct {
	life    *life
	id      uint64 // of the group
	name    string
	group   *host.Group // nil: it is being opened, or closed
	ghost   *ghost
	watch   watch
	pending []pending
	gather  *gathering // of the commands that were handed in together
	calls   []*simCall
	uploads []*simUpload
	objects *host.Objects // nil: the group has none
	node    any           // *millrace.Node of a user (user.go); nil: there is no user
	reading []*aRead
	// answers gather the outcomes of some of them, and outcomes is memory.
	answers  *host.Completions
	outcomes []outcome.Completion
	sunk     []outcome.Completion // that a sink has got
	state    map[string]bool      // the commands that its state machine has applied
	sum      uint64               // of their hashes
	members  uint64               // the entry whose members its state machine knows
	// restored is the index of the snapshot from which it was restored last.
	restored  uint64
	seen      int // how many of the first acknowledged commands are among them
	closing   bool
	blind     bool                  // its program cannot decode some poison commands (poisonskip.go)
	suspect   bool                  // its machine has halted, and its state is that of a half-done batch
	condemned bool                  // it was halted for good
	halted    bool                  // its program cannot do the version of the group (upgrades.go)
	can       statemachine.Versions // its program
	recovers  uint64                // what hosts had applied when it was opened
}

// openGroups opens the groups of a process.
func (l *life) openGroups(process *host.Host, machine func(*replica) statemachine.Machine) error {
	for i := range l.w.ghosts {
		r := l.newReplica(l.host.ghost(uint64(i + 1)))
		l.replicas = append(l.replicas, r)
		if err := r.open(process, machine(r)); err != nil || l.dead {
			return err
		}
	}
	return nil
}

func (l *life) newReplica(g *ghost) *replica {
	r := &replica{life: l, id: g.id, name: l.name, ghost: g, recovers: g.last(), state: map[string]bool{}}
	if len(l.w.ghosts) > 1 {
		r.name = fmt.Sprintf("%s in group %d", l.name, g.id)
	}
	r.watch.leaderIn = map[uint64]bool{}
	r.can = l.can
	if p := l.w.poisons; p != nil {
		r.blind = p.blind[l.host.id]
	}
	return r
}

func (r *replica) open(process *host.Host, machine statemachine.Machine) (err error) {
	c := r.life.w.groupConfig
	c.ID, c.Joins = r.id, r.life.w.joins(r.life.host)
	r.life.w.placing.configureGroup(&c, r.life.host.id)
	if u := r.life.w.user; u != nil {
		r.group, err = u.open(r, process, c)
		return err
	}
	r.group, err = process.OpenGroup(context.Background(), c, machine)
	return err
}

// ended is the context of a caller that does not wait: in the simulator no other goroutine does the work.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// closeGroup closes one group of a process under load, and opens it again when the host has released it.
func (n *nemesis) closeGroup() {
	h := n.anyHost()
	if h.alive == nil || h.alive.process == nil || n.w.mode.Kind == wal.KindMemory || n.w.mode.Unsafe() {
		return
	}
	r := pick(n.rng, h.alive.replicas...)
	if r.group == nil || r.closing {
		return
	}
	n.w.count(GroupCloses)
	n.w.record(r.name + " is closed")
	r.closing = true
	n.reopen(r)
}

// reopen asks again and again whether the group is closed, and then opens it.
func (n *nemesis) reopen(r *replica) {
	w := n.w
	if err := r.group.Close(ended); err != nil {
		if !errors.Is(err, context.Canceled) {
			w.breaks(property.Failures, "%s does not close: %v", r.name, err)
		}
		w.plan(between(n.rng, time.Millisecond, 5*time.Millisecond), r.name+" is closing", r.life, func() { n.reopen(r) })
		return
	}
	w.clients.poll(r)
	w.reads.poll(r)
	if r.isAwaited() {
		w.breaks(property.Answered, "%s is closed, and clients still wait: %s", r.name, w.waiting())
	}
	l := r.life
	fresh := l.newReplica(r.ghost)
	for i := range l.replicas {
		if l.replicas[i] == r {
			l.replicas[i] = fresh
		}
	}
	err := fresh.open(l.process, w.machine(fresh))
	if l.dead {
		return
	}
	if err != nil {
		fresh.group = nil
		if !l.excused(err) && !l.excusesShort(err) && !((l.sawError || l.sawMoved) && errors.Is(err, outcome.ErrStopped)) {
			w.breaks(property.Failures, "%s does not open again: %v", fresh.name, err)
		}
		w.nemesis.replace(l)
		return
	}
	w.record(fresh.name + " is open again")
}

// leads reports whether the replica says that it leads.
func (r *replica) leads() bool {
	return r.group != nil && r.group.Status().Role == event.RoleLeader
}
