package sim

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal"
)

// Machines that keep their state on disk (CommandOptions.Applied), in some runs with several commands in
// an entry. Such a machine writes what a call of Apply does in one transaction. It syncs some of its
// transactions, and a power cut loses some of those after the last sync. A power cut also comes in the
// middle of a call: afterwards the machine has either all of that call, or nothing.
//
// The state then says by an index what it has. So a host that gives the commands of one entry in two calls
// loses those of the second when the power fails between the two. checkStates finds that, and so do members
// that compare their results.
type diskMachines struct {
	rng *rand.Rand
	// states are what is on each disk, by group. A disk that is wiped is another one.
	states map[*crashfs.FS]map[uint64]*diskState
	cuts   int // to come, in the middle of calls
}

// diskState is the state of a machine on a disk: the commands that it has applied.
type diskState struct {
	commands []diskCommand
	synced   int   // how many of them survive a power cut,
	ends     []int // and how many there were after each transaction since
}

type diskCommand struct {
	index uint64
	time  time.Duration
	text  string
	// members is not 0 if it is no command: the machine knows the members of that entry.
	members uint64
}

// diskMachine is a replica's machine on disk.
type diskMachine struct {
	callMachine
	disks *diskMachines
	state *diskState
}

// drawDiskMachines draws whether the machines of a run with calls keep their state on disk.
func (p *packing) drawDiskMachines() {
	w := p.w
	if p.rng.IntN(2) > 0 || w.calls == nil || w.objects != nil || w.mode.Unsafe() || w.mode.Kind == wal.KindMemory {
		return
	}
	p.disks = &diskMachines{rng: p.rng, states: map[*crashfs.FS]map[uint64]*diskState{}, cuts: 2 + p.rng.IntN(10)}
	w.groupConfig.Volatile = false
}

// machine returns the machine of a replica, with what the disk of its host has.
func (d *diskMachines) machine(r *replica) statemachine.Machine {
	m := diskMachine{callMachine{r}, d, d.on(r)}
	for _, c := range m.state.commands {
		if c.members > 0 {
			r.members = c.members
		} else {
			r.addToState(c.text)
		}
		r.watch.applied, r.watch.time = wholeEntry(c.index), c.time
	}
	options := r.life.w.calls.CommandOptions
	options.Versions = r.can
	options.Applied = func() (uint64, error) { return m.state.applied(), nil }
	return host.Commands(m, options)
}

// on returns what the disk of a replica's host has.
func (d *diskMachines) on(r *replica) *diskState {
	disk := r.life.host.disk
	if d.states[disk] == nil {
		d.states[disk] = map[uint64]*diskState{}
	}
	s := d.states[disk][r.id]
	if s == nil {
		s = new(diskState)
		d.states[disk][r.id] = s
	}
	return s
}

func (s *diskState) applied() uint64 {
	if n := len(s.commands); n > 0 {
		return s.commands[n-1].index
	}
	return 0
}

// Apply implements host.CommandMachine.
func (m diskMachine) Apply(batch []statemachine.Command) error {
	n := len(batch)
	loss, cut := m.drawCut()
	written := cut && m.disks.rng.IntN(2) == 0
	if cut && !written {
		n = m.disks.rng.IntN(len(batch) + 1)
	}
	if err := m.callMachine.Apply(batch[:n]); err != nil {
		return err
	}
	if !cut || written {
		for i := range batch {
			c := &batch[i]
			m.state.commands = append(m.state.commands, diskCommand{index: c.Index, time: c.Time, text: string(c.Data)})
		}
		if m.state.ends = append(m.state.ends, len(m.state.commands)); m.disks.rng.IntN(2) == 0 || written {
			m.state.sync()
		}
	}
	if cut {
		m.cut(loss)
		return crashfs.ErrCrashed
	}
	return nil
}

// calmCommands are acknowledged before the first of them: a scenario may begin calmly.
const calmCommands = 50

// drawCut draws whether the process ends in the middle of a call, and what its disk loses.
func (m diskMachine) drawCut() (loss crashfs.Loss, cut bool) {
	r, n := m.replica, &m.replica.life.w.nemesis
	if m.disks.cuts == 0 || n.isQuiet() || n.calm || r.life.process == nil || m.disks.rng.IntN(8) > 0 || r.life.w.acked() < calmCommands {
		return loss, false
	}
	return pick(m.disks.rng, crashfs.LoseAll, crashfs.LoseSome, crashfs.LoseNothing), true
}

// cut ends the process.
func (m diskMachine) cut(loss crashfs.Loss) {
	h := m.replica.life.host
	m.disks.cuts--
	h.w.count(CutsInApply)
	h.crash(loss)
	h.w.plan(between(m.disks.rng, 0, 300*time.Millisecond), fmt.Sprintf("host %d starts", h.id), nil, h.start)
}

func (s *diskState) sync() { s.synced, s.ends = len(s.commands), s.ends[:0] }

// crash loses what was not synced, if the power fails.
func (p *packing) crash(disk *crashfs.FS, loss crashfs.Loss) {
	if p == nil || p.disks == nil || loss == crashfs.LoseNothing {
		return
	}
	d := p.disks
	for id := range uint64(len(d.states[disk])) {
		s := d.states[disk][id+1]
		if s == nil {
			continue
		}
		left := append([]int{s.synced}, s.ends...)
		n := left[0]
		if loss == crashfs.LoseSome {
			n = pick(d.rng, left...)
		}
		s.commands = s.commands[:n]
		s.sync()
	}
}

// restoredOnDisk makes what is on the disk the state of a replica, which is that of a snapshot.
func (r *replica) restoredOnDisk(index uint64) {
	p := r.life.w.packing
	if p == nil || p.disks == nil || r.life.w.user != nil {
		return
	}
	s := p.disks.on(r)
	*s = diskState{}
	for _, command := range slices.Sorted(maps.Keys(r.state)) {
		s.commands = append(s.commands, diskCommand{index: index, time: r.watch.time, text: command})
	}
	if r.members > 0 {
		s.commands = append(s.commands, diskCommand{index: index, time: r.watch.time, members: r.members})
	}
	s.sync()
}
