package recipe

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/cmd/internal/lab/bench"
	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/event"
)

// typedCluster is hosts in this process with two groups: of bytes, and typed. The first host leads both.
type typedCluster struct {
	hosts  []*host.Host
	groups []*host.Group
	nodes  []*millrace.Node[[]byte, uint64]
	bytes  []*countingMachine // of groups
	typed  []*countingMachine // of nodes
	leader bench.Leader       // of groups
}

const (
	groupOfBytes = 1
	groupOfTypes = 2

	openTimeout = time.Minute
)

func openTypedCluster(ctx context.Context, hosts int, dir string) (_ *typedCluster, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, openTimeout, fmt.Errorf("the cluster took more than %v to elect leaders", openTimeout))
	defer cancel()
	transports, peers, err := bench.Listen(hosts)
	if err != nil {
		return nil, err
	}
	c := &typedCluster{}
	defer func() {
		if err != nil {
			for _, idle := range transports {
				err = errors.Join(err, idle.Close())
			}
			err = errors.Join(err, bench.CloseHosts(c.hosts))
		}
	}()
	for id := uint64(1); id <= uint64(hosts); id++ {
		t := transports[0]
		transports = transports[1:]
		h, err := host.Open(ctx, host.Config{ID: id, Dir: filepath.Join(dir, fmt.Sprintf("host-%d", id)), Members: peers},
			host.WithTransport(t), host.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			return nil, err // Open has closed t
		}
		c.hosts = append(c.hosts, h)
		b, t2 := &countingMachine{}, &countingMachine{}
		b.begin()
		t2.begin()
		c.bytes, c.typed = append(c.bytes, b), append(c.typed, t2)
		g, err := h.OpenGroup(ctx, host.GroupConfig{ID: groupOfBytes, Volatile: true}, bytesMachine{b})
		if err != nil {
			return nil, err
		}
		n, err := millrace.OpenGroup(ctx, h, host.GroupConfig{ID: groupOfTypes, Leases: true}, millrace.InMemory[[]byte, uint64](typedMachine{t2}, millrace.BytesInPlace()))
		if err != nil {
			return nil, err
		}
		c.groups, c.nodes = append(c.groups, g), append(c.nodes, n)
	}
	return c, c.awaitLeaders(ctx)
}

// awaitLeaders waits until the first host leads both groups.
func (c *typedCluster) awaitLeaders(ctx context.Context) error {
	for _, id := range []uint64{groupOfBytes, groupOfTypes} {
		if err := bench.Lead(ctx, func(i int) *host.Group { return c.hosts[i].Group(id) }); err != nil {
			return fmt.Errorf("group %d: %w", id, err)
		}
	}
	return nil
}

// leads reports whether the first host leads a group.
func (c *typedCluster) leads(group uint64) bool {
	return c.hosts[0].Group(group).Status().Role == event.RoleLeader
}

// machines returns the state machines that a way writes to.
func (c *typedCluster) machines(w typedWay) []*countingMachine {
	if w == writeBytes {
		return c.bytes
	}
	return c.typed
}

// at returns the host, from 0, that a client calls.
func (c *typedCluster) at(w typedWay, client uint32) int {
	if !w.follows() {
		return 0
	}
	return 1 + int(client)%(len(c.hosts)-1)
}

// typedWriter is a cluster as the load.Target of a way that writes.
type typedWriter struct {
	*typedCluster
	way typedWay
}

// writeTyped implements load.Target.
func (t typedWriter) Propose(ctx context.Context, value []byte) (err error) {
	at := t.at(t.way, load.IDOf(value).Client)
	switch t.way {
	case writeBytes:
		err = t.leader.Propose(ctx, func(host int) *host.Group { return t.groups[host] }, value)
	case writeCommitted:
		_, err = t.nodes[at].Commit(ctx, value)
	default:
		_, err = t.nodes[at].Propose(ctx, value)
	}
	return err
}

// Copies implements load.Copier: the API of bytes keeps the value, a codec copies it.
func (t typedWriter) Copies() bool { return t.way != writeBytes }

// Counters implements load.Target.
func (t typedWriter) Counters() (sum load.Counters) {
	for _, h := range t.hosts {
		bench.Count(&sum, h, h.Group(t.way.group()))
	}
	return sum
}

// Verify implements load.Target.
func (t typedWriter) Verify(ctx context.Context, ledger *load.Ledger) error {
	var windows []*load.Machine
	for _, m := range t.machines(t.way) {
		windows = append(windows, m.window)
	}
	return load.VerifyMachines(ctx, windows, ledger)
}

// Close implements load.Target.
func (t typedWriter) Close() error { return bench.CloseHosts(t.hosts) }
