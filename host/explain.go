package host

import (
	"errors"
	"slices"
	"time"

	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/host/internal/examination"
	"github.com/millrace/millrace/host/internal/identity"
	"github.com/millrace/millrace/host/internal/members"
	"github.com/millrace/millrace/host/internal/placement"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/wal"
)

// Explain answers the question of an operator at night: what is wrong with this group, how does this host
// know, and what can be done? It reads what the host notes anyway, and asks no other host, so it answers
// while disks, state machines and other hosts hang. The price: a member sees only its own part. The leader
// sees its followers; a follower sees itself and its leader.
//
// This file gathers the facts. Package examination judges them.

// Explain says what is wrong with the group as far as this host can see, since when, and what to do. A
// healthy group has no cause: also not under full load, in an election that takes less than two election
// timeouts, or while nothing happens. It never waits, neither for the group nor for a disk, and may be called
// at any time, also after Close, by any goroutine.
//
// What it cannot see: clocks that drift, and whatever only another member knows. So ask the leader first, and
// then the members that it names.
func (g *Group) Explain() diagnosis.Diagnosis { return examination.Examine(g.facts()) }

// facts are what this host knows of the group now. Of one that has stopped, they are why.
func (g *Group) facts() *examination.Facts {
	c, times := &g.host.config, &g.life.roleTimes
	f := &examination.Facts{
		Group: g.id, Host: g.self, Now: g.host.clock.awake(), Bounds: c.bounds(), Status: g.Status(),
		Opened: times.Opened.Load(), Leads: times.Leads.Load(), Leaderless: times.Leaderless.Load(),
	}
	if err := g.Err(); err != nil {
		f.Stop = &examination.Stop{Since: times.Stopped.Load(), Err: err, Why: g.stopReason(err), Directory: errors.As(err, new(*members.RefusedDirectoryError))}
		return f
	}
	f.Config = examination.Config{
		ElectionTimeout: c.ElectionTimeout, StallTimeout: c.StallTimeout,
		MemoryBytes: c.MemoryBytes, QueueBytes: int64(c.queueBytes()), LogDir: identity.LogDir(c.Dir), Batches: !c.SingleEntries,
	}
	f.Founding, f.Roster, f.Members, f.Followers = g.Founding(), g.roster(), g.memberIDs(), g.life.views.Load()
	_, f.DirectoriesSince = g.members.Excluded()
	g.peerFacts(f)
	if g.members.withoutAuthority.Load() {
		f.Authority = &examination.Authority{LostAt: g.members.authorityLostAt, Unmet: !g.hasMetVoters()}
	}
	g.diskFacts(&f.Disk, f.Now)
	g.machineFacts(f)
	f.Snapshots = g.snapshotFacts()
	f.Pauses = g.host.reports.watch.Paused(g.host.clock.latest().Ticks, f.Bounds.Paused())
	m := g.host.Memory()
	f.Load = examination.Load{
		Commands: g.proposals.overload.Commands.Load(), Messages: g.proposals.overload.Messages.Load(),
		Waiting: examination.Share(m.Waiting), Proposed: examination.Share(m.Proposed),
		Received: examination.Share(m.Received), Writing: examination.Share(m.Writing),
		Behind: g.machine.backlog.Behind(g.machine.apply.Applied()),
	}
	p := g.Placement()
	f.Placement = examination.Placement{Wants: p.Wants, Recent: p.Recent, Most: placement.MaxPlacements, Window: placement.Window}
	return f
}

// stopReason is why the group has stopped, as far as it decides what to do.
func (g *Group) stopReason(err error) examination.StopReason {
	switch {
	case errors.Is(err, outcome.ErrStopped), errors.Is(err, outcome.ErrRemoved):
		return examination.StoppedByProgram
	case errors.Is(err, outcome.ErrMemberRemoved):
		return examination.StoppedByRemoval
	case errors.Is(err, wal.ErrDiskFull):
		return examination.StoppedByFullDisk
	case g.host.storage.lane.Failed():
		return examination.StoppedByDisk
	case errors.As(err, new(*members.RefusedDirectoryError)):
		return examination.StoppedByDirectory
	}
	return examination.StoppedByError
}

// peerFacts gathers what is known of the hosts that the other facts name.
func (g *Group) peerFacts(f *examination.Facts) {
	ids := slices.Concat(f.Members, f.Founding.Refused)
	if f.Roster != nil {
		ids = append(ids, f.Roster.Voters()...)
	}
	for _, v := range f.Followers {
		ids = append(ids, v.ID)
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	f.Peers = make([]examination.Peer, 0, len(ids))
	for _, id := range ids {
		p := examination.Peer{ID: id, Refused: g.host.reports.watch.Refusal(id), Certificate: g.host.reports.watch.Certificate(id)}
		if came, ok := g.host.trust.admission.Incarnation(id); ok && slices.Contains(f.Founding.Refused, id) {
			p.Directory = came.String()
		}
		if m := g.host.network.handshakes.Of(id); m != nil {
			p.Known, p.Heard, p.HeardAt, p.HeardSince = true, m.Met.Load(), m.HeardAt.Load(), m.HeardSince.Load()
			p.SettingsAt, p.Unsent = m.SettingsAt.Load(), m.Unsent.Load()
			if why := m.Refuses.Load(); why != nil {
				p.RefusedBy = &examination.Refusal{Why: *why, Since: m.RefusesSince.Load()}
			}
			if s := m.Settings.Load(); s != nil {
				p.Settings, p.Batches = g.host.config.besideOwn(*s), saidOfBatches(*s)
			}
		}
		f.Peers = append(f.Peers, p)
	}
}

// diskFacts gathers how the disk of this host takes entries, of this group and of all.
func (g *Group) diskFacts(d *examination.Disk, now int64) {
	if q := g.writes.append; q != nil && q.Full.Load() {
		since, because := q.Refusal()
		d.Full = &examination.FullDisk{Since: since, Bytes: q.Held(), Err: because}
	}
	d.StallsAt, d.Stalls = g.host.reports.watch.StalledDisk(g.host.storage.lane, now)
	d.Slow = g.host.reports.watch.SlowWrites(now)
	d.Syncs = g.host.storage.log.Stats().Syncs
}

// machineFacts gathers how the state machine works, and whether other members agree with it.
func (g *Group) machineFacts(f *examination.Facts) {
	m, q := &f.Machine, g.machine.apply
	if ran, is := g.seat.Runs(); is && g.host.env.pipeline.AsyncStorageWrites() {
		m.Turn = max(ran, time.Nanosecond)
	}
	s := g.host.appliers.StateOf(&q.Seat)
	m.Lane = examination.Lane{Busy: s.Waits, Running: s.Running, Since: s.Since, Lanes: s.Lanes, Hung: s.Hung, Substitutes: s.Substitutes}
	if h := q.Halt(); h != nil {
		e := h.Err
		_, isKnown := e.Command()
		m.Halt = &examination.Halt{Since: h.Since, At: e.At(), One: isKnown, Whole: e.Undivided, Err: e.Cause, Skipped: e.Skipped > 0, Stays: e.Final, WrongVersion: e.WrongVersion}
	}
	if p, lost := q.Waits(); p != nil {
		m.Object = &examination.Object{Since: p.Since, Entry: p.Index, ID: g.machine.objects.Awaits().String(), Lost: lost}
	}
	f.Differs, f.DiffersBy, f.DiffersSince = g.machine.divergence.Standing()
	f.Uncompared = g.machine.divergence.Uncompared()
}

// snapshotFacts gathers how the group takes snapshots.
func (g *Group) snapshotFacts() (f examination.Snapshots) {
	s := &g.snapshots
	f.Hangs, f.HangsFor, _ = g.host.bulk.snapshotLanes.HangsFor(&s.Seat)
	f.Failures, f.FailsSince, f.FailedAt, f.Err = s.Failures()
	f.Disabled = s.Policy.Disabled
	if f.Failures > 0 {
		f.LogEntries = g.writes.storage.entries()
	}
	for _, err := range s.Stuck() {
		f.Stuck = append(f.Stuck, err)
	}
	if r := s.Refused(); r != nil {
		f.Refused = (*examination.RefusedSnapshot)(r)
	}
	return f
}
