package divergence

import (
	"slices"

	"github.com/millrace/millrace/host/event"
)

// What a leader has found is told to the members, so that Explain says it wherever it is asked. A finding
// counts while the member follows the leader that has told it. It is told when it is new, and then at each
// report of a member. A member that holds one says so in its reports, and is told when the members agree.
// So a record that is lost is told again.

// Finding is what a leader tells the members: what it has found, or that they agree (Index 0).
type Finding event.Diverged

// toldFinding is what a leader has told this member.
type toldFinding struct {
	event.Diverged
	from  uint64
	since int64 // when it was told first, in ticks
}

// tell tells all other members what was found.
func (d *Comparison) tell() {
	for _, id := range d.wiring.Members() {
		if id != d.self {
			d.answer(id, false)
		}
	}
}

// answer tells a member what stands: a difference, or that there is none if it believes that there is one.
func (d *Comparison) answer(to uint64, told bool) {
	finding := Finding{Group: d.group, In: event.DivergedOptions}
	d.mu.Lock()
	if d.latest != nil {
		finding = Finding(*d.latest)
	}
	d.mu.Unlock()
	if finding.Index > 0 || told {
		d.wiring.Send(to, finding.Encode())
	}
}

// believe takes what has found the leader that this member follows.
func (d *Comparison) believe(leader uint64, found *event.Diverged) {
	now := d.wiring.Now()
	d.mu.Lock()
	was := d.told
	isNew := found.Index > 0 && (was == nil || was.from != leader || !sameDifference(&was.Diverged, found))
	switch {
	case found.Index == 0:
		d.told = nil
	case isNew:
		d.told = &toldFinding{*found, leader, now}
	default:
		d.told = &toldFinding{*found, leader, was.since}
	}
	d.mu.Unlock()
	if isNew {
		d.wiring.Told(leader, found)
	}
}

// Standing returns the difference that stands as far as this host knows, who has found it, and since when in
// ticks. It returns nil if there is none, or no leader is known.
func (d *Comparison) Standing() (found *event.Diverged, by uint64, since int64) {
	if d.wiring == nil {
		return nil, 0, 0
	}
	leader := d.wiring.Leader()
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case leader == 0:
		return nil, 0, 0
	case leader == d.self && d.latest != nil:
		found, since = d.latest, d.since
	case leader != d.self && d.told != nil && d.told.from == leader:
		found, since = &d.told.Diverged, d.told.since
	default:
		return nil, 0, 0
	}
	clone := *found
	clone.Members = slices.Clone(clone.Members)
	return &clone, leader, since
}

// Counts returns the last entry after which this leader has seen members agree in everything, and how many
// differences it has found, in this life.
func (d *Comparison) Counts() (agreed, found uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.agreed, d.found
}
