package plans

import (
	"slices"

	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/internal/lock"
)

// Requests are those that wait for a turn of a group. The zero value has none. Any goroutine may put, and
// wakes the group after it.
type Requests struct {
	mu  lock.Mutex
	all []Request
}

// maxRequests bounds how many wait. Hosts ask again.
const maxRequests = 16

// Enqueue leaves a request for the next turn. A request that is repeated takes the place of the first one.
// A host may ask to begin a plan and to cancel it: each of the two counts.
func (p *Requests) Enqueue(q Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.IndexFunc(p.all, func(other Request) bool {
		return other.From == q.From && other.ID == q.ID && other.Data[0] == q.Data[0]
	}); i >= 0 {
		p.all[i] = q
		return
	}
	if len(p.all) < maxRequests {
		p.all = append(p.all, q)
	}
}

// Dequeue returns the requests that wait, and leaves none.
func (p *Requests) Dequeue() (all []Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all, p.all = p.all, nil
	return all
}

// IsLate reports whether a leader need not answer a request to begin or to end a plan. The asker applies what
// it asks for, or what has overtaken it.
func (q Request) IsLate(r *membership.Roster) bool {
	if _, ended := r.HowEnded(q.ID); ended {
		return true
	}
	if q.Data[0] != entry.PlanKind {
		return false
	}
	// A request for an earlier roster may be a late copy of one that has begun a plan, which has ended since.
	// The asker applies what has changed the members; only there is it seen whether this plan has.
	p, err := membership.DecodePlan(q.Data[1:])
	return r.Plan != nil && r.Plan.ID == q.ID || err == nil && p.Base < r.Changed
}

// Reject says why a leader does not propose what a request to begin or to end a plan asks for, or returns
// nil.
func (q Request) Reject(r *membership.Roster, hosts Hosts) error {
	if q.Data[0] == entry.CancelKind {
		_, err := r.Cancel(r.Version+1, q.ID)
		return err
	}
	p, err := membership.DecodePlan(q.Data[1:])
	if err != nil {
		return err
	}
	if err := p.RejectAsked(); err != nil {
		return err
	}
	if _, err := r.Begin(r.Version+1, p); err != nil {
		return err
	}
	return RejectStages(r, p, hosts)
}
