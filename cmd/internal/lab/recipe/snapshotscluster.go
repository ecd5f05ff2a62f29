package recipe

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/bench"
	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/transport/tcp"
)

// snapshotsCluster is hosts in this process, each with one group of the same machine. Each host can be
// closed and opened again by itself.
type snapshotsCluster struct {
	plan    snapshotsPlan
	dir     string
	make    func(dir string) (snapshotsMachine, error) // an empty machine; dir does not exist yet
	members []*snapshotsMember
	window  uint32 // of the writes
}

// snapshotsMember is one host. Node and machine are those of its present life.
type snapshotsMember struct {
	id        uint64
	lives     int
	node      *millrace.Node[stateCommand, uint64] // nil: it is closed
	machine   snapshotsMachine
	transport *tcp.Transport
	installed chan event.SnapshotInstalled // of this life
	cut       bool                         // it is open, and no other host hears it, nor it them

	mu      sync.Mutex
	stopped error // the group has stopped by itself
}

const (
	theGroup              = 1
	waitTimeout           = 10 * time.Minute // for what must happen, however slow the disk is
	snapshotsPollInterval = 5 * time.Millisecond
)

// openSnapshotsCluster opens new hosts. The first one leads.
func openSnapshotsCluster(ctx context.Context, p snapshotsPlan, dir string, machines func(dir string) (snapshotsMachine, error)) (_ *snapshotsCluster, err error) {
	c := &snapshotsCluster{plan: p, dir: dir, make: machines}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
		}
	}()
	for id := range uint64(p.Hosts) {
		c.members = append(c.members, &snapshotsMember{id: id + 1})
	}
	transports, peers, err := bench.Listen(p.Hosts)
	if err != nil {
		return nil, err
	}
	for i, t := range transports {
		if err := c.open(ctx, i, t, peers); err != nil { // it has closed t
			for _, idle := range transports[i+1:] {
				err = errors.Join(err, idle.Close())
			}
			return nil, err
		}
	}
	if err := c.lead(ctx); err != nil {
		return c, err
	}
	if err := c.pad(ctx, 1); err != nil {
		return c, err
	}
	for i := range c.members { // a member that goes before the group is founded there would stop it
		if err := c.level(ctx, i); err != nil {
			return c, err
		}
	}
	return c, nil
}

// open opens the host of member i, which takes the transport.
func (c *snapshotsCluster) open(ctx context.Context, i int, t *tcp.Transport, peers map[uint64]string) error {
	m := c.members[i]
	m.lives++
	dir := filepath.Join(c.dir, fmt.Sprintf("host-%d", m.id))
	made, err := c.make(filepath.Join(c.dir, fmt.Sprintf("machine-%d", m.id), fmt.Sprintf("life-%d", m.lives)))
	if err != nil {
		return errors.Join(err, t.Close())
	}
	installed := make(chan event.SnapshotInstalled, 16)
	n, err := millrace.Open(ctx, millrace.Config{
		ID: m.id, Dir: dir, Members: peers,
		// Only TakeSnapshot takes snapshots. Marks of the log are as close as they can be, and as little of
		// it is kept as possible: so a member that was away is surely behind it.
		Snapshots:              millrace.SnapshotPolicy{Disabled: true, LogBytes: 1024, KeepBytes: 1},
		SnapshotBytesPerSecond: c.plan.SendBytesPerSecond,
		Logger:                 slog.New(slog.DiscardHandler),
		OnEvent: func(e millrace.Event) {
			switch e := e.(type) {
			case event.SnapshotInstalled:
				select {
				case installed <- e:
				default:
				}
			case event.GroupStopped:
				m.mu.Lock()
				m.stopped = e.Err
				m.mu.Unlock()
			case event.MachineHalted:
				m.mu.Lock()
				m.stopped = e.Err
				m.mu.Unlock()
			}
		},
	}, millrace.InMemory(millrace.StateMachine[stateCommand, uint64](made), millrace.Codec[stateCommand](commandCodec{})),
		millrace.WithTransport(t))
	if err != nil {
		return fmt.Errorf("host %d: %w", m.id, err) // Open has closed t
	}
	m.node, m.machine, m.transport, m.installed = n, made, t, installed
	return nil
}

// reopen opens the host of a member that was closed, at a new address.
func (c *snapshotsCluster) reopen(ctx context.Context, i int) error {
	m := c.members[i]
	t, err := tcp.Listen(tcp.Options{ID: m.id, Listen: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	peers := map[uint64]string{m.id: t.Addr()}
	for _, other := range c.members {
		if other.node != nil {
			peers[other.id] = other.transport.Addr()
			t.SetPeer(other.id, other.transport.Addr())
			other.transport.SetPeer(m.id, t.Addr())
		}
	}
	return c.open(ctx, i, t, peers)
}

// closeMember closes the host of a member. The others forget its address, and with it what waits for it: else
// it would get entries that their logs do not have any more.
func (c *snapshotsCluster) closeMember(i int) error {
	m := c.members[i]
	if m.node == nil {
		return nil
	}
	n := m.node
	m.node = nil
	if err := n.Close(context.Background()); err != nil {
		return fmt.Errorf("host %d: %w", m.id, err)
	}
	for _, other := range c.members {
		if other.node != nil {
			other.transport.RemovePeer(m.id)
		}
	}
	return os.RemoveAll(filepath.Join(c.dir, fmt.Sprintf("machine-%d", m.id), fmt.Sprintf("life-%d", m.lives)))
}

// isAway reports whether the others do not hear a member.
func (m *snapshotsMember) isAway() bool { return m.node == nil || m.cut }

// disconnect cuts a member off. What waited for it is dropped.
func (c *snapshotsCluster) disconnect(i int) {
	m := c.members[i]
	m.cut = true
	for _, other := range c.members {
		if other != m {
			other.transport.RemovePeer(m.id)
			m.transport.RemovePeer(other.id)
		}
	}
}

// connect ends that.
func (c *snapshotsCluster) connect(i int) {
	m := c.members[i]
	m.cut = false
	for len(m.installed) > 0 {
		<-m.installed // an earlier one
	}
	for _, other := range c.members {
		if other != m {
			m.transport.SetPeer(other.id, other.transport.Addr())
			other.transport.SetPeer(m.id, m.transport.Addr())
		}
	}
}

// close closes all hosts that are open, all at once.
func (c *snapshotsCluster) close() error {
	var hosts []*host.Host
	for _, m := range c.members {
		if m.node != nil {
			hosts = append(hosts, m.node.Host())
			m.node = nil
		}
	}
	return bench.CloseHosts(hosts)
}

func (c *snapshotsCluster) leader() *millrace.Node[stateCommand, uint64] { return c.members[0].node }

// lead waits until the first host leads.
func (c *snapshotsCluster) lead(ctx context.Context) error {
	return bench.Lead(ctx, func(i int) *host.Group {
		if n := c.members[i].node; n != nil {
			return n.Group()
		}
		return nil
	})
}

// until polls until done returns nil.
func (c *snapshotsCluster) until(ctx context.Context, what string, done func() error) error {
	began := time.Now()
	for {
		err := done()
		if err == nil {
			return nil
		}
		for _, m := range c.members {
			m.mu.Lock()
			stopped := m.stopped
			m.mu.Unlock()
			if stopped != nil {
				return fmt.Errorf("host %d: its group has stopped: %w", m.id, stopped)
			}
		}
		if time.Since(began) > waitTimeout {
			return fmt.Errorf("waited %v until %s: %w", waitTimeout, what, err)
		}
		if err := lab.Sleep(ctx, snapshotsPollInterval); err != nil {
			return err
		}
	}
}

// level waits until a member has applied what the leader has committed now.
func (c *snapshotsCluster) level(ctx context.Context, i int) error {
	return c.applied(ctx, i, c.leader().Status().Committed)
}

// applied waits until a member has applied an entry.
func (c *snapshotsCluster) applied(ctx context.Context, i int, want uint64) error {
	return c.until(ctx, fmt.Sprintf("host %d has applied entry %d", i+1, want), func() error {
		if have := c.members[i].node.Status().Applied; have < want {
			return fmt.Errorf("it has applied entry %d", have)
		}
		return nil
	})
}

// fallBehind makes the logs of the other members begin behind what one has that is away: it pads the log,
// then takes a snapshot on each, on the leader first. If another host leads by the time that the member
// comes back, it has a snapshot for it, too.
func (c *snapshotsCluster) fallBehind(ctx context.Context, has uint64) (taken millrace.SnapshotInfo, took time.Duration, err error) {
	for pads := 16; pads <= 1<<14; pads *= 2 {
		if err = c.pad(ctx, pads); err != nil {
			return taken, 0, err
		}
		for i, m := range c.members {
			if m.isAway() {
				continue
			}
			began := time.Now()
			info, e := m.node.TakeSnapshot(ctx)
			if e != nil {
				return taken, 0, fmt.Errorf("host %d: %w", m.id, e)
			}
			if i == 0 {
				taken, took = info, time.Since(began)
			}
			if err = c.compacted(ctx, i, has); err != nil {
				break
			}
		}
		if err == nil || ctx.Err() != nil {
			break
		}
	}
	return taken, took, err
}

// compacted waits until the log of a member begins behind an entry: compaction follows a snapshot soon, or
// the log was not long enough.
func (c *snapshotsCluster) compacted(ctx context.Context, i int, has uint64) (err error) {
	for range 200 {
		first := c.members[i].node.Status().FirstIndex
		if first > has+1 {
			return nil
		}
		err = fmt.Errorf("the log of host %d begins with entry %d, and the member that is away has entry %d", i+1, first, has)
		if err := lab.Sleep(ctx, snapshotsPollInterval); err != nil {
			return err
		}
	}
	return err
}

// pad makes the log longer by n commands of 64 KiB.
func (c *snapshotsCluster) pad(ctx context.Context, n int) error {
	bytes := make([]byte, 64<<10)
	all := make([]stateCommand, n)
	for i := range all {
		all[i] = stateCommand{kind: padCommand, value: bytes}
	}
	return c.propose(ctx, all)
}

// propose proposes commands, several at a time.
func (c *snapshotsCluster) propose(ctx context.Context, all []stateCommand) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan stateCommand)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for of := range next {
				if _, err := c.leader().Propose(ctx, of); err != nil {
					cancel(err)
				}
			}
		})
	}
	for _, of := range all {
		next <- of
	}
	close(next)
	wg.Wait()
	return context.Cause(ctx)
}

// compare compares the states of all hosts, when all of them have applied the same.
func (c *snapshotsCluster) compare(ctx context.Context) error {
	var first uint32
	for i, m := range c.members {
		if err := c.level(ctx, i); err != nil {
			return err
		}
		var sum uint32
		var err error
		if viewed := m.node.View(ctx, millrace.Local, func(millrace.ReadAt) error { sum, err = m.machine.sum(); return nil }); viewed != nil || err != nil {
			return errors.Join(viewed, err)
		}
		if i == 0 {
			first = sum
		}
		if sum != first {
			return fmt.Errorf("%w: the state of host 1 sums up to %08x, and that of host %d to %08x", lab.ErrMismatch, first, m.id, sum)
		}
	}
	return nil
}

// snapshotsWriter is a cluster of memory machines as a load.Target.
type snapshotsWriter struct{ *snapshotsCluster }

// Propose implements load.Target.
func (t snapshotsWriter) Propose(ctx context.Context, value []byte) error {
	_, err := t.leader().Propose(ctx, stateCommand{kind: writeCommand, window: t.window, value: value})
	return err
}

// Copies implements load.Copier: the codec copies.
func (snapshotsWriter) Copies() bool { return true }

// Counters implements load.Target. It counts those hosts that are open all the time.
func (t snapshotsWriter) Counters() (sum load.Counters) {
	for _, m := range t.members[:len(t.members)-1] {
		h := m.node.Host()
		bench.Count(&sum, h, h.Group(1))
	}
	return sum
}

// Verify implements load.Target.
func (t snapshotsWriter) Verify(ctx context.Context, ledger *load.Ledger) error {
	var checks []*load.Machine
	for i, m := range t.members {
		if m.node == nil {
			continue
		}
		if err := t.level(ctx, i); err != nil {
			return err
		}
		checks = append(checks, m.machine.(*memoryMachine).checked(t.window))
	}
	return load.VerifyMachines(ctx, checks, ledger)
}

// Close implements load.Target.
func (t snapshotsWriter) Close() error { return t.close() }
