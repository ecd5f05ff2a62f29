// Package millracetest runs several nodes of a program in one process, for its tests. It has the real
// runtime and log, a network inside the process, and disks in memory that lose their power.
//
//	c := millracetest.New(t, 3, func(id uint64) millrace.Machine[int64, int64] {
//		return millrace.InMemory(&counter{}, millrace.Binary[int64]())
//	})
//	sum, err := c.Node(1).Propose(ctx, 1)
//	c.Kill(c.Leader(ctx))
//
// Nothing has to be cleaned up. If the test fails, the log lines of all hosts are printed.
//
// Time. A cluster runs in real time, with elections after about 200 ms, or in the bubble of a
// testing/synctest.Test in which New is called. In a bubble time passes only when all goroutines wait, so an
// election takes no time, and a test waits for nothing. An hour costs seconds, for the ticks of the hosts.
// Clocks, those of leases too, are those of package time in both.
//
// The order of events differs from run to run. Package sim runs whole hosts from a seed instead, with far
// more faults. Look for bugs there; this package is for tests that tell a story.
package millracetest

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/transport/loopback"
)

// Cluster is a number of nodes, with ids from 1, that replicate one machine. Its methods may be called by
// several goroutines. A method that fails the test (it says so) may be called only by the goroutine of the
// test.
type Cluster[C, R any] struct {
	t          testing.TB
	newMachine func(id uint64) millrace.Machine[C, R]
	host       host.Config // of every host, without its id
	group      millrace.GroupConfig
	net        *loopback.Network
	lines      *lines

	mu      sync.Mutex
	members []*member[C, R]
	cut     map[[2]uint64]bool // both directions are in it
	changed chan struct{}      // closed when a role or a link changes
	founded bool               // the group is, as one of its leaders has said
}

// member is a machine with a disk, and at times a node on it.
type member[C, R any] struct {
	id   uint64
	life sync.Mutex // who opens it or takes it down
	disk *disk
	host *host.Host
	net  *loopback.Transport
	node *millrace.Node[C, R] // nil: it is down
	last *millrace.Node[C, R] // the latest, up or down
}

// Option changes the configuration of a cluster.
type Option func(*options)

type options struct {
	host  func(*host.Config)
	group millrace.GroupConfig
	dir   string
}

// WithGroup sets the configuration of the group, such as its bounds. ID and Members are set by New.
func WithGroup(c millrace.GroupConfig) Option { return func(o *options) { o.group = c } }

// WithHost changes the configuration of all hosts, such as their timeouts. change gets what New would use.
// ID, Dir and Members are set by New.
func WithHost(change func(*host.Config)) Option { return func(o *options) { o.host = change } }

// New opens a cluster of n nodes, which the end of the test closes. newMachine returns a new machine each
// time that a node is opened. A durable machine keeps its files where newMachine says, so that it finds them
// again after a restart; killing a node does not harm them. New does not wait for a leader. It fails the test
// if a node does not open.
func New[C, R any](t testing.TB, n int, newMachine func(id uint64) millrace.Machine[C, R], opts ...Option) *Cluster[C, R] {
	t.Helper()
	if n < 1 || newMachine == nil {
		t.Fatalf("millracetest: New needs at least one node, not %d, and a function that makes their machines", n)
	}
	var o options
	for _, option := range opts {
		option(&o)
	}
	c := &Cluster[C, R]{
		t: t, newMachine: newMachine, group: o.group, net: loopback.NewNetwork(), lines: newLines(),
		cut: map[[2]uint64]bool{}, changed: make(chan struct{}),
		host: host.Config{HeartbeatInterval: 20 * time.Millisecond, ElectionTimeout: 200 * time.Millisecond, SegmentBytes: 1 << 20, MemoryBytes: 64 << 20},
	}
	if o.host != nil {
		o.host(&c.host)
	}
	c.host.Members = map[uint64]string{}
	c.group.ID, c.group.Members = cmp.Or(c.group.ID, 1), nil
	for i := range n {
		id := uint64(i + 1)
		c.host.Members[id] = fmt.Sprintf("host-%d", id)
		c.members = append(c.members, &member[C, R]{id: id, disk: newDisk(o.dir, id)})
	}
	t.Cleanup(c.end)
	for _, m := range c.members {
		if err := c.open(m); err != nil {
			t.Fatalf("millracetest: node %d does not open: %v", m.id, err)
		}
	}
	return c
}

// end closes all nodes, and prints what they have logged if the test has failed.
func (c *Cluster[C, R]) end() {
	for _, m := range c.members {
		if h := m.host; h != nil {
			_ = h.Close(context.Background()) // a disk that was wiped, or has lost its power, is no news
		}
	}
	if c.t.Failed() {
		c.t.Log(c.lines.String())
	}
}

// open opens the node of a machine that is down.
func (c *Cluster[C, R]) open(m *member[C, R]) error {
	config := c.host
	config.ID = m.id
	fsys, dir := m.disk.mount()
	config.Dir = dir
	e := env.Real()
	e.Clock = clock{e.Clock}
	tr := c.net.Host(m.id)
	for id, addr := range config.Members {
		tr.SetPeer(id, addr)
	}
	ctx := context.Background()
	h, err := host.Open(ctx, config,
		host.WithEnv(e),
		host.WithFS(fsys),
		host.WithTransport(tr),
		host.WithLogger(slog.New(c.lines.of(m.id))),
		host.WithEvents(func(host.Event) { c.notify() }))
	if err != nil {
		return err
	}
	node, err := millrace.OpenGroup(ctx, h, c.group, c.newMachine(m.id))
	if err != nil {
		_ = h.Close(ctx)
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	m.host, m.net, m.node, m.last = h, tr, node, node
	return nil
}

// clock is a clock whose boot time is that of package time too, which a bubble of testing/synctest makes.
type clock struct{ env.Clock }

// Boottime implements env.Clock.
func (c clock) Boottime() time.Duration { return c.Now() }

// notify wakes those who wait for a change.
func (c *Cluster[C, R]) notify() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.changed)
	c.changed = make(chan struct{})
}

// member returns a member, and fails the test if there is none with this id.
func (c *Cluster[C, R]) member(id uint64) *member[C, R] {
	c.t.Helper()
	if id == 0 || id > uint64(len(c.members)) {
		c.t.Fatalf("millracetest: there is no node %d; the ids are 1 to %d", id, len(c.members))
	}
	return c.members[id-1]
}

// Node returns a node: if it is down, what is left of it, on which every call fails with ErrStopped. It fails
// the test if there is no node with this id.
func (c *Cluster[C, R]) Node(id uint64) *millrace.Node[C, R] {
	c.t.Helper()
	m := c.member(id)
	c.mu.Lock()
	defer c.mu.Unlock()
	return m.last
}

// Up returns the ids of the nodes that are not down, in order.
func (c *Cluster[C, R]) Up() (ids []uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.members {
		if m.node != nil {
			ids = append(ids, m.id)
		}
	}
	return ids
}

// Leader waits for a leader that reaches a majority of the nodes, and returns its id. A leader that is cut
// off, and has not noticed, does not count. Nor does a leader before the group is founded, because without
// it the others could not go on. It fails the test if ctx ends first.
func (c *Cluster[C, R]) Leader(ctx context.Context) uint64 {
	c.t.Helper()
	for {
		c.mu.Lock()
		id, changed := c.leader(), c.changed
		c.mu.Unlock()
		if id != 0 {
			return id
		}
		select {
		case <-changed:
		case <-ctx.Done():
			c.t.Fatalf("millracetest: no leader reaches a majority: %v\n%s", context.Cause(ctx), c.state())
		}
	}
}

// leader returns the leader in the highest term of those that reach a majority, or 0. The caller holds mu.
func (c *Cluster[C, R]) leader() (id uint64) {
	var term uint64
	for _, m := range c.members {
		if m.node == nil {
			continue
		}
		s := m.node.Status()
		if s.Leader != m.id || s.Term <= term {
			continue
		}
		reached := 0
		for _, other := range c.members {
			if other.node != nil && !c.cut[[2]uint64{m.id, other.id}] {
				reached++
			}
		}
		c.founded = c.founded || m.node.Group().Founding().Founded
		if c.founded && reached > len(c.members)/2 {
			id, term = m.id, s.Term
		}
	}
	return id
}

// state describes the nodes.
func (c *Cluster[C, R]) state() (s string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.members {
		if m.node == nil {
			s += fmt.Sprintf("node %d is down\n", m.id)
			continue
		}
		s += fmt.Sprintf("node %d: %+v\n%v\n", m.id, m.node.Status(), m.node.Explain())
	}
	return s
}
