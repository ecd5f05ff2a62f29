package sim

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"time"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/vfs/crashfs"
)

// A command that no machine can apply (DivergenceKind Poisoned): it comes in the middle of others, and each
// machine that gets it fails or panics. Its group goes on without the machines. An operator looks at the
// hosts, starts those again that say so, and tells the leader to skip the command when it is known exactly.
// Hosts crash and leaders change meanwhile. At the end all machines work, none has its effect, all have the
// effect of all others, and every caller of a host that lives was told its outcome.
//
// A machine that was restored may fail for a moment, too: while it is made again, or soon after that.

// poisonValue is the command.
const poisonValue = 0xdead_dead_dead_dead

var (
	errPoison   = errors.New("no such shelf")
	errFleeting = errors.New("no such shelf, for a moment")
)

// failsFleetingly reports whether a machine cannot apply a command, and could a moment later.
func (m *divergingMachine) failsFleetingly() bool {
	if m.fragile == 0 || m.run.silent {
		return false
	}
	m.fragile--
	return m.run.rng.IntN(16) == 0
}

// poison hands the command in, between others, and begins the rounds of the operator.
func (s *diverging) poison() {
	s.w.plan(between(s.rng, time.Millisecond, 300*time.Millisecond), "a poison command", nil, func() {
		l := pick(s.rng, s.w.hosts...).alive
		if l == nil || l.process == nil || l.replicas[0].group.Err() != nil || l.replicas[0].group.Halted() != nil {
			s.poison()
			return
		}
		for i := range 5 {
			value := s.rng.Uint64()
			if i == 2 {
				value = poisonValue
			}
			s.submit(l.replicas[0], value)
		}
		s.operate()
	})
}

// operate is a round of the operator.
func (s *diverging) operate() {
	s.w.plan(between(s.rng, 100*time.Millisecond, 300*time.Millisecond), "an operator looks", nil, func() {
		s.w.eachReplica(func(r *replica) {
			var halted *outcome.HaltedError
			if !errors.As(r.group.Halted(), &halted) {
				return
			}
			s.report.Halts++
			at, known := halted.Command()
			switch h := r.life.host; {
			case r.group.Err() != nil:
				s.w.violate("%s has stopped: %v", r.name, r.group.Err())
			case !known, halted.Skipped > 0, errors.Is(halted, errFleeting):
				h.crash(crashfs.LoseNothing)
				h.start()
			case s.kind == PoisonedAlone: // the others work
			case r.leads():
				s.report.Skips++
				r.group.StartSkip(at)
			}
		})
		s.operate()
	})
}

// submit hands a command to a replica.
func (s *diverging) submit(r *replica, value uint64) {
	c := &divergingCall{run: s, replica: r}
	c.Data = binary.LittleEndian.AppendUint64(make([]byte, host.CallRoom), value)
	c.Owner = c
	switch err := r.group.Call(&c.Call); {
	case err == nil:
		s.calls = append(s.calls, c)
	case !errors.Is(err, outcome.ErrOverloaded) && !errors.Is(err, outcome.ErrMachineHalted):
		s.w.violate("a command is not taken: %v", err)
	}
}

// untold returns a call of a host that lives whose caller was not told its outcome, or nil.
func (s *diverging) untold() *divergingCall {
	for _, c := range s.calls {
		if !c.isTold && !c.replica.life.dead {
			return c
		}
	}
	return nil
}

// checkPoison: all machines work, and have the same state.
func (s *diverging) checkPoison() {
	var sums []uint64
	working := func() bool {
		sums = sums[:0]
		same := true
		s.w.eachReplica(func(r *replica) {
			m := s.machines[r]
			if s.kind == PoisonedAlone && r.life.host == s.wrong {
				st := r.group.Status()
				same = same && r.group.Halted() != nil && !r.leads() && st.Durable > st.Applied
				return
			}
			same = same && r.group.Halted() == nil && m.count > 0 && (len(sums) == 0 || m.all == sums[0])
			sums = append(sums, m.all)
		})
		if s.kind == PoisonedAlone {
			return same && len(sums) == len(s.w.hosts)-1
		}
		same = same && s.untold() == nil
		return same && len(sums) == len(s.w.hosts)
	}
	s.silent = true
	if !s.w.runUntil(s.w.now+2*healTime, working) {
		s.w.eachReplica(func(r *replica) { s.w.record(r.name + ": " + r.group.Explain().String()) })
		if c := s.untold(); c != nil {
			s.w.violate("a caller on %s is not told the outcome of a command", c.replica.name)
		}
		s.w.violate("a poison command is not passed by, or states differ: %x", sums)
	}
	if s.report.Skips == 0 && s.kind != PoisonedAlone {
		s.w.violate("no command was skipped")
	}
}

// poisonedMachine is a divergingMachine whose state fits into a snapshot. A machine that is halted is made
// again from one, in the same life.
type poisonedMachine struct{ *divergingMachine }

// Snapshot implements host.Snapshotter: the sum, the count, and the map in the order of its keys.
func (m poisonedMachine) Snapshot() (statemachine.Snapshot, error) {
	state := binary.LittleEndian.AppendUint64(nil, m.all)
	state = binary.LittleEndian.AppendUint64(state, uint64(m.count))
	for k := range byte(8) {
		state = binary.LittleEndian.AppendUint64(state, m.keys[k])
	}
	return poisonedState(state), nil
}

// Restore implements host.Snapshotter.
func (m poisonedMachine) Restore(_ context.Context, r io.Reader) error {
	state, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	if m.run.kind != OtherForm {
		m.fragile = 30
	}
	m.all, m.count = binary.LittleEndian.Uint64(state), int(binary.LittleEndian.Uint64(state[8:]))
	for k := range byte(8) {
		if v := binary.LittleEndian.Uint64(state[16+8*int(k):]); v > 0 {
			m.keys[k] = v
		} else {
			delete(m.keys, k)
		}
	}
	return nil
}

// poisonedState is a state that was copied.
type poisonedState []byte

// WriteTo implements host.Snapshot.
func (s poisonedState) WriteTo(_ context.Context, w io.Writer) error {
	_, err := w.Write(s)
	return err
}

// Close implements host.Snapshot.
func (poisonedState) Close() error { return nil }
