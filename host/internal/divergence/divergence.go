package divergence

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/session"
	"github.com/millrace/millrace/internal/lock"
	"github.com/millrace/millrace/raft/quorum"
)

// Members that have applied the same commands must have the same state. A machine that iterates over a map,
// reads the clock or has a bug in one place breaks that, and no message of Raft shows it. So each member sums
// up what it has applied, and sends a checkpoint to the leader now and then:
//
//	after        the first command of each second of log time, and each 65,536 commands
//	commands     a running sum of all entries since the founding, with what the table of sessions said
//	results      a sum of the results since the checkpoint before, where they are kept or summed up
//	digest       of the machine's state, where it offers one
//
// The leader compares the checkpoints of the same index. Commands must be equal for all. Results and
// digests are compared among members with the same version only: a rolling upgrade may change a result.
// Results are compared among members that sum them up in the same form only (CommandOptions.ResultForm),
// and digests among those that have one: a leader knows which members it does not compare (gaps.go).
// The sums start again at each checkpoint, so that a member that was upgraded, was restored from a
// snapshot, or holds older commands on its disk, can be compared at the second checkpoint. The leader tells
// the others what it has found (finding.go).
//
// Reports are not acknowledged; each has the last checkpoints, so a lost one does not matter. What is applied
// after the last checkpoint is compared when the next command comes.

const (
	keptCheckpoints = 64 // of this member, for followers that lag behind
	sentCheckpoints = 8  // in a report
)

// Machine is what members compare of a state machine, and what a member does that differs.
type Machine struct {
	Sessions session.Options // all members must have the same
	Form     string          // names how results are summed up; those of the same form are compared; "": they are not
	Version  string          // names the behaviour; results and states of the same version are compared
	Digest   func() uint64   // of the state; nil: it is not compared
	Stops    bool            // a member that differs from a majority stops, whatever it differs in
}

// Wiring is the group as a comparison sees it, and what it does to the group. Its methods may be called from
// any goroutine, and do not wait.
type Wiring interface {
	Leader() uint64 // as far as this member knows; 0: none
	Members() []uint64
	IsMember(id uint64) bool
	IsThere(id uint64) bool // something of the member was heard lately
	Life(id uint64) uint64  // of the member's host, that was met last
	Voters() int            // how many members vote
	Now() int64             // in ticks

	Send(to uint64, record []byte)
	Found(d *event.Diverged)               // a leader has found a difference that is new
	Told(leader uint64, d *event.Diverged) // a member learns of one that is new
	Yield()                                // this leader must hand over
	Stop(o *Order)                         // this member differs from a majority, and stops
}

// Report is what a member tells the leader.
type Report struct {
	Group       uint64
	Options     uint64 // a sum of the options that all members must share
	Told        bool   // the member holds a finding, and must hear when the members agree
	Watch       Watch
	Version     string
	Checkpoints []Checkpoint // ascending
}

// Comparison compares checkpoints. The apply lane and the receivers of the transport share it; a call of it
// never waits. Its zero value knows of no difference.
type Comparison struct {
	group, self uint64
	wiring      Wiring
	machine     Machine

	mu      lock.Mutex
	options uint64
	watch   Watch
	own     []Checkpoint // ascending, keptCheckpoints at most
	reports []memberReport
	agreed  uint64 // the highest index at which all compared members agreed
	latest  *event.Diverged
	since   int64  // when latest was found, in ticks
	found   uint64 // how many differences this host has found as the leader
	told    *toldFinding
	yields  uint64 // the index at which this leader was asked to hand over
}

// memberReport is the latest report of another member. There are as many as there are other hosts, at most.
type memberReport struct {
	from  uint64
	life  uint64 // of its host
	since int64  // the member watches what it watches, in ticks
	Report
}

// Init begins to compare, before anything is put or taken.
func (d *Comparison) Init(group, self uint64, m Machine, w Wiring) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.group, d.self, d.wiring, d.machine = group, self, w, m
	o := m.Sessions.WithDefaults()
	d.options = sumOf(fmt.Appendf(nil, "%d %d %d %d", o.Expiry, o.MaxBytes, o.MaxSessionBytes, o.MaxResultBytes))
	d.watch = Watch{Form: nameOf(m.Form), States: m.Digest != nil}
}

// Record records a checkpoint of this member. It is compared here, or sent to the leader.
func (d *Comparison) Record(c Checkpoint) {
	leader := d.wiring.Leader()
	d.mu.Lock()
	// A machine that was made again takes the same checkpoints again.
	d.own = slices.DeleteFunc(d.own, func(o Checkpoint) bool { return o.Index >= c.Index })
	if len(d.own) == keptCheckpoints {
		d.own = slices.Delete(d.own, 0, 1)
	}
	d.own = append(d.own, c)
	if leader != d.self {
		d.latest = nil // it is the new leader's to say, which compares the same checkpoints
	}
	d.mu.Unlock()
	switch leader {
	case d.self:
		d.compare()
	case 0:
	default:
		r := d.Report()
		d.wiring.Send(leader, r.Encode())
	}
}

// Report returns what this member tells its leader.
func (d *Comparison) Report() Report {
	d.mu.Lock()
	defer d.mu.Unlock()
	return Report{d.group, d.options, d.told != nil, d.watch, d.machine.Version, slices.Clone(d.own[max(0, len(d.own)-sentCheckpoints):])}
}

// Receive receives what another member says.
func (d *Comparison) Receive(from uint64, r Record) {
	leader := d.wiring.Leader()
	switch r := r.(type) {
	case *Report:
		if !d.wiring.IsMember(from) {
			return
		}
		d.hear(from, r)
		if leader == d.self {
			d.compare()
			d.answer(from, r.Told)
		}
	case *Order:
		if leader == from && d.machine.stops(r.In) && d.differs(r) {
			d.wiring.Stop(r)
		}
	case *Finding:
		if leader == from && from != d.self {
			d.believe(from, (*event.Diverged)(r))
		}
	}
}

// hear keeps the report of another member.
func (d *Comparison) hear(from uint64, r *Report) {
	now, life := d.wiring.Now(), d.wiring.Life(from)
	d.mu.Lock()
	defer d.mu.Unlock()
	at, known := slices.BinarySearchFunc(d.reports, from, func(m memberReport, id uint64) int { return cmp.Compare(m.from, id) })
	if !known {
		d.reports = slices.Insert(d.reports, at, memberReport{from: from})
	}
	m := &d.reports[at]
	if !known || m.life != life || m.Watch != r.Watch {
		m.life, m.since = life, now
	}
	m.Report = *r
}

// compare compares the checkpoints of all indexes that this member still has, and reports the first
// difference if it is new.
func (d *Comparison) compare() {
	voters, now := d.wiring.Voters(), d.wiring.Now()
	d.mu.Lock()
	var found *event.Diverged
	var form string
	over := false
	for _, own := range d.own {
		members := d.at(own)
		if len(members) < 2 {
			continue
		}
		if found, form = d.differ(own.Index, members, voters); found != nil {
			break
		}
		d.agreed = max(d.agreed, own.Index)
		over = over || isOver(d.latest, own, members)
	}
	if found == nil {
		if over {
			d.latest = nil
		}
		d.mu.Unlock()
		return
	}
	isNew := d.latest == nil || !sameDifference(found, d.latest)
	if d.latest == nil || isNew || found.Index > d.latest.Index {
		if isNew {
			d.since = now
			d.found++
		} else {
			found.Agreed = d.latest.Agreed
		}
		d.latest = found
	}
	d.mu.Unlock()
	if isNew {
		d.tell()
		d.wiring.Found(found)
	}
	if d.machine.stops(found.In) {
		d.stopMinority(found, form)
	}
}

// isOver reports whether members that differed agree at the same or a later checkpoint. At the same one, a
// member has applied the commands again. Results that agree at a later one say little: only a digest shows
// that the states do.
func isOver(d *event.Diverged, own Checkpoint, members []summed) bool {
	if d == nil || own.Index < d.Index || own.Index > d.Index && d.In == event.DivergedResults && !own.HasDigest {
		return false
	}
	for _, m := range d.Members {
		if !slices.ContainsFunc(members, func(s summed) bool { return s.id == m.ID && s.version == m.Version }) {
			return false
		}
	}
	return true
}

// sameDifference reports whether a difference concerns the same members in the same way as an earlier one.
func sameDifference(d, o *event.Diverged) bool {
	return d.In == o.In && d.Version == o.Version && slices.EqualFunc(d.Members, o.Members, func(a, b event.DivergedMember) bool {
		return a.ID == b.ID && a.Version == b.Version && a.Minority == b.Minority
	})
}

// summed is a checkpoint of a member.
type summed struct {
	id      uint64
	options uint64
	form    string
	version string
	Checkpoint
}

// at returns the checkpoints of all members at the index of this member's, by id.
func (d *Comparison) at(own Checkpoint) (members []summed) {
	members = append(members, summed{d.self, d.options, d.watch.Form, d.machine.Version, own})
	for i := range d.reports {
		r := &d.reports[i]
		for _, c := range r.Checkpoints {
			if c.Index == own.Index {
				members = append(members, summed{r.from, r.Options, r.Watch.Form, r.Version, c})
			}
		}
	}
	slices.SortFunc(members, func(a, b summed) int { return cmp.Compare(a.id, b.id) })
	return members
}

// differ returns the first difference between checkpoints of the same index, or nil. Form is that of the
// results, if they differ.
func (d *Comparison) differ(index uint64, members []summed, voters int) (found *event.Diverged, form string) {
	judge := func(in event.DivergedIn, version string, sum func(m *summed) (uint64, bool)) *event.Diverged {
		found := &event.Diverged{Group: d.group, In: in, Index: index, Agreed: d.agreed, Version: version}
		for i := range members {
			if v, has := sum(&members[i]); has {
				found.Members = append(found.Members, event.DivergedMember{ID: members[i].id, Version: members[i].version, Sum: v})
			}
		}
		if !markMinority(found.Members, voters) {
			return nil
		}
		return found
	}
	if found := judge(event.DivergedOptions, "", func(m *summed) (uint64, bool) { return m.options, true }); found != nil {
		return found, ""
	}
	if found := judge(event.DivergedCommands, "", func(m *summed) (uint64, bool) { return m.Commands, true }); found != nil {
		return found, ""
	}
	for i := range members {
		version, form := members[i].version, members[i].form
		if found := judge(event.DivergedResults, version, func(m *summed) (uint64, bool) {
			return m.Results, m.HasResults && m.version == version && m.form == form
		}); found != nil {
			return found, form
		}
		if found := judge(event.DivergedState, version, func(m *summed) (uint64, bool) {
			return m.Digest, m.HasDigest && m.version == version
		}); found != nil {
			return found, ""
		}
	}
	return nil, ""
}

// markMinority reports whether members differ, and marks the minority if a majority of the voters agrees.
func markMinority(members []event.DivergedMember, voters int) (differ bool) {
	for i := range members {
		agree := 0
		for j := range members {
			if members[i].Sum == members[j].Sum {
				agree++
			}
		}
		if agree < len(members) {
			differ = true
		}
		if agree >= quorum.Size(voters) {
			for j := range members {
				members[j].Minority = members[j].Sum != members[i].Sum
			}
		}
	}
	return differ
}
