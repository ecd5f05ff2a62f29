package sim_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/sim"
)

// onDisk is a sum whose calls of Apply are transactions on a disk. A power cut loses some of those behind the
// last that was synced.
type onDisk struct {
	sum
	disk  *sumDisk
	index uint64
}

type sumDisk struct {
	rng    *rand.Rand
	states []sumState // the first is synced, the others came behind it
	tears  bool       // the bug: a power cut keeps the index of a later transaction than the sum
}

type sumState struct {
	sum   int64
	index uint64
}

func (m *onDisk) Apply(batch []millrace.Command[int64], results []int64) error {
	if err := m.sum.Apply(batch, results); err != nil {
		return err
	}
	m.index = batch[len(batch)-1].Index
	m.disk.states = append(m.disk.states, sumState{m.N, m.index})
	if m.disk.rng.IntN(4) == 0 {
		return m.Sync()
	}
	return nil
}

func (m *onDisk) Restore(ctx context.Context, r io.Reader) error {
	var index uint64
	if _, err := fmt.Fscanln(r, &index); err != nil {
		return err
	}
	if err := m.sum.Restore(ctx, r); err != nil {
		return err
	}
	m.index, m.disk.states = index, []sumState{{m.N, index}}
	return nil
}

func (m *onDisk) Snapshot() (millrace.Snapshot, error) {
	s, err := m.sum.Snapshot()
	return &indexed{s, m.index}, err
}

// indexed is a snapshot with its index before it.
type indexed struct {
	millrace.Snapshot
	index uint64
}

func (s *indexed) WriteTo(ctx context.Context, w io.Writer) error {
	if _, err := fmt.Fprintln(w, s.index); err != nil {
		return err
	}
	return s.Snapshot.WriteTo(ctx, w)
}

func (m *onDisk) Applied() (uint64, error) { return m.index, nil }

func (m *onDisk) Sync() error {
	m.disk.states = m.disk.states[len(m.disk.states)-1:]
	return nil
}

// start returns the machine that a power cut leaves.
func (d *sumDisk) start() *onDisk {
	n := d.rng.IntN(len(d.states))
	s := d.states[n]
	if d.tears {
		s.index = d.states[d.rng.IntN(len(d.states)-n)+n].index
	}
	d.states = []sumState{s}
	m := &onDisk{disk: d, index: s.index}
	m.N = s.sum
	return m
}

// diskSums is a workload of machines on disks.
func diskSums(tears bool, started func(host, disk uint64, index uint64)) sim.Workload[int64, int64] {
	disks := map[string]*sumDisk{}
	load := sums(nil)
	load.Machine = nil
	load.Durable = func(host, disk uint64) millrace.Machine[int64, int64] {
		at := fmt.Sprint(host, disk)
		if host == 0 { // a new run
			disks = map[string]*sumDisk{}
		}
		if disks[at] == nil {
			disks[at] = &sumDisk{rng: rand.New(rand.NewPCG(host, disk)), states: []sumState{{}}, tears: tears}
		}
		m := disks[at].start()
		started(host, disk, m.index)
		return millrace.Durable(m, millrace.Binary[int64]()).Digest(func() uint64 { return uint64(m.N) })
	}
	return load
}

// TestDurableMachine: a machine on a disk continues with what its disk has. A disk whose index is ahead of
// its state is found.
func TestDurableMachine(t *testing.T) {
	starts, later, disks := 0, 0, map[uint64]bool{}
	for _, err := range eachFailure(t, seedsFor(*machines), diskSums(false, func(_, disk, index uint64) {
		starts++
		if disks[disk] = true; index > 0 {
			later++
		}
	}), nil) {
		t.Error(err)
	}
	t.Logf("%d starts, %d of them with commands on the disk, which has numbers up to %d", starts, later, len(disks)-1)
	if later < starts/8 {
		t.Errorf("of %d starts %d had commands on the disk", starts, later)
	}
	failed := eachFailure(t, *machines, diskSums(true, func(_, _, _ uint64) {}), nil)
	if len(failed) == 0 || !strings.Contains(failed[0].Error(), "the machine is not deterministic") {
		t.Errorf("machines whose index is ahead of their state: %v", failed)
	}
}

func TestDurableMachineThatIsNone(t *testing.T) {
	load := sums(nil)
	load.Machine = nil
	load.Durable = func(_, _ uint64) millrace.Machine[int64, int64] {
		return millrace.InMemory(&sum{}, millrace.Binary[int64]())
	}
	if _, _, err := sim.RunMachine(sim.Options{Seed: 1}, load); err == nil || !strings.Contains(err.Error(), "which is no DurableStateMachine") {
		t.Error(err)
	}
	load.Machine = sums(nil).Machine
	if _, _, err := sim.RunMachine(sim.Options{Seed: 1}, load); err == nil || !strings.Contains(err.Error(), "either Machine or Durable") {
		t.Error(err)
	}
}
