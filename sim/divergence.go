package sim

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/session"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/vfs/crashfs"
)

// DivergenceKind is what is wrong with the state machines of a run.
type DivergenceKind int

// The kinds.
const (
	// SoundMachines do what state machines must. Nothing may be reported, whatever crashes.
	SoundMachines DivergenceKind = iota
	// MapOrder: each machine folds a map into its state in an order that chance draws.
	MapOrder
	// ReadsClock: each machine has the time of its host in a result.
	ReadsClock
	// OneIsWrong: the machine of one host forgets a command.
	OneIsWrong
	// OneIsStopped: the same, and the members have host.CommandOptions.StopDiverged.
	OneIsStopped
	// OtherOptions: one host has other bounds of sessions, and stops.
	OtherOptions
	// Upgrade: the hosts are restarted one by one, with a new version whose results differ, and half of the time
	// their form. Nothing may be reported.
	Upgrade
	// UpgradeWithOldName is the same, but the new version has the name of the old one.
	UpgradeWithOldName
	// OtherForm: the hosts are restarted one by one, from snapshots too, with a program of another form of
	// sums. Nothing may be reported, and Explain warns while they differ.
	OtherForm
	// Poisoned: a command halts every machine, and an operator makes the group skip it (poison.go).
	Poisoned
	// PoisonedWithSnapshots is the same, of machines that are made again from snapshots in the same life.
	PoisonedWithSnapshots
	// PoisonedAlone: the machine of one host halts, and those of the others go on. It must not lead for long.
	PoisonedAlone
)

// DivergenceReport says how a run of Divergence ended.
type DivergenceReport struct {
	Reported []event.Diverged // as leaders reported them
	After    time.Duration    // from the first possible difference until the first report
	Stopped  bool             // the wrong member has stopped
	Calls    int              // that got a result
	Warned   int              // verdicts that say that members are not compared
	Resumed  int              // machines that worked again in the same life
	Halts    int              // halted machines that the operator has seen,
	Skips    int              // and how often the operator has asked for a skip
}

// Divergence is one scenario, run with many seeds: three hosts, and commands from all of them, for some
// seconds. Hosts crash and leaders change meanwhile. What is reported must be true and name the member that
// is wrong, and a machine that is wrong must be reported. The error, if any, is a *Violation.
func Divergence(o Options, kind DivergenceKind) (report DivergenceReport, err error) {
	err = scenario(o, func(w *world, _ *rand.Rand) {
		s := &diverging{w: w, rng: splitSeed(o.Seed, 13), kind: kind}
		w.diverging = s
		defer func() { report = s.report }()
		s.run()
	})
	return report, err
}

// diverging is a run of the scenario.
type diverging struct {
	w       *world
	rng     *rand.Rand
	kind    DivergenceKind
	wrong   *machine      // the one host whose machine is wrong
	began   time.Duration // when
	from    uint64        // the wrong machine is wrong starting at this entry
	version map[*machine]int
	keeps   bool // results are kept; else they are only summed up, as by default

	machines map[*replica]*divergingMachine
	calls    []*divergingCall // that were taken
	silent   bool             // no more commands come
	report   DivergenceReport
}

func (s *diverging) run() {
	w := s.w
	w.net.drop = pick(s.rng, 0, 0, 0.02)
	w.net.slowest = pick(s.rng, 300*time.Microsecond, 3*time.Millisecond)
	s.version, s.machines = map[*machine]int{}, map[*replica]*divergingMachine{}
	if s.kind == OneIsWrong || s.kind == OneIsStopped || s.kind == OtherOptions || s.kind == PoisonedAlone {
		s.wrong = pick(s.rng, w.hosts...)
		s.from = 100 + s.rng.Uint64N(100)
	}
	s.keeps = splitSeed(w.options.Seed, 31).IntN(2) == 0 && s.kind != OtherForm
	if s.kind == PoisonedWithSnapshots || s.kind == OtherForm {
		w.groupConfig.Snapshots = host.SnapshotPolicy{LogBytes: pick(s.rng, int64(1<<10), 4<<10), KeepBytes: pick(s.rng, int64(1), 8<<10)}
	}
	w.startHosts()
	s.schedule()
	if !w.runUntil(w.now+healTime, func() bool { return s.report.Calls > 20 }) {
		w.violate("%d commands in %v without a fault", s.report.Calls, healTime)
	}
	if s.kind >= Poisoned {
		s.poison()
	}
	for range 8 {
		s.disturb()
		w.pass(between(s.rng, 700*time.Millisecond, 1500*time.Millisecond))
		w.eachReplica(s.checkWarned)
	}
	w.net.drop = 0
	for _, h := range w.hosts {
		h.start()
	}
	w.pass(3 * time.Second)
	if s.kind >= Poisoned {
		s.checkPoison()
	}
	s.check()
}

// schedule hands a command to a host, again and again.
func (s *diverging) schedule() {
	s.w.plan(between(s.rng, time.Millisecond, 30*time.Millisecond), "a command", nil, func() {
		if l := pick(s.rng, s.w.hosts...).alive; l != nil && l.process != nil && l.replicas[0].group.Err() == nil && !s.silent {
			s.submit(l.replicas[0], s.rng.Uint64())
		}
		s.schedule()
	})
}

// disturb crashes a host, makes another one lead, or upgrades one.
func (s *diverging) disturb() {
	w, h := s.w, pick(s.rng, s.w.hosts...)
	if s.upgrades() {
		for _, next := range w.hosts {
			if h = next; s.version[h] == 0 {
				break
			}
		}
		s.version[h] = 1
		if s.began == 0 {
			s.began = w.now
		}
	}
	switch {
	case h.alive == nil || h.alive.process == nil || s.wrong != nil && h == s.wrong:
	case !s.upgrades() && s.rng.IntN(2) == 0:
		h.alive.replicas[0].group.Campaign()
	default:
		h.crash(crashfs.LoseNothing)
		w.pass(between(s.rng, 0, 300*time.Millisecond))
		h.start()
	}
}

// upgrades reports whether hosts are restarted with another program.
func (s *diverging) upgrades() bool {
	return s.kind == Upgrade || s.kind == UpgradeWithOldName || s.kind == OtherForm
}

// stops reports whether the member that is wrong must stop.
func (s *diverging) stops() bool { return s.kind == OneIsStopped || s.kind == OtherOptions }

// recordDiverged adds a report.
func (s *diverging) recordDiverged(d event.Diverged) {
	if len(s.report.Reported) == 0 {
		s.report.After = s.w.now - s.began
	}
	s.report.Reported = append(s.report.Reported, d)
}

// check: what was reported is what is wrong.
func (s *diverging) check() {
	w, reported := s.w, s.report.Reported
	sound := s.kind == SoundMachines || s.kind == Upgrade || s.kind == OtherForm || s.kind >= Poisoned
	switch {
	case sound && len(reported) > 0:
		w.violate("nothing is wrong, and a leader reports: %v", reported[0])
	case !sound && len(reported) == 0:
		w.violate("the machines differ for %v, and no leader has reported it", w.now-s.began)
	}
	in := map[DivergenceKind]event.DivergedIn{ReadsClock: event.DivergedResults, OtherOptions: event.DivergedOptions}[s.kind]
	for _, d := range reported {
		if in != "" && d.In != in {
			w.violate("the machines differ in their %s, and a leader reports: %v", in, d)
		}
		if d.In == event.DivergedCommands {
			w.violate("the members have the same commands, and a leader reports: %v", d)
		}
		for _, m := range d.Members {
			if s.wrong != nil && m.Minority && m.ID != s.wrong.id {
				w.violate("host %d is wrong, and a leader reports: %v", s.wrong.id, d)
			}
		}
	}
	w.eachReplica(func(r *replica) {
		// A machine that got all commands again with the new version is right, and one that has stopped says
		// nothing to a new leader. What the leader says, every member knows.
		lasts := !sound && s.kind != UpgradeWithOldName
		if d := r.group.Explain(); d.Has(diagnosis.CodeDiverged) != lasts && !s.stops() || d.Has(diagnosis.CodeNotCompared) {
			w.violate("%s says: %v", r.name, d)
		}
		if err := r.group.Err(); errors.Is(err, outcome.ErrDiverged) {
			if !s.stops() || r.life.host != s.wrong {
				w.violate("%s has stopped: %v", r.name, err)
			}
			s.report.Stopped = true
		}
	})
	if s.stops() && !s.report.Stopped {
		w.violate("host %d is wrong for %v and has not stopped: %v", s.wrong.id, w.now-s.began, reported)
	}
}

// checkWarned: only members that sum up results in other forms are not compared, and those of other versions.
func (s *diverging) checkWarned(r *replica) {
	if d := r.group.Explain(); d.Has(diagnosis.CodeNotCompared) {
		if s.report.Warned++; s.kind != OtherForm {
			s.w.violate("all sum up the same, and %s says: %v", r.name, d)
		}
	}
}

// machine returns the state machine of a replica.
func (s *diverging) machine(r *replica) statemachine.Machine {
	m := &divergingMachine{run: s, replica: r, keys: map[byte]uint64{}, isNew: s.version[r.life.host] > 0}
	s.machines[r] = m
	o := statemachine.CommandOptions{KeepResults: s.keeps, ResultForm: "u64", Version: "v1", Digest: m.digest, StopDiverged: s.kind == OneIsStopped}
	if m.isNew && (s.kind == OtherForm || s.kind == Upgrade && s.keeps) {
		o.ResultForm = "u64 and one"
	}
	if m.isNew && s.kind == Upgrade {
		o.Version = "v2"
	}
	if s.stops() && r.life.host == s.wrong {
		s.wrong.mayStop = true // its group may stop
	}
	if s.kind == OtherOptions && r.life.host == s.wrong {
		o.Sessions = session.Options{Expiry: time.Minute}
	}
	if s.kind == PoisonedWithSnapshots || s.kind == OtherForm {
		return host.Commands(poisonedMachine{m}, o)
	}
	return host.Commands(m, o)
}

// divergingMachine is a map from a byte of a command to a sum, and one sum of everything.
type divergingMachine struct {
	run     *diverging
	replica *replica
	keys    map[byte]uint64
	all     uint64
	count   int
	isNew   bool
	fragile int // commands after a Restore that may fail for a moment
}

// Apply implements host.CommandMachine.
func (m *divergingMachine) Apply(batch []statemachine.Command) error {
	s := m.run
	for i := range batch {
		c := &batch[i]
		if m.replica.life.dead {
			return crashfs.ErrCrashed
		}
		wrong := s.kind >= OneIsWrong && s.kind <= OneIsStopped && m.replica.life.host == s.wrong && c.Index >= s.from
		if s.began == 0 && (wrong || s.kind == MapOrder || s.kind == ReadsClock || s.kind == OtherOptions) {
			s.began = s.w.now
		}
		if m.failsFleetingly() {
			return errFleeting
		}
		key, value := c.Data[0]&7, binary.LittleEndian.Uint64(c.Data)
		switch {
		case value != poisonValue, s.kind == PoisonedAlone && m.replica.life.host != s.wrong:
			m.count++
		case c.Index%2 == 0:
			panic(errPoison)
		default:
			return errPoison
		}
		if !wrong || c.Index > s.from {
			m.keys[key] += value
			m.all = m.all*31 + value
		}
		if s.kind == MapOrder && len(m.keys) > 1 {
			first := byte(s.rng.IntN(8)) // as a range over the map begins anywhere
			for k := range byte(8) {
				m.all = m.all*31 + m.keys[(first+k)&7]
			}
		}
		result := m.keys[key]
		if m.isNew {
			result++
		}
		if s.kind == ReadsClock {
			result = uint64(s.w.now)
		}
		if c.ResultSum = result; c.Awaited {
			c.Result = binary.LittleEndian.AppendUint64(nil, result)
		}
		if c.Caller != nil {
			s.report.Calls++
			c.Caller.(*divergingCall).isTold = true
		}
	}
	return nil
}

// digest sums up the state, without regard to the order of the map.
func (m *divergingMachine) digest() uint64 {
	sum := m.all
	for k, v := range m.keys {
		sum += v ^ uint64(k)<<56
	}
	return sum
}

// divergingCall is a call of the run.
type divergingCall struct {
	host.Call
	run     *diverging
	replica *replica
	isTold  bool // its outcome
}

// Committed, Failed and Duplicate implement host.Caller.
func (c *divergingCall) Committed(outcome.Receipt) {}

// Failed implements host.Caller. Hosts crash and members stop, so nothing is demanded of an outcome.
func (c *divergingCall) Failed(error) { c.isTold = true }

// Duplicate implements host.Caller. The group's own sessions answer no user with a duplicate, unless a
// snapshot that has the command was installed.
func (c *divergingCall) Duplicate(r outcome.Receipt, _ []byte, _ bool) {
	if c.isTold = true; c.run.kind == PoisonedWithSnapshots || c.run.kind == OtherForm {
		return
	}
	c.run.w.violate("a command without a session of its user is a duplicate of %+v", fmt.Sprint(r))
}
