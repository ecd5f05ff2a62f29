package reads

import "time"

// Round asks the questions of a group, and answers those of other members. The group's turn owns it.
type Round struct {
	queue *Queue

	leader, term uint64 // of the latest question
	number       uint64 // of the latest question; 0: none
	underWay     bool   // it is not answered
	repeats      bool   // this leader's core has not taken it
	askedAt      int64  // the tick
	sent         [8]question
	waiting      []Record // questions of other members, for the next round, one of each at most
	answering    []Record // and those that the present round answers
}

// question is one of the latest questions, and when it was asked, by the boot clock.
type question struct {
	number uint64
	at     time.Duration
}

// Turn is what a turn knows of its core.
type Turn struct {
	Leader, Term uint64
	Tick         int64
	Holds        bool // the core may be forgotten, so it is asked nothing
}

// NewRound returns the round of a queue.
func NewRound(q *Queue) Round { return Round{queue: q} }

// Step is the part of a turn: it takes questions and answers of other members, and asks the next question, if
// it is time. A question of a host counts only if isOther reports that it is another member. Step reports
// whether the next turn must call it again.
func (r *Round) Step(t Turn, isOther func(id uint64) bool) (again bool) {
	questions, answers := r.queue.dequeue()
	for _, a := range answers {
		r.confirm(a.Number, a.Index)
	}
	if r.leader != t.Leader || r.term != t.Term {
		r.leader, r.term, r.underWay, r.answering = t.Leader, t.Term, false, nil
	}
	if !r.leads() {
		r.waiting = nil // only a leader answers
	}
	for _, q := range questions {
		if r.leads() && isOther(q.From) {
			r.waiting = keepLatest(r.waiting, q)
		}
	}
	if r.mayAsk(t) && r.wants() {
		r.ask(t.Tick)
	}
	return r.underWay || r.wants()
}

func (r *Round) leads() bool { return r.leader == r.queue.settings.Self }

// ask asks the next question: this leader's quorum, or the leader.
func (r *Round) ask(tick int64) {
	q := r.queue
	q.refresh.Store(false) // before the reads are taken: one that comes later wants another question
	r.number = q.wiring.Number()
	r.underWay, r.repeats, r.askedAt = true, false, tick
	r.sent[r.number%uint64(len(r.sent))] = question{r.number, q.wiring.Boottime()}
	q.cover(r.number)
	if !r.leads() {
		q.wiring.Send(r.leader, Record{Group: q.settings.Group, Life: q.settings.Life, Number: r.number}.Question())
		return
	}
	r.answering, r.waiting = r.waiting, nil
	q.counts.rounds.Add(1)
	r.repeats = !q.wiring.AskQuorum(r.number)
}

// wants reports whether a question should be asked.
func (r *Round) wants() bool { return len(r.waiting) > 0 || r.queue.wait() }

// mayAsk reports whether the next question may be asked: a leader is known, and no question is under way or
// it is time to repeat it.
func (r *Round) mayAsk(t Turn) bool {
	switch {
	case t.Holds || r.leader == 0:
		return false
	case r.leads() && !r.repeats:
		return !r.underWay // the core repeats its round by itself
	}
	return !r.underWay || t.Tick >= r.askedAt+r.queue.settings.Interval
}

// Due returns the tick at which a question must be repeated, if there is one.
func (r *Round) Due(now int64) (tick int64, is bool) {
	if r.underWay && r.leader != 0 && (!r.leads() || r.repeats) && r.wants() {
		return max(r.askedAt+r.queue.settings.Interval, now+1), true
	}
	return 0, false
}

// Left reports whether another turn must ask a question now.
func (r *Round) Left(t Turn) bool { return r.leader == t.Leader && r.mayAsk(t) && r.wants() }

// confirm takes the answer to a question: the reads through number may rely on index.
func (r *Round) confirm(number, index uint64) {
	if number > r.number {
		return // it was never asked
	}
	if number == r.number {
		r.underWay = false
	}
	asked := r.sent[number%uint64(len(r.sent))]
	r.queue.confirm(number, index, asked.at, asked.number == number)
}

// Confirmed takes an answer of this leader's quorum, in a term. promise is that of the members, under which
// the leader may have a lease; 0: it may have none.
func (r *Round) Confirmed(number, index, term uint64, promise time.Duration) {
	r.confirm(number, index)
	if asked := r.sent[number%uint64(len(r.sent))]; asked.number == number && r.term == term && promise > 0 {
		r.queue.lease.Store(&leaseState{term: term, sent: asked.at, promise: promise})
	}
	for _, q := range r.answering {
		q.Index = index
		r.queue.wiring.Send(q.From, q.Answer())
	}
	r.answering = nil
}

// Dropped says that the core of this leader gives up a round.
func (r *Round) Dropped() { r.repeats = true }

// BeforeReady publishes, before the messages and answers of a Ready leave, what reads must know by then: the
// commit index, and the end of the lease.
func (r *Round) BeforeReady(commit, term uint64, mayLease bool) {
	q := r.queue
	q.committed.Store(commit)
	if s := q.lease.Load(); s != nil && (s.term != term || !mayLease) {
		q.lease.Store(nil)
	}
}
