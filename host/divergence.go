package host

import (
	"fmt"
	"slices"
	"sync"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/transport"
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
// The leader compares the checkpoints of the same index. Commands must be equal for all. Results and digests
// are compared among members with the same version only: a rolling upgrade may change a result. Results are
// compared among members that sum them up in the same form only (CommandOptions.ResultForm). Their sums start
// again at each checkpoint, so that a member that was upgraded, was restored from a snapshot, or holds older
// commands on its disk, can be compared at the second checkpoint. The leader tells the others what it has
// found (divergencefinding.go).
//
// Reports are not acknowledged; each has the last checkpoints, so a lost one does not matter. What is applied
// after the last checkpoint is compared when the next command comes.

const (
	keptCheckpoints = 64 // of this member, for followers that lag behind
	sentCheckpoints = 8  // in a report
)

// report is what a member tells the leader.
type report struct {
	group       uint64
	options     uint64 // a sum of the options that all members must share
	form        uint64 // a sum of CommandOptions.ResultForm; 0: it is ""
	told        bool   // the member holds a finding, and must hear when the members agree
	version     string
	checkpoints []checkpoint // ascending
}

// divergence compares checkpoints. The apply lane and the receivers of the transport share it; a call of it
// never waits.
type divergence struct {
	mu      sync.Mutex
	machine *commandGroup
	options uint64
	form    uint64
	own     []checkpoint // ascending, keptCheckpoints at most
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
	from uint64
	report
}

func (d *divergence) init(m *commandGroup) {
	o := m.options.Sessions.WithDefaults()
	b := fmt.Appendf(nil, "%d %d %d %d", o.Expiry, o.MaxBytes, o.MaxSessionBytes, o.MaxResultBytes)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.machine, d.options = m, sumOf(b)
	if m.options.ResultForm != "" {
		d.form = sumOf([]byte(m.options.ResultForm))
	}
}

// put takes a checkpoint of this member. It is compared here, or sent to the leader.
func (d *divergence) put(g *Group, c checkpoint) {
	st := g.status.Load()
	d.mu.Lock()
	// A machine that was made again takes the same checkpoints again.
	d.own = slices.DeleteFunc(d.own, func(o checkpoint) bool { return o.index >= c.index })
	if len(d.own) == keptCheckpoints {
		d.own = slices.Delete(d.own, 0, 1)
	}
	d.own = append(d.own, c)
	r := report{g.id, d.options, d.form, d.told != nil, d.machine.options.Version, slices.Clone(d.own[max(0, len(d.own)-sentCheckpoints):])}
	if st.Leader != g.self {
		d.latest = nil // it is the new leader's to say, which compares the same checkpoints
	}
	d.mu.Unlock()
	switch {
	case st.Leader == g.self:
		d.compare(g)
	case st.Leader != raft.None:
		g.host.transport.SendBytes(st.Leader, transport.Control, r.encode())
	}
}

// takeCheckpoints takes the report of another member.
func (h *Host) takeCheckpoints(from uint64, body []byte) error {
	if isForeign(body) {
		return nil
	}
	r, err := decodeReport(body)
	if err != nil {
		return err
	}
	if g := h.groups.get(r.group); g != nil && g.hasCommands && g.isMember(from) {
		g.divergence.take(from, r)
		if g.status.Load().Leader == g.self {
			g.divergence.compare(g)
			g.divergence.answer(g, from, r.told)
		}
	}
	return nil
}

func (d *divergence) take(from uint64, r report) {
	d.mu.Lock()
	defer d.mu.Unlock()
	at, known := slices.BinarySearchFunc(d.reports, from, func(m memberReport, id uint64) int {
		switch {
		case m.from < id:
			return -1
		case m.from > id:
			return 1
		}
		return 0
	})
	if !known {
		d.reports = slices.Insert(d.reports, at, memberReport{from: from})
	}
	d.reports[at].report = r
}

// compare compares the checkpoints of all indexes that this member still has, and reports the first
// difference if it is new.
func (d *divergence) compare(g *Group) {
	d.mu.Lock()
	var found *event.Diverged
	var form uint64
	over := false
	for _, own := range d.own {
		members := d.at(g.self, own)
		if len(members) < 2 {
			continue
		}
		if found, form = d.differ(g, own.index, members); found != nil {
			break
		}
		d.agreed = max(d.agreed, own.index)
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
			d.since = g.host.clock.lived()
			d.found++
		} else {
			found.Agreed = d.latest.Agreed
		}
		d.latest = found
	}
	d.mu.Unlock()
	if isNew {
		d.tell(g)
		g.host.events.emit(*found)
		g.host.env.logger.Error("members have diverged", "group", g.id, "host", g.self, "what", found.String())
	}
	if d.machine.stops(found.In) {
		d.stopMinority(g, found, form)
	}
}

// isOver reports whether members that differed agree at the same or a later checkpoint. At the same one, a
// member has applied the commands again. Results that agree at a later one say little: only a digest shows
// that the states do.
func isOver(d *event.Diverged, own checkpoint, members []summed) bool {
	if d == nil || own.index < d.Index || own.index > d.Index && d.In == event.DivergedResults && !own.hasDigest {
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
	form    uint64
	version string
	checkpoint
}

// at returns the checkpoints of all members at the index of this member's, by id.
func (d *divergence) at(self uint64, own checkpoint) (members []summed) {
	members = append(members, summed{self, d.options, d.form, d.machine.options.Version, own})
	for i := range d.reports {
		r := &d.reports[i]
		for _, c := range r.checkpoints {
			if c.index == own.index {
				members = append(members, summed{r.from, r.options, r.form, r.version, c})
			}
		}
	}
	slices.SortFunc(members, func(a, b summed) int { return compareIDs(a.id, b.id) })
	return members
}

func compareIDs(a, b uint64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// differ returns the first difference between checkpoints of the same index, or nil. Form is that of the
// results, if they differ.
func (d *divergence) differ(g *Group, index uint64, members []summed) (found *event.Diverged, form uint64) {
	voters := g.countVoters()
	judge := func(in event.DivergedIn, version string, sum func(m *summed) (uint64, bool)) *event.Diverged {
		found := &event.Diverged{Group: g.id, In: in, Index: index, Agreed: d.agreed, Version: version}
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
		return found, 0
	}
	if found := judge(event.DivergedCommands, "", func(m *summed) (uint64, bool) { return m.commands, true }); found != nil {
		return found, 0
	}
	for i := range members {
		version, form := members[i].version, members[i].form
		if found := judge(event.DivergedResults, version, func(m *summed) (uint64, bool) {
			return m.results, m.hasResults && m.version == version && m.form == form
		}); found != nil {
			return found, form
		}
		if found := judge(event.DivergedState, version, func(m *summed) (uint64, bool) {
			return m.digest, m.hasDigest && m.version == version
		}); found != nil {
			return found, 0
		}
	}
	return nil, 0
}

// countVoters returns how many members vote. Any goroutine may call it.
func (g *Group) countVoters() int {
	if r := g.roster(); r != nil {
		return len(r.Conf.Voters)
	}
	if b := g.bound.Load(); b != nil {
		return len(*b)
	}
	return len(g.memberIDs())
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
		if agree > voters/2 {
			for j := range members {
				members[j].Minority = members[j].Sum != members[i].Sum
			}
		}
	}
	return differ
}

// stopMinority stops the members that differ from a majority, if the members that agree and were heard lately
// are a quorum: without the others the group is still available then. What a member has reported says nothing
// about whether it is still there. A leader that is one of those that differ hands over first; if it still
// leads at a later checkpoint, it stops.
func (d *divergence) stopMinority(g *Group, found *event.Diverged, form uint64) {
	var order *stopOrder
	there := 0
	for _, m := range found.Members {
		if slices.ContainsFunc(found.Members, func(o event.DivergedMember) bool { return o.Minority }) && !m.Minority {
			order = &stopOrder{group: g.id, index: found.Index, in: found.In, form: form, version: found.Version, sum: m.Sum}
			if m.ID == g.self || g.isThere(m.ID) {
				there++
			}
		}
	}
	if order == nil || there <= g.countVoters()/2 {
		return // no majority agrees, or it could not go on by itself now; the next reports may say so
	}
	for _, m := range found.Members {
		switch {
		case !m.Minority:
		case m.ID != g.self:
			g.host.transport.SendBytes(m.ID, transport.Control, order.encode())
		case d.mayYield(found.Index):
			g.inbox.putHandOver()
			g.wakeAs(true)
		case d.yields < found.Index:
			g.fail(d.machine.divergedError(order))
		}
	}
}

// isThere reports whether something of a member, and of its host, was heard lately. Any goroutine of a leader
// may call it.
func (g *Group) isThere(member uint64) bool {
	for _, v := range g.views.load() {
		if v.id == member && v.at-v.activeAt > 2*int64(g.host.config.electionTicks()) {
			return false
		}
	}
	return g.host.isThere(member)
}

// mayYield reports whether this leader was not asked to hand over before.
func (d *divergence) mayYield(index uint64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.yields == 0 {
		d.yields = index
		return true
	}
	return false
}

// stopOrder is what a leader tells a member that differs from a majority.
type stopOrder struct {
	group, index uint64
	in           event.DivergedIn
	form         uint64 // of the results, if they differ
	version      string
	sum          uint64 // of the majority
}

// stops reports whether a member stops that differs from a majority in this. Other options are never borne:
// the member forgets other sessions, and would apply other commands from then on.
func (s *commandGroup) stops(in event.DivergedIn) bool {
	return s.options.StopDiverged || in == event.DivergedOptions
}

// takeStop takes such an order: only from the leader that this member follows, only if the member stops for
// it, and only if its own checkpoint says the same.
func (h *Host) takeStop(from uint64, body []byte) error {
	if isForeign(body) {
		return nil
	}
	o, err := decodeStop(body)
	if err != nil {
		return err
	}
	g := h.groups.get(o.group)
	if g == nil || !g.hasCommands || g.status.Load().Leader != from {
		return nil
	}
	if m := g.divergence.machine; m.stops(o.in) && g.divergence.differs(o) {
		g.fail(m.divergedError(&o))
	}
	return nil
}

// differs reports whether this member's checkpoint has another sum than an order.
func (d *divergence) differs(o stopOrder) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.own {
		if c.index != o.index {
			continue
		}
		same := d.machine.options.Version == o.version
		switch o.in {
		case event.DivergedOptions:
			return d.options != o.sum
		case event.DivergedCommands:
			return c.commands != o.sum
		case event.DivergedResults:
			return same && d.form == o.form && c.hasResults && c.results != o.sum
		case event.DivergedState:
			return same && c.hasDigest && c.digest != o.sum
		}
	}
	return false
}

func (s *commandGroup) divergedError(o *stopOrder) error {
	if o.in == event.DivergedOptions {
		return fmt.Errorf("%w: group %d has other CommandOptions.Sessions (Machine.Sessions) on this host, so it would forget other sessions and apply other commands; give all members the same, then start this host again",
			ErrDiverged, o.group)
	}
	return fmt.Errorf("%w: in its %s after entry %d of group %d, where the majority has sum %016x; find what is not the same on every host (map order, clock, chance, another program), then restart this host with an empty state machine",
		ErrDiverged, o.in, o.index, o.group, o.sum)
}
