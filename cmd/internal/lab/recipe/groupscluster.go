package recipe

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/bench"
	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/event"
)

// groupsCluster is hosts in this process with the same n groups. It can be closed and opened again on the
// same directories.
type groupsCluster struct {
	n         int // groups
	dir       string
	heartbeat time.Duration
	stop      func(error) // ends the run: a group has stopped

	hosts    []*host.Host       // those that are open
	groups   [][]*host.Group    // by host and group
	machines [][]*groupsMachine // by host and group
	leaders  []bench.Leader     // by group

	baseline, baselineLog int64 // memory in use with one group: of the process, and of its logs
}

func newGroupsCluster(p groupsPlan, dir string, stop func(error)) *groupsCluster {
	n := p.Groups
	c := &groupsCluster{n: n, dir: dir, heartbeat: p.Heartbeat, stop: stop, leaders: make([]bench.Leader, n)}
	for range p.Hosts {
		c.groups = append(c.groups, make([]*host.Group, n))
		c.machines = append(c.machines, make([]*groupsMachine, n))
	}
	return c
}

// stoppedError is a group that has stopped by itself.
type stoppedError struct {
	host, group uint64
	err         error
}

func (e *stoppedError) Error() string {
	return fmt.Sprintf("host %d: group %d has stopped: %v", e.host, e.group, e.err)
}

func (e *stoppedError) Unwrap() error { return e.err }

// openGroups opens the hosts, with new state machines and without groups.
func (c *groupsCluster) open(ctx context.Context) error {
	transports, peers, err := bench.Listen(len(c.groups))
	if err != nil {
		return err
	}
	for i, t := range transports {
		id := uint64(i + 1)
		h, err := host.Open(ctx, host.Config{
			ID: id, Dir: filepath.Join(c.dir, fmt.Sprintf("host-%d", id)), Members: peers, HeartbeatInterval: c.heartbeat,
		}, host.WithTransport(t), host.WithLogger(slog.New(slog.DiscardHandler)), host.WithEvents(func(e event.Event) {
			switch e := e.(type) {
			case event.GroupStopped:
				c.stop(&stoppedError{id, e.Group, e.Err})
			case event.MachineHalted: // nothing that is measured goes on
				c.stop(&stoppedError{id, e.Group, e.Err})
			}
		}))
		if err != nil { // Open has closed t
			err = fmt.Errorf("host %d: %w", id, err)
			for _, idle := range transports[i+1:] {
				err = errors.Join(err, idle.Close())
			}
			return err
		}
		c.hosts = append(c.hosts, h)
		for g := range c.machines[i] {
			c.machines[i][g] = &groupsMachine{}
		}
	}
	return nil
}

// start opens the hosts and the groups [0, hi).
func (c *groupsCluster) start(ctx context.Context, hi int) error {
	if err := c.open(ctx); err != nil {
		return err
	}
	return c.openGroups(ctx, 0, hi)
}

// leaderTimeout bounds how long all groups together may take to get leaders.
const leaderTimeout = 5 * time.Minute

// openGroups opens the groups [lo, hi), on all hosts at once, and returns when every host knows the leader of
// each of them.
func (c *groupsCluster) openGroups(ctx context.Context, lo, hi int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, leaderTimeout, fmt.Errorf("%d groups took more than %v to open and to elect leaders", hi-lo, leaderTimeout))
	defer cancel()
	return c.onEachHost(ctx, func(ctx context.Context, i int) error {
		for g := lo; g < hi; g++ {
			opened, err := c.hosts[i].OpenGroup(ctx, host.GroupConfig{ID: groupID(g)}, c.machines[i][g])
			if err != nil {
				return fmt.Errorf("host %d: %w", i+1, err)
			}
			c.groups[i][g] = opened
		}
		for g := lo; g < hi; g++ {
			leader, err := c.groups[i][g].WaitLeader(ctx)
			if err != nil {
				return fmt.Errorf("host %d, group %d: %w", i+1, groupID(g), err)
			}
			c.leaders[g].Set(int(leader.ID - 1))
		}
		return nil
	})
}

// groupID returns the id of a group, which is not 0.
func groupID(g int) uint64 { return uint64(g + 1) }

// onEachHost calls f for all hosts at once. The first error ends the context of the others, and is returned.
func (c *groupsCluster) onEachHost(ctx context.Context, f func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for i := range c.hosts {
		wg.Go(func() {
			if err := f(ctx, i); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// close closes the hosts that are open.
func (c *groupsCluster) close() error {
	err := bench.CloseHosts(c.hosts)
	c.hosts = nil
	return err
}

const (
	pollInterval = 20 * time.Millisecond
	restTimeout  = time.Minute
)

// awaitRest waits until the logs of all hosts have written nothing for a while. It returns false if they
// still write after restTimeout.
func (c *groupsCluster) awaitRest(ctx context.Context, quiet time.Duration) (bool, error) {
	began := time.Now()
	last, since := c.written(), began
	for time.Since(began) < restTimeout {
		if err := lab.Sleep(ctx, min(quiet, pollInterval)); err != nil {
			return false, err
		}
		if now := c.written(); now != last {
			last, since = now, time.Now()
		}
		if time.Since(since) >= quiet {
			return true, nil
		}
	}
	return false, nil
}

// written returns what the logs of all hosts have written: appends, and what they prepare ahead of them.
func (c *groupsCluster) written() (total uint64) {
	for _, h := range c.hosts {
		s := h.LogStats()
		total += s.Appends + s.Syncs + s.ZeroedBytes + s.IdleWatermarks
	}
	return total
}

// logMemory returns the memory of the logs of all hosts: their indexes and their recent entries.
func (c *groupsCluster) logMemory() (total int64) {
	for _, h := range c.hosts {
		s := h.LogStats()
		total += int64(s.IndexBytes + s.CachedBytes)
	}
	return total
}

// memoryInUse returns the bytes of the heap and of all stacks that are in use. The first collection empties
// the pools, and the second frees what was in them.
func memoryInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// groupsTarget is the first n groups of a cluster as a load.Target. A client writes to one of them.
type groupsTarget struct {
	*groupsCluster
	n int
}

// share returns the clients that write to a group.
func (t groupsTarget) share(g int) load.Share {
	return load.Share{Every: uint32(t.n), First: uint32(g)}
}

// Propose implements load.Target.
func (t groupsTarget) Propose(ctx context.Context, value []byte) error {
	g := int(load.IDOf(value).Client) % t.n
	return t.leaders[g].Propose(ctx, func(host int) *host.Group { return t.groups[host][g] }, value)
}

// Counters implements load.Target.
func (t groupsTarget) Counters() (sum load.Counters) {
	for i, h := range t.hosts {
		bench.Count(&sum, h, t.groups[i][:t.n]...)
	}
	return sum
}

// Verify implements load.Target. It looks at all groups at once, because each look takes some time.
func (t groupsTarget) Verify(ctx context.Context, ledger *load.Ledger) error {
	errs := make([]error, t.n)
	var wg sync.WaitGroup
	for g := range t.n {
		wg.Go(func() {
			var machines []*load.Machine
			for i := range t.machines {
				machines = append(machines, t.machines[i][g].window)
			}
			if err := load.VerifyMachines(ctx, machines, ledger); err != nil {
				errs[g] = fmt.Errorf("group %d: %w", groupID(g), err)
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err // one sentence is enough
		}
	}
	return nil
}

// Close implements load.Target.
func (t groupsTarget) Close() error { return t.close() }

// totals returns what every state machine holds.
func (c *groupsCluster) totals() (all []groupTotal) {
	for _, of := range c.machines {
		for _, m := range of {
			all = append(all, m.total())
		}
	}
	return all
}

// replayTimeout bounds how long state machines may take to get their commands again.
const replayTimeout = 5 * time.Minute

// awaitTotals waits until every state machine holds what it held before its host was opened again.
func (c *groupsCluster) awaitTotals(ctx context.Context, want []groupTotal) error {
	ctx, cancel := context.WithTimeoutCause(ctx, replayTimeout, nil)
	defer cancel()
	for at := 0; at < len(want); {
		host, group := at/c.n, at%c.n
		switch have := c.machines[host][group].total(); {
		case have == want[at]:
			at++
			continue
		case have.commands >= want[at].commands:
			return fmt.Errorf("%w: host %d, group %d: after %d commands its state was %016x, and after a restart and %d commands it is %016x",
				lab.ErrMismatch, host+1, groupID(group), want[at].commands, want[at].hash, have.commands, have.hash)
		case ctx.Err() != nil:
			return fmt.Errorf("%w: host %d, group %d: it had applied %d commands, and %v after a restart only %d of them",
				lab.ErrMismatch, host+1, groupID(group), want[at].commands, replayTimeout, have.commands)
		}
		_ = lab.Sleep(ctx, pollInterval) // the next look says more
	}
	return nil
}
