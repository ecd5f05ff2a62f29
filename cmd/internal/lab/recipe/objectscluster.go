package recipe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/bench"
	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/wal"
)

// objectsCluster is hosts in this process with one group. The first host leads.
type objectsCluster struct {
	plan     objectsPlan
	dir      string
	hosts    []*host.Host
	nodes    []*millrace.Node[[]byte, uint64]
	machines []typedMachine
	content  []byte            // of all objects of a round, again and again
	objects  []millrace.Object // that were uploaded
	checked  int               // how many of them were read on every host
}

const (
	objectsOpenTimeout  = time.Minute
	heldTimeout         = 10 * time.Minute // for every host to hold an object, however slow the disk is
	objectsPollInterval = time.Millisecond
)

// openObjectsCluster opens new hosts, whose logs have a mode.
func openObjectsCluster(ctx context.Context, p objectsPlan, round int, dir string, mode wal.Mode, options ...host.Option) (_ *objectsCluster, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, objectsOpenTimeout, fmt.Errorf("the cluster took more than %v to elect a leader", objectsOpenTimeout))
	defer cancel()
	transports, peers, err := bench.Listen(p.Hosts)
	if err != nil {
		return nil, err
	}
	c := &objectsCluster{plan: p, dir: dir, content: newContent(p.Seed, round)}
	defer func() {
		if err != nil {
			for _, idle := range transports {
				err = errors.Join(err, idle.Close())
			}
			err = errors.Join(err, c.close())
		}
	}()
	for id := uint64(1); id <= uint64(p.Hosts); id++ {
		t := transports[0]
		transports = transports[1:]
		m := typedMachine{&countingMachine{}}
		m.begin()
		h, err := host.Open(ctx, host.Config{ID: id, Dir: filepath.Join(dir, fmt.Sprintf("host-%d", id)), Members: peers, Durability: mode},
			append([]host.Option{host.WithTransport(t), host.WithLogger(slog.New(slog.DiscardHandler))}, options...)...)
		if err != nil {
			return nil, fmt.Errorf("host %d: %w", id, err) // Open has closed t
		}
		c.hosts = append(c.hosts, h)
		n, err := millrace.OpenGroup(ctx, h, host.GroupConfig{ID: 1, Snapshots: host.SnapshotPolicy{Disabled: true}},
			millrace.InMemory[[]byte, uint64](m, millrace.BytesInPlace()).Objects(millrace.ObjectOptions{}))
		if err != nil {
			return nil, fmt.Errorf("host %d: %w", id, err)
		}
		c.nodes, c.machines = append(c.nodes, n), append(c.machines, m)
	}
	return c, c.lead(ctx)
}

// lead waits until the first host leads.
func (c *objectsCluster) lead(ctx context.Context) error {
	return bench.Lead(ctx, func(i int) *host.Group { return c.nodes[i].Group() })
}

func (c *objectsCluster) close() error { return bench.CloseHosts(c.hosts) }

// held waits until every host holds an object.
func (c *objectsCluster) held(ctx context.Context, o millrace.Object) error {
	ctx, cancel := context.WithTimeoutCause(ctx, heldTimeout, fmt.Errorf("not every host holds %v after %v", o.ID, heldTimeout))
	defer cancel()
	for _, n := range c.nodes {
		for !holds(n, o.ID) {
			if err := n.Err(); err != nil {
				return err
			}
			if err := lab.Sleep(ctx, objectsPollInterval); err != nil {
				return err
			}
		}
	}
	return nil
}

func holds(n *millrace.Node[[]byte, uint64], id millrace.ObjectID) bool {
	f, err := n.OpenObject(id)
	if err != nil {
		return false
	}
	_ = f.Close() // it was only opened
	return true
}

// check reads an object on every host.
func (c *objectsCluster) check(ctx context.Context, o millrace.Object) error {
	for i, n := range c.nodes {
		f, err := n.OpenObject(o.ID)
		if err != nil {
			return fmt.Errorf("host %d: %w", i+1, err)
		}
		err = c.compare(ctx, io.NewSectionReader(f, 0, f.Size()))
		if err := errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("host %d, object %v: %w", i+1, o.ID, err)
		}
	}
	return nil
}

// objectsWriter is a cluster as the load.Target of small commands.
type objectsWriter struct{ *objectsCluster }

// Propose implements load.Target.
func (t objectsWriter) Propose(ctx context.Context, value []byte) error {
	_, err := t.nodes[0].Propose(ctx, value)
	return err
}

// Copies implements load.Copier: the codec copies.
func (objectsWriter) Copies() bool { return true }

// Counters implements load.Target.
func (t objectsWriter) Counters() (sum load.Counters) {
	for _, h := range t.hosts {
		bench.Count(&sum, h, h.Group(1))
	}
	return sum
}

// Verify implements load.Target.
func (t objectsWriter) Verify(ctx context.Context, ledger *load.Ledger) error {
	var windows []*load.Machine
	for _, m := range t.machines {
		windows = append(windows, m.window)
	}
	return load.VerifyMachines(ctx, windows, ledger)
}

// Close implements load.Target.
func (t objectsWriter) Close() error { return t.close() }
