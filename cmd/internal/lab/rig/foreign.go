package rig

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/transport"
	"github.com/millrace/millrace/vfs"
)

// Foreign is components that are made of other projects' code, by name. A program of another module has them
// (tests/compare/others/foreign) and passes them here; other programs have none.
type Foreign struct {
	Logs       map[string]OpenLog
	Engines    map[string]OpenEngine
	Transports map[string]Listen
}

// OpenLog opens the log of a host. A log that does not write through the files of its configuration takes the
// time of a slow disk by itself.
type OpenLog func(host.LogConfig, Disk) (host.Log, error)

// Disk is what a log that has files of its own calls. Wrote and Synced take what a slow disk takes,
// and are nil for the real one.
type Disk struct {
	Wrote  func(bytes int) // after a write
	Synced func()          // after a sync; it returns when the slow disk would be done
	Full   func(error)     // an append was refused for good: there is no space, and will be none
}

// OpenEngine opens an engine in a new directory.
type OpenEngine func(dir string) (Engine, error)

// Engine is where the state machine of a group keeps the values that it has applied. It is rebuilt from the
// log in each life of its host, so it syncs nothing.
type Engine interface {
	// Put stores values that load.Source made, under their ids. It keeps no part of them.
	Put(entries []statemachine.Entry) error
	// Count returns how many values there are.
	Count() (uint64, error)
	Close() error
}

// Listen opens the transport of a host on a free port of 127.0.0.1.
type Listen func(id uint64) (Peered, error)

// Peered is a transport with an address book.
type Peered interface {
	host.Transport
	Addr() string
	SetPeer(id uint64, addr string)
	Stats() transport.Stats
}

// check refuses a setup whose components are not there.
func (s Setup) check() error {
	if _, ok := s.Foreign.Logs[s.Log]; s.Log != "" && !ok {
		return fmt.Errorf("this program has no log %s", s.Log)
	}
	if _, ok := s.Foreign.Engines[s.Engine]; s.Engine != "" && !ok {
		return fmt.Errorf("this program has no engine %s", s.Engine)
	}
	if s.Log != "" && s.PowerCuts {
		return fmt.Errorf("the log %s writes to the disk of the machine, which loses no power", s.Log)
	}
	if s.Engine != "" && s.Snapshots != (host.SnapshotPolicy{}) {
		return fmt.Errorf("the engine %s is rebuilt from the log, and a snapshot would replace a part of that", s.Engine)
	}
	return nil
}

// openLog returns the log of a host: nil for that of package wal.
func (m *Member) openLog() func(host.LogConfig) (host.Log, error) {
	open := m.cluster.setup.Foreign.Logs[m.cluster.setup.Log]
	if open == nil {
		return nil
	}
	return func(c host.LogConfig) (host.Log, error) { return open(c, m.disk()) }
}

// real is the disk without what a sync takes longer.
func (m *Member) real() vfs.FS {
	if m.bandwidth != nil {
		return vfs.WithBandwidth(vfs.OS(), m.bandwidth)
	}
	return vfs.OS()
}

// delay is what a sync takes longer.
func (m *Member) delay() time.Duration {
	return m.cluster.setup.FsyncDelay + time.Duration(m.slow.Load())
}

// disk is the same disk for a log that has files of its own.
func (m *Member) disk() Disk {
	d := Disk{Full: func(err error) { m.cluster.full.CompareAndSwap(nil, &err) }}
	if s := m.cluster.setup; s.FsyncDelay > 0 || s.LeaderFsyncDelay > 0 || s.Faults {
		d.Synced = func() { vfs.Pause(m.delay()) }
	}
	if m.bandwidth != nil {
		later, blocks := d.Synced, writtenBlocks{disk: m.bandwidth}
		d.Wrote = blocks.write
		d.Synced = func() {
			m.bandwidth.Wait()
			blocks.synced()
			if later != nil {
				later()
			}
		}
	}
	return d
}

// writtenBlocks occupies a disk with what a log writes to files of its own, one append after the other. As
// with our log it is whole blocks, and one that was not full at a sync is written again after it.
type writtenBlocks struct {
	disk *vfs.Bandwidth

	mu       sync.Mutex
	end      int64 // of what was appended
	occupied int64 // through here, in blocks; after a sync: what need not be written again
}

func (b *writtenBlocks) write(bytes int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.end += int64(bytes)
	if through := (b.end + vfs.BlockBytes - 1) &^ (vfs.BlockBytes - 1); through > b.occupied {
		b.disk.Write(int(through - b.occupied))
		b.occupied = through
	}
}

func (b *writtenBlocks) synced() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.occupied = b.end &^ (vfs.BlockBytes - 1)
}

// openEngine opens the engine of one group, empty, if the setup has one.
func (m *Member) openEngine(group int) (Engine, error) {
	open := m.cluster.setup.Foreign.Engines[m.cluster.setup.Engine]
	if open == nil {
		return nil, nil
	}
	dir := filepath.Join(m.cluster.setup.Dir, fmt.Sprintf("engine-%d-%d", m.ID, group+1))
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	return open(dir)
}

// closeEngines closes those of the last life. The host is closed.
func (m *Member) closeEngines() (err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, machine := range m.machines {
		if machine.engine != nil {
			err = errors.Join(err, machine.engine.Close())
			machine.engine = nil
		}
	}
	return err
}

// verifyEngine compares what an engine holds with what its machine has applied.
func (m *machine) verifyEngine() error {
	if m.engine == nil {
		return nil
	}
	have, err := m.engine.Count()
	if want := m.State().Entries; err == nil && have != want {
		err = fmt.Errorf("%w: the engine holds %d values, and its machine has applied %d", lab.ErrMismatch, have, want)
	}
	return err
}
