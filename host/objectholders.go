package host

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/host/session"
	"github.com/millrace/millrace/object"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
)

// Which members hold which sets. Each knows it of itself, and tells the leader (objectscodec.go). The leader
// proposes the command hold when a quorum of the configuration in force holds a set; and it changes the
// members only so that a quorum of the next configuration holds every set that may be named. Nothing here is
// remembered beyond the leader's term: answers are given again.
//
// A leader asks while there is something to learn: a set that no quorum is known to hold, or a change of the
// members. Otherwise the members are silent.

// holders is what the turn knows. In a leader: of the others.
type holders struct {
	term     uint64
	leader   uint64 // of the term, as far as it is known
	began    uint64 // the end of the log when the term began, or its leader became known
	number   uint64
	next     int64 // the tick at which the turn must look again
	askedAt  int64 // tick
	removeAt int64 // tick before which nothing that was in use is removed
	wanted   int64 // until this tick a change of the members needs answers
	passedAt int64 // tick at which the time was said last, when the next set to go was that of passedFor,
	// and the log time that was applied was passedAfter.
	passedFor, passedAfter time.Duration
	answers                map[uint64]objectRecord
	proposed               map[object.ID]int64 // a hold was proposed in this term, and when
	said                   []byte              // a follower: the last answer to this leader
	saidTo                 uint64
	saidLacking            bool // and it named sets that are missing

	// Guarded by groupObjects.mu: what came since the last turn, the latest of each host.
	questions, records []objectRecord
}

// heard takes a question or an answer of another host.
func (o *groupObjects) heard(r objectRecord, isQuestion bool) {
	o.mu.Lock()
	to := &o.holders.records
	if isQuestion {
		to = &o.holders.questions
	}
	*to = append(slices.DeleteFunc(*to, func(other objectRecord) bool { return other.from == r.from }), r)
	o.mu.Unlock()
	o.wake()
}

// forget drops what a member has answered: it comes with another directory.
func (h *holders) forget(id uint64) { delete(h.answers, id) }

// advanceObjects does what there is to do about objects. It is part of a turn.
func (g *Group) advanceObjects() (again bool) {
	o := &g.machine.objects
	if !o.on {
		return false
	}
	o.removeEnded()
	st, h := g.core.node.BasicStatus(), &o.holders
	if h.term != st.Term || h.leader != st.Lead { // a candidate looks too, and may be elected then
		h.term, h.leader, h.began, h.said, h.saidLacking = st.Term, st.Lead, st.LastIndex, nil, false
		h.answers, h.proposed = map[uint64]objectRecord{}, map[object.ID]int64{}
		o.work.Store(true)
	}
	if !o.work.Swap(false) && g.core.at.ticks < o.holders.next {
		return o.goes.Load() != 0 || o.holders.next != never
	}
	o.holders.next = never
	if !o.beginFetches() {
		o.holders.next = g.core.at.ticks + ticksPerHeartbeat
	}
	o.holders.next = min(o.holders.next, o.removeAgain())
	o.mu.Lock()
	questions, records, stops := h.questions, h.records, o.stops
	h.questions, h.records, o.stops = nil, nil, nil
	o.mu.Unlock()
	for _, id := range stops {
		g.host.bulk.transfers.endFetch(g, id)
	}
	if st.RaftState == raft.StateLeader {
		for _, r := range records {
			if r.at = g.core.at.ticks; r.term == st.Term {
				h.answers[r.from] = r
			}
		}
		o.lead(st)
		return o.goes.Load() != 0 || o.holders.next != never
	}
	o.tell(st, questions)
	return o.goes.Load() != 0 || o.holders.next != never
}

// objectsDue returns the tick at which the turn must look at the objects again.
func (g *Group) objectsDue() int64 {
	if !g.machine.objects.on {
		return never
	}
	return g.machine.objects.holders.next
}

// beginFetches begins to fetch what this member lacks, as far as the host has slots. It reports whether
// everything is on its way. Sets with equal contents are fetched one after the other.
func (o *groupObjects) beginFetches() (all bool) {
	all = true
	begun := map[[32]byte]bool{}
	for _, s := range o.inOrder(o.lacking) {
		if begun[s.Hash] {
			all = false
			continue
		}
		begun[s.Hash] = true
		sources := []uint64{s.Uploader}
		for _, h := range s.Holders {
			sources = append(sources, h.ID)
		}
		sources = slices.DeleteFunc(sources, func(id uint64) bool { return id == o.group.self })
		if !o.group.host.bulk.transfers.fetch(o.group, objectFetch{id: s.ID, bytes: s.Bytes, manifestBytes: s.Manifest, hash: s.Hash, sources: sources}) {
			return false
		}
	}
	return all
}

// inOrder returns sets in the order of their opening.
func (o *groupObjects) inOrder(of map[object.ID]object.Set) []object.Set {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(of) == 0 {
		return nil
	}
	all := make([]object.Set, 0, len(of))
	for _, s := range of {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b object.Set) int {
		if a.Opened < b.Opened {
			return -1
		}
		return 1
	})
	return all
}

// own returns what this member holds: its answer.
func (o *groupObjects) own(st raft.BasicStatus) objectRecord {
	r := objectRecord{from: o.group.self, group: o.group.id, term: st.Term, through: min(o.group.machine.apply.position().Index, st.Durable), lost: o.group.machine.apply.lostAt()}
	for i, s := range o.inOrder(o.lacking) { // after the position, which is of no later moment
		if i == maxMissing {
			r.through = min(r.through, s.Opened-1)
			break
		}
		r.missing = append(r.missing, s.ID)
	}
	return r
}

// holds reports whether an answer says that the member holds a set.
func (r *objectRecord) holds(s *object.Set) bool {
	return s.Opened <= r.through && !slices.Contains(r.missing, s.ID)
}

// tell answers the leader's question, and tells it what has changed.
func (o *groupObjects) tell(st raft.BasicStatus, questions []objectRecord) {
	h := &o.holders
	if st.Lead == raft.None {
		return
	}
	r := o.own(st)
	news := r.encode(control.ObjectAnswer)
	asked := false
	for _, q := range questions {
		if q.from == st.Lead && q.term == st.Term {
			asked, r.number = true, q.number
		}
	}
	o.mu.Lock()
	open := len(o.unheld) > 0
	o.mu.Unlock()
	if !asked && (h.saidTo == st.Lead && bytes.Equal(h.said, news) || !open && r.lost == 0 && len(r.missing) == 0 && !h.saidLacking) {
		return
	}
	if o.group.host.network.transport.SendBytes(st.Lead, transport.Control, r.encode(control.ObjectAnswer)) {
		h.said, h.saidTo, h.saidLacking = news, st.Lead, len(r.missing) > 0
	}
	if r.lost > 0 || len(r.missing) > 0 { // said again as long as it is so: the leader believes it for a while only
		h.next = min(h.next, o.group.core.at.ticks+int64(o.group.host.config.electionTicks()))
		h.said = nil
	}
}

// lead proposes holds, and asks for what it must know.
func (o *groupObjects) lead(st raft.BasicStatus) {
	g, h := o.group, &o.holders
	roster := g.roster()
	if roster == nil {
		return
	}
	unheld := o.inOrder(o.unheld)
	h.forgetApplied(unheld)
	h.answers[g.self] = o.own(st)
	for _, s := range unheld {
		if at, is := h.proposed[s.ID]; is && g.core.at.ticks-at < int64(g.host.config.electionTicks()) {
			continue
		}
		if all := h.of(roster, &s); roster.Spare(func(id uint64) bool { return contains(all, id) }) >= 0 {
			o.proposeHold(s.ID, all)
		}
	}
	for id, r := range h.answers {
		if r.lost > 0 && id != g.self {
			g.sendPast(id, r.lost)
			r.lost = 0
			h.answers[id] = r
		}
	}
	o.passTime()
	period := int64(2 * ticksPerHeartbeat)
	if len(unheld) == 0 && g.core.at.ticks > h.wanted {
		return
	}
	if g.core.at.ticks-h.askedAt >= period || h.number == 0 {
		o.ask(st)
	}
	h.next = min(h.next, h.askedAt+period)
}

// forgetApplied forgets the holds that were proposed and are applied, or whose sets have gone.
func (h *holders) forgetApplied(unheld []object.Set) {
	if len(h.proposed) <= len(unheld) {
		return // as long as it has no more than these it is bounded
	}
	still := map[object.ID]bool{}
	for i := range unheld {
		still[unheld[i].ID] = true
	}
	maps.DeleteFunc(h.proposed, func(id object.ID, _ int64) bool { return !still[id] })
}

// ask asks every other member.
func (o *groupObjects) ask(st raft.BasicStatus) {
	g, h := o.group, &o.holders
	h.number++
	h.askedAt = g.core.at.ticks
	q := objectRecord{group: g.id, term: st.Term, number: h.number}
	body := q.encode(control.ObjectQuestion)
	for _, id := range g.memberIDs() {
		if id != g.self {
			g.host.network.transport.SendBytes(id, transport.Control, body)
		}
	}
}

// of returns the members that hold a set, by id, with the directories that they have in a roster.
func (h *holders) of(r *membership.Roster, s *object.Set) (all []object.Holder) {
	for _, m := range r.Members {
		if a, ok := h.answers[m.ID]; ok && a.holds(s) {
			all = append(all, object.Holder{ID: m.ID, Incarnation: m.Incarnation})
		}
	}
	return all
}

func contains(all []object.Holder, id uint64) bool {
	return slices.ContainsFunc(all, func(h object.Holder) bool { return h.ID == id })
}

// proposeHold proposes the command hold. One that is lost is proposed again after an election timeout.
func (o *groupObjects) proposeHold(id object.ID, all []object.Holder) {
	if len(all) == 0 {
		return
	}
	data := object.AppendHolding(make([]byte, session.Room, 256), object.Holding{ID: id, Holders: all[:min(len(all), object.MaxHolders)]})
	var head session.Header
	head.Stamp, head.HasStamp = o.group.stamp(true)
	o.holders.proposed[id] = o.group.core.at.ticks
	if _, err := o.group.proposeEntries([]raftpb.Entry{{Data: head.Put(data)}}); err != nil {
		delete(o.holders.proposed, id)
		o.holders.next = o.group.core.at.ticks + 1
	}
}

// passTime says the log time when a set has expired: a group without commands has no other entries that say
// it. One that is lost is repeated.
func (o *groupObjects) passTime() {
	g, h := o.group, &o.holders
	o.mu.Lock()
	next, applied := o.table.Next(), o.table.Now()
	o.mu.Unlock()
	now := g.machine.time.estimate(g.now())
	switch {
	case next == math.MaxInt64:
		return
	case next > now:
		h.next = min(h.next, g.core.at.ticks+ticksIn(next-now, g.host.config)+1)
		return
	}
	again := int64(g.host.config.electionTicks())
	if h.passedFor == next && h.passedAfter == applied && g.core.at.ticks-h.passedAt < again {
		h.next = min(h.next, h.passedAt+again)
		return
	}
	var head session.Header
	h.next = min(h.next, g.core.at.ticks+1)
	if head.Stamp, head.HasStamp = g.stamp(true); !head.HasStamp {
		return
	}
	if _, err := g.proposeEntries([]raftpb.Entry{{Data: head.Put(object.AppendPass(make([]byte, session.Room, session.Room+1)))}}); err == nil {
		h.passedFor, h.passedAfter, h.passedAt = next, applied, g.core.at.ticks
	}
}

// sendPast sends the latest snapshot to a member whose machine waits at an entry for a set that no member
// has, or takes one that is beyond the entry.
func (g *Group) sendPast(to, lost uint64) {
	if p := g.snapshots.Latest(); p != nil && p.ID.Index >= lost {
		g.snapshots.Send(to)
		return
	}
	g.snapshots.Want()
}

// lackedBy returns a set that commands may name and that a member has said lately it lacks, or nil. A member
// that has said nothing may lack some, too: it then does not obey (dropUncounted).
func (o *groupObjects) lackedBy(id uint64) *object.Set {
	if !o.on {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	r := o.holders.answers[id]
	if o.group.core.at.ticks-r.at > 2*int64(o.group.host.config.electionTicks()) {
		return nil
	}
	for _, missing := range r.missing {
		if s, is := o.table.Get(missing); is && s.Held > 0 {
			return &s
		}
	}
	return nil
}

// holdsAll reports whether a member holds every set that may be named, as far as this leader knows.
func (g *Group) holdsAll(id uint64) bool {
	o := &g.machine.objects
	if !o.on {
		return true
	}
	o.holders.wanted = g.core.at.ticks + 2*int64(g.host.config.electionTicks())
	o.wake()
	r, ok := o.holders.answers[id]
	return ok && o.firstUnheldBy(func(s *object.Set) bool { return r.holds(s) }) == nil
}

// firstUnheldBy returns a set that may be named, now or when a hold that was proposed is applied, and for
// which holds returns false; or nil.
func (o *groupObjects) firstUnheldBy(holds func(*object.Set) bool) *object.Set {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range o.table.All() {
		if _, proposed := o.holders.proposed[s.ID]; (s.Held > 0 || proposed) && !holds(&s) {
			return &s
		}
	}
	return nil
}

// objectsWait says which set would have no quorum of holders after a stage of a plan, or "".
func (g *Group) objectsWait(r *membership.Roster, steps []membership.Step) string {
	o := &g.machine.objects
	if !o.on {
		return ""
	}
	if at := g.machine.apply.position().Index; at < o.holders.began {
		return fmt.Sprintf("this leader has applied entry %d of %d, and does not know which objects may be named", at, o.holders.began)
	}
	rosters, err := r.Play([][]membership.Step{steps})
	if err != nil {
		return err.Error()
	}
	o.holders.wanted = g.core.at.ticks + 2*int64(g.host.config.electionTicks())
	o.wake()
	for _, next := range rosters {
		s := o.firstUnheldBy(func(s *object.Set) bool {
			return next.Spare(func(id uint64) bool {
				a, ok := o.holders.answers[id]
				return ok && a.holds(s)
			}) >= 0
		})
		if s != nil {
			return fmt.Sprintf("object %v is not known to be held by a quorum of voters %v", s.ID, next.Conf.Voters)
		}
	}
	return ""
}
