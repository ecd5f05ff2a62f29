package objects

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/host/internal/turn"
	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/host/session"
	"github.com/millrace/millrace/object"
	"github.com/millrace/millrace/raft"
)

// Which members hold which sets. Each knows it of itself, and tells the leader (record.go). The leader
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
	answers                map[uint64]Record
	proposed               map[object.ID]int64 // a hold was proposed in this term, and when
	said                   []byte              // a follower: the last answer to this leader
	saidTo                 uint64
	saidLacking            bool // and it named sets that are missing

	// Guarded by Keeper.mu: what came since the last turn, the latest of each host.
	questions, records []Record
}

// Heard takes a question or an answer of another host. Any goroutine may call it.
func (k *Keeper) Heard(r Record, isQuestion bool) {
	k.mu.Lock()
	to := &k.holders.records
	if isQuestion {
		to = &k.holders.questions
	}
	*to = append(slices.DeleteFunc(*to, func(other Record) bool { return other.From == r.From }), r)
	k.mu.Unlock()
	k.wake()
}

// Forget drops what a member has answered: it comes with another directory. It is part of a turn. k may be
// nil.
func (k *Keeper) Forget(id uint64) {
	if k != nil {
		delete(k.holders.answers, id)
	}
}

// Step does what there is to do about objects, and reports whether the next turn must do more. It is part of
// a turn, whose core is as st says.
func (k *Keeper) Step(st raft.BasicStatus) (again bool) {
	k.removeEnded()
	h := &k.holders
	if h.term != st.Term || h.leader != st.Lead { // a candidate looks too, and may be elected then
		h.term, h.leader, h.began, h.said, h.saidLacking = st.Term, st.Lead, st.LastIndex, nil, false
		h.answers, h.proposed = map[uint64]Record{}, map[object.ID]int64{}
		k.work.Store(true)
	}
	if !k.work.Swap(false) && k.wiring.Now() < k.holders.next {
		return k.goes.Load() != 0 || k.holders.next != turn.Never
	}
	k.holders.next = turn.Never
	if !k.beginFetches() {
		k.holders.next = k.wiring.Now() + k.Heartbeat
	}
	k.holders.next = min(k.holders.next, k.removeAgain())
	k.mu.Lock()
	questions, records, stops := h.questions, h.records, k.stops
	h.questions, h.records, k.stops = nil, nil, nil
	k.mu.Unlock()
	for _, id := range stops {
		k.fetches.End(k, id)
	}
	if st.RaftState == raft.StateLeader {
		for _, r := range records {
			if r.at = k.wiring.Now(); r.term == st.Term {
				h.answers[r.From] = r
			}
		}
		k.lead(st)
		return k.goes.Load() != 0 || k.holders.next != turn.Never
	}
	k.tell(st, questions)
	return k.goes.Load() != 0 || k.holders.next != turn.Never
}

// Due returns the tick at which the turn must call Step. It is part of a turn. k may be nil.
func (k *Keeper) Due() int64 {
	if k == nil {
		return turn.Never
	}
	return k.holders.next
}

// beginFetches begins to fetch what this member lacks, as far as the host has slots. It reports whether
// everything is on its way. Sets with equal contents are fetched one after the other.
func (k *Keeper) beginFetches() (all bool) {
	all = true
	begun := map[[32]byte]bool{}
	for _, s := range k.inOrder(k.lacking) {
		if begun[s.Hash] {
			all = false
			continue
		}
		begun[s.Hash] = true
		sources := []uint64{s.Uploader}
		for _, h := range s.Holders {
			sources = append(sources, h.ID)
		}
		sources = slices.DeleteFunc(sources, func(id uint64) bool { return id == k.Self })
		if !k.fetches.Begin(k, Object{ID: s.ID, Bytes: s.Bytes, ManifestBytes: s.Manifest, Hash: s.Hash, Sources: sources}) {
			return false
		}
	}
	return all
}

// inOrder returns sets in the order of their opening.
func (k *Keeper) inOrder(of map[object.ID]object.Set) []object.Set {
	k.mu.Lock()
	defer k.mu.Unlock()
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
func (k *Keeper) own(st raft.BasicStatus) Record {
	r := Record{From: k.Self, Group: k.Group, term: st.Term, through: min(k.wiring.Applied(), st.Durable), lost: k.wiring.UnavailableAt()}
	for i, s := range k.inOrder(k.lacking) { // after the position, which is of no later moment
		if i == control.MaxMissing { // a member that lacks more says less
			r.through = min(r.through, s.Opened-1)
			break
		}
		r.missing = append(r.missing, s.ID)
	}
	return r
}

// holds reports whether an answer says that the member holds a set.
func (r *Record) holds(s *object.Set) bool {
	return s.Opened <= r.through && !slices.Contains(r.missing, s.ID)
}

// tell answers the leader's question, and tells it what has changed.
func (k *Keeper) tell(st raft.BasicStatus, questions []Record) {
	h := &k.holders
	if st.Lead == raft.None {
		return
	}
	r := k.own(st)
	news := r.Encode(control.ObjectAnswer)
	asked := false
	for _, q := range questions {
		if q.From == st.Lead && q.term == st.Term {
			asked, r.number = true, q.number
		}
	}
	k.mu.Lock()
	open := len(k.unheld) > 0
	k.mu.Unlock()
	if !asked && (h.saidTo == st.Lead && bytes.Equal(h.said, news) || !open && r.lost == 0 && len(r.missing) == 0 && !h.saidLacking) {
		return
	}
	if k.wiring.Send(st.Lead, r.Encode(control.ObjectAnswer)) {
		h.said, h.saidTo, h.saidLacking = news, st.Lead, len(r.missing) > 0
	}
	if r.lost > 0 || len(r.missing) > 0 { // said again as long as it is so: the leader believes it for a while only
		h.next = min(h.next, k.wiring.Now()+k.Election)
		h.said = nil
	}
}

// lead proposes holds, and asks for what it must know.
func (k *Keeper) lead(st raft.BasicStatus) {
	h := &k.holders
	roster := k.wiring.Roster()
	if roster == nil {
		return
	}
	unheld := k.inOrder(k.unheld)
	h.forgetApplied(unheld)
	h.answers[k.Self] = k.own(st)
	for _, s := range unheld {
		if at, is := h.proposed[s.ID]; is && k.wiring.Now()-at < k.Election {
			continue
		}
		if all := h.of(roster, &s); roster.Spare(func(id uint64) bool { return contains(all, id) }) >= 0 {
			k.proposeHold(s.ID, all)
		}
	}
	for id, r := range h.answers {
		if r.lost > 0 && id != k.Self {
			k.wiring.SendPast(id, r.lost)
			r.lost = 0
			h.answers[id] = r
		}
	}
	k.passTime()
	period := int64(2 * k.Heartbeat)
	if len(unheld) == 0 && k.wiring.Now() > h.wanted {
		return
	}
	if k.wiring.Now()-h.askedAt >= period || h.number == 0 {
		k.ask(st)
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
func (k *Keeper) ask(st raft.BasicStatus) {
	h := &k.holders
	h.number++
	h.askedAt = k.wiring.Now()
	q := Record{Group: k.Group, term: st.Term, number: h.number}
	body := q.Encode(control.ObjectQuestion)
	for _, id := range k.wiring.Members() {
		if id != k.Self {
			k.wiring.Send(id, body)
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
func (k *Keeper) proposeHold(id object.ID, all []object.Holder) {
	if len(all) == 0 {
		return
	}
	data := object.AppendHolding(make([]byte, session.Room, 256), object.Holding{ID: id, Holders: all[:min(len(all), object.MaxHolders)]})
	var head session.Header
	head.Stamp, head.HasStamp = k.wiring.Stamp()
	k.holders.proposed[id] = k.wiring.Now()
	if k.wiring.Propose(head.Put(data)) != nil {
		delete(k.holders.proposed, id)
		k.holders.next = k.wiring.Now() + 1
	}
}

// passTime says the log time when a set has expired: a group without commands has no other entries that say
// it. One that is lost is repeated.
func (k *Keeper) passTime() {
	h := &k.holders
	k.mu.Lock()
	next, applied := k.table.Next(), k.table.Now()
	k.mu.Unlock()
	now := k.wiring.LogTime()
	switch {
	case next == math.MaxInt64:
		return
	case next > now:
		h.next = min(h.next, k.wiring.Now()+k.Ticks(next-now)+1)
		return
	}
	again := k.Election
	if h.passedFor == next && h.passedAfter == applied && k.wiring.Now()-h.passedAt < again {
		h.next = min(h.next, h.passedAt+again)
		return
	}
	var head session.Header
	h.next = min(h.next, k.wiring.Now()+1)
	if head.Stamp, head.HasStamp = k.wiring.Stamp(); !head.HasStamp {
		return
	}
	if k.wiring.Propose(head.Put(object.AppendPass(make([]byte, session.Room, session.Room+1)))) == nil {
		h.passedFor, h.passedAfter, h.passedAt = next, applied, k.wiring.Now()
	}
}

// LackedBy returns a set that commands may name and that a member has said lately it lacks, or nil. A member
// that has said nothing may lack some, too: it then does not obey. It is part of a turn. k may be nil.
func (k *Keeper) LackedBy(id uint64) *object.Set {
	if k == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	r := k.holders.answers[id]
	if k.wiring.Now()-r.at > 2*k.Election {
		return nil
	}
	for _, missing := range r.missing {
		if s, is := k.table.Get(missing); is && s.Held > 0 {
			return &s
		}
	}
	return nil
}

// AreHeldBy reports whether a member holds every set that may be named, as far as this leader knows. It is
// part of a turn. k may be nil.
func (k *Keeper) AreHeldBy(id uint64) bool {
	if k == nil {
		return true
	}
	k.holders.wanted = k.wiring.Now() + 2*k.Election
	k.wake()
	r, ok := k.holders.answers[id]
	return ok && k.firstUnheldBy(func(s *object.Set) bool { return r.holds(s) }) == nil
}

// firstUnheldBy returns a set that may be named, now or when a hold that was proposed is applied, and for
// which holds returns false; or nil.
func (k *Keeper) firstUnheldBy(holds func(*object.Set) bool) *object.Set {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range k.table.All() {
		if _, proposed := k.holders.proposed[s.ID]; (s.Held > 0 || proposed) && !holds(&s) {
			return &s
		}
	}
	return nil
}

// WaitWith says which set would have no quorum of holders after a stage of a plan, or "". It is part of a
// turn. k may be nil.
func (k *Keeper) WaitWith(r *membership.Roster, steps []membership.Step) string {
	if k == nil {
		return ""
	}
	if at := k.wiring.Applied(); at < k.holders.began {
		return fmt.Sprintf("this leader has applied entry %d of %d, and does not know which objects may be named", at, k.holders.began)
	}
	rosters, err := r.Play([][]membership.Step{steps})
	if err != nil {
		return err.Error()
	}
	k.holders.wanted = k.wiring.Now() + 2*k.Election
	k.wake()
	for _, next := range rosters {
		s := k.firstUnheldBy(func(s *object.Set) bool {
			return next.Spare(func(id uint64) bool {
				a, ok := k.holders.answers[id]
				return ok && a.holds(s)
			}) >= 0
		})
		if s != nil {
			return fmt.Sprintf("object %v is not known to be held by a quorum of voters %v", s.ID, next.Conf.Voters)
		}
	}
	return ""
}
