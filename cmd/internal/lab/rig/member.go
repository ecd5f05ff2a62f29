package rig

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/vfs/crashfs"
)

// Member is one host of a cluster, with its state machines. It has several lives: Open begins one, Kill and
// Stop end it.
type Member struct {
	ID      uint64
	cluster *Cluster
	groups  []atomic.Pointer[host.Group] // nil while it is closed
	slow    atomic.Int64                 // what every fsync takes longer, besides Setup.FsyncDelay

	bandwidth *vfs.Bandwidth // of its disk; nil: the real one's
	memory    *crashfs.FS    // its disk with Setup.PowerCuts; nil: the disk of the machine

	mu       sync.Mutex
	host     *host.Host // nil while it is closed
	lost     bool       // its directory, with which it was a member
	machines []*machine // of this life, or of the last
}

func newMember(c *Cluster, i int) *Member {
	m := &Member{ID: uint64(i + 1), cluster: c, groups: make([]atomic.Pointer[host.Group], c.setup.Groups)}
	if i == 0 {
		m.slow.Store(int64(c.setup.LeaderFsyncDelay))
	}
	if c.setup.DiskBandwidth > 0 {
		m.bandwidth = vfs.NewBandwidth(float64(c.setup.DiskBandwidth))
	}
	if c.setup.PowerCuts {
		m.memory = crashfs.New()
		m.memory.SetHook(func(op crashfs.Op) error {
			if op.Kind == crashfs.OpSync {
				vfs.Pause(time.Duration(m.slow.Load()))
			}
			return nil
		})
	}
	return m
}

// Group returns the member's part in a group, from 0, or nil while the host is closed.
func (m *Member) Group(g int) *host.Group { return m.groups[g].Load() }

// part returns the member's part in a group, or nil if it has none: the host is closed, or was removed.
func (m *Member) part(g int) *host.Group {
	if group := m.Group(g); group != nil && !errors.Is(group.Err(), outcome.ErrMemberRemoved) {
		return group
	}
	return nil
}

// Host returns the host, or nil while it is closed.
func (m *Member) Host() *host.Host {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.host
}

// detach returns the host for the caller that closes it. From then on the member counts as closed.
func (m *Member) detach() *host.Host {
	m.mu.Lock()
	defer m.mu.Unlock()
	for g := range m.groups {
		m.groups[g].Store(nil)
	}
	h := m.host
	m.host = nil
	return h
}

// SlowDisk makes every fsync take d longer. It needs Setup.Faults. With Setup.PowerCuts the time comes before
// the fsync, so that what was written is not safe meanwhile.
func (m *Member) SlowDisk(d time.Duration) { m.slow.Store(int64(d)) }

// files are the host's.
func (m *Member) files() vfs.FS {
	s := m.cluster.setup
	switch {
	case m.memory != nil:
		return m.memory
	case !s.Faults && s.LeaderFsyncDelay == 0:
		return vfs.WithSyncDelay(m.real(), s.FsyncDelay)
	}
	return vfs.WithSyncDelays(m.real(), m.delay)
}

// Open opens the host on its directory, with empty state machines.
func (m *Member) Open(ctx context.Context) error {
	c, i := m.cluster, int(m.ID-1)
	t, peers, err := c.network.transport(i)
	if err != nil {
		return fmt.Errorf("host %d: %w", m.ID, err)
	}
	s := c.setup
	config := host.Config{
		ID: m.ID, Cluster: cmp.Or(s.Cluster, clusterID), Dir: c.dir(i), Members: peers, Durability: s.Durability,
		HeartbeatInterval: s.Heartbeat, ElectionTimeout: s.Election, SnapshotBytesPerSecond: s.SnapshotsPerSec,
		SingleEntries: s.SingleEntries,
	}
	var founders []uint64
	for id := range uint64(s.Founders) {
		founders = append(founders, id+1)
	}
	h, err := host.Open(ctx, config, host.WithTransport(t), host.WithFS(m.files()), host.WithPipeline(s.Pipeline),
		host.WithLog(m.openLog()), host.WithLogger(cmp.Or(s.Logger, slog.New(slog.DiscardHandler))))
	if err != nil {
		return fmt.Errorf("host %d: %w", m.ID, err) // Open has closed t
	}
	m.mu.Lock()
	m.host, m.machines = h, nil
	for g := range s.Groups {
		machine := newMachine(s, g)
		engine, failed := m.openEngine(g)
		machine.engine, err = engine, errors.Join(err, failed)
		m.machines = append(m.machines, machine)
	}
	machines := m.machines
	m.mu.Unlock()
	if err != nil {
		return fmt.Errorf("host %d: engine: %w", m.ID, err)
	}
	for g := range s.Groups {
		opened, err := h.OpenGroup(ctx, host.GroupConfig{
			ID: uint64(g + 1), Members: founders, Joins: i >= s.Founders || m.lost, Leases: s.Leases, Snapshots: s.Snapshots,
		}, machines[g].forHost(s))
		if err != nil {
			return fmt.Errorf("host %d: %w", m.ID, err)
		}
		m.groups[g].Store(opened)
	}
	return nil
}

// Kill ends the host as kill -9 does, as far as other hosts and its own files can tell. Its connections are
// reset and refused, it hands nothing over, and what it has written stays in the page cache. It needs
// Setup.Faults.
func (m *Member) Kill() error {
	m.cluster.network.refuse(int(m.ID-1), true)
	h := m.detach()
	if h == nil {
		return nil
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_ = h.Close(ended) // it does not wait for a hand-over
	return m.closed(context.Background(), h)
}

// CutPower ends the host as a power cut does: of what was not synced its disk keeps some sectors, as chance
// has it. It returns how many bytes were not synced. It needs Setup.PowerCuts and Setup.Faults.
func (m *Member) CutPower(seed uint64) (unsynced int64) {
	m.cluster.network.refuse(int(m.ID-1), true)
	unsynced = m.memory.UnsyncedBytes()
	m.memory.Crash(crashfs.LoseSome, rand.New(rand.NewPCG(seed, m.ID)).Uint64)
	if h := m.detach(); h != nil {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_ = h.Close(ended)                // it does not wait for a hand-over
		_ = h.Close(context.Background()) // its files are gone, so it cannot end well
	}
	return unsynced
}

// stopTimeout bounds a clean end. A host hands over only if it knows that its time is bounded.
const stopTimeout = 30 * time.Second

// Stop closes the host cleanly: it hands its leaderships over first.
func (m *Member) Stop() error {
	h := m.detach()
	if h == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	err := m.closed(ctx, h)
	if m.cluster.setup.Faults {
		m.cluster.network.refuse(int(m.ID-1), true)
	}
	return err
}

func (m *Member) closed(ctx context.Context, h *host.Host) error {
	if err := h.Close(ctx); err != nil {
		return fmt.Errorf("host %d: %w", m.ID, err)
	}
	return m.closeEngines()
}

// Again opens a host that was killed or stopped.
func (m *Member) Again(ctx context.Context) error {
	if m.Host() != nil {
		return errors.New("the host is open")
	}
	if m.cluster.setup.Faults {
		m.cluster.network.refuse(int(m.ID-1), false)
	}
	return m.Open(ctx)
}

// Lose removes the directory of a host that is closed. When the host opens again it waits until it is added,
// or its member replaced (host.ReplaceMember).
func (m *Member) Lose() error {
	if m.Host() != nil {
		return errors.New("the host is open")
	}
	m.lost = true
	return os.RemoveAll(m.cluster.dir(int(m.ID - 1)))
}

// LogBytes returns the bytes of the files of a host that is closed.
func (m *Member) LogBytes() (total int64, err error) {
	if m.memory != nil {
		return m.memory.UsedBytes(), nil
	}
	err = walk(m.cluster.dir(int(m.ID-1)), func(info os.FileInfo) { total += info.Size() })
	return total, err
}
