package divergence

import (
	"fmt"
	"slices"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/raft/quorum"
)

// stopMinority stops the members that differ from a majority, if the members that agree and were heard lately
// are a quorum: without the others the group is still available then. What a member has reported says nothing
// about whether it is still there. A leader that is one of those that differ hands over first; if it still
// leads at a later checkpoint, it stops.
func (d *Comparison) stopMinority(found *event.Diverged, form string) {
	var order *Order
	there := 0
	for _, m := range found.Members {
		if slices.ContainsFunc(found.Members, func(o event.DivergedMember) bool { return o.Minority }) && !m.Minority {
			order = &Order{Group: d.group, Index: found.Index, In: found.In, Form: form, Version: found.Version, Sum: m.Sum}
			if m.ID == d.self || d.wiring.IsThere(m.ID) {
				there++
			}
		}
	}
	if order == nil || there < quorum.Size(d.wiring.Voters()) {
		return // no majority agrees, or it could not go on by itself now; the next reports may say so
	}
	for _, m := range found.Members {
		switch {
		case !m.Minority:
		case m.ID != d.self:
			d.wiring.Send(m.ID, order.Encode())
		case d.mayYield(found.Index):
			d.wiring.Yield()
		case d.yields < found.Index:
			d.wiring.Stop(order)
		}
	}
}

// mayYield reports whether this leader was not asked to hand over before.
func (d *Comparison) mayYield(index uint64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.yields == 0 {
		d.yields = index
		return true
	}
	return false
}

// Order is what a leader tells a member that differs from a majority. The member obeys only the leader that
// it follows, only if it stops for this, and only if its own checkpoint says the same.
type Order struct {
	Group, Index uint64
	In           event.DivergedIn
	Form         string // of the results, if they differ
	Version      string
	Sum          uint64 // of the majority
}

// stops reports whether a member stops that differs from a majority in this. Other options are never borne:
// the member forgets other sessions, and would apply other commands from then on.
func (m *Machine) stops(in event.DivergedIn) bool {
	return m.Stops || in == event.DivergedOptions
}

// differs reports whether this member's checkpoint has another sum than an order.
func (d *Comparison) differs(o *Order) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.own {
		if c.Index != o.Index {
			continue
		}
		same := d.machine.Version == o.Version
		switch o.In {
		case event.DivergedOptions:
			return d.options != o.Sum
		case event.DivergedCommands:
			return c.Commands != o.Sum
		case event.DivergedResults:
			return same && d.watch.Form == o.Form && c.HasResults && c.Results != o.Sum
		case event.DivergedState:
			return same && c.HasDigest && c.Digest != o.Sum
		}
	}
	return false
}

// String says what a member that stops has to do.
func (o *Order) String() string {
	if o.In == event.DivergedOptions {
		return fmt.Sprintf("group %d has other CommandOptions.Sessions (Machine.Sessions) on this host, so it would forget other sessions and apply other commands; give all members the same, then start this host again", o.Group)
	}
	return fmt.Sprintf("in its %s after entry %d of group %d, where the majority has sum %016x; find what is not the same on every host (map order, clock, chance, another program), then restart this host with an empty state machine", o.In, o.Index, o.Group, o.Sum)
}
