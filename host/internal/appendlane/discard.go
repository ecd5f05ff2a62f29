package appendlane

// A member whose disk is full may have to forget the entries that it could not write (host/forget.go says
// when and why). Its group asks, with nothing more to say. The lane writes the newest term and vote, drops
// what was refused and everything behind it, and answers after all that it answered before. If there is
// space again, or not even enough for term and vote, it keeps everything.

// Outcome is what the lane has done with the entries that a full disk refused.
type Outcome int

// The outcomes.
const (
	NotAsked Outcome = iota
	Forgotten
	Kept
)

// Discard makes the lane forget what a full disk refused. Client.Discarded gets the outcome.
func (l *Lane) Discard(q *Queue) {
	q.forget.Store(true)
	l.Enqueue(q)
}

// discard is the lane's part. It reports whether it wrote.
func (l *Lane) discard(q *Queue) (wrote bool) {
	switch {
	case q.inRound:
		return false // it waits for its flush
	case !q.Full.Load():
		q.answerDiscard(Kept)
		if !q.Empty() {
			l.Enqueue(q) // what was taken off the ring for the answer has work, too
		}
		return false
	case l.writeHardState(q, true):
		return true
	case l.Failed():
		return false
	}
	if !q.DropAll(q.durable.hs) {
		q.answerDiscard(Kept)
		return false
	}
	q.joint.reset()
	q.hard = q.durable.hs
	l.unpark(q)
	q.answerDiscard(Forgotten)
	return false
}

func (q *Queue) answerDiscard(o Outcome) {
	q.forget.Store(false)
	q.client.Discarded(o)
}
