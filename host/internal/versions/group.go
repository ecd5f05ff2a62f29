package versions

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/internal/lock"
)

// Group is what a member knows of the versions that the members of one group can do. The zero value knows
// nothing. Any goroutine may call its methods.
type Group struct {
	mu      lock.Mutex
	answers map[uint64]answer // by member
	number  uint64            // of the last question
	asked   int64             // its tick, plus one; 0: there was none
	wish    wish
}

// answer is the last one of a member.
type answer struct {
	number uint64
	said   Said
}

// wish is an upgrade that a caller has asked this member for. It leads.
type wish struct {
	to    uint32
	first uint64 // answers to this question and to later ones count
	began int64  // tick
	last  int64  // tick at which it was asked for last
}

// Ask returns the number of a question that is due: the last one was asked long enough ago.
func (g *Group) Ask(now, pace int64) (number uint64, due bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.asked > 0 && now+1-g.asked < pace {
		return 0, false
	}
	g.asked = now + 1
	g.number++
	return g.number, true
}

// Take takes the answer of a member, unless it is older than another one, or answers nothing.
func (g *Group) Take(from uint64, r Record) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if r.Number > g.number || r.Number == 0 || r.Number < g.answers[from].number {
		return
	}
	if g.answers == nil {
		g.answers = map[uint64]answer{}
	}
	g.answers[from] = answer{r.Number, r.Said}
}

// Of returns what a member has said last.
func (g *Group) Of(id uint64) (s Said, known bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	a, known := g.answers[id]
	return a.said, known
}

// Forget forgets what a member has said, so that its next answer is a new one. An answer that is on its way
// counts as well.
func (g *Group) Forget(id uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.answers, id)
}

// Keep forgets what others than these members have said.
func (g *Group) Keep(ids []uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for id := range g.answers {
		if !slices.Contains(ids, id) {
			delete(g.answers, id)
		}
	}
}

// Upgrade is a wish for an upgrade, with what decides it.
type Upgrade struct {
	To, From uint32 // the version of the group is From
	Self     uint64
	Can      statemachine.Versions // this member, which leads
	Members  []uint64              // voters and learners, with this one
	Now      int64                 // tick
	Patience int64                 // how long members may take to answer, in ticks
}

// ErrWaits: members may still answer.
var ErrWaits = errors.New("members may still say which versions they can do")

// Decide returns nil if every member can do a version, and ErrWaits if some have not answered yet. Otherwise
// it says why the version stays, and names each member that cannot, or is silent. It is called again as long
// as a caller waits.
func (g *Group) Decide(u Upgrade) error {
	if u.To < u.From {
		return fmt.Errorf("%w: the group is at version %d of its state machine, and never goes back, to %d", membership.ErrNotUpgraded, u.From, u.To)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if w := &g.wish; w.to != u.To || w.first == 0 || u.Now-w.last > u.Patience {
		*w = wish{to: u.To, first: g.number + 1, began: u.Now}
		g.asked = 0 // at once
	}
	g.wish.last = u.Now
	var cannot, silent []string
	for _, id := range u.Members {
		a := g.answers[id]
		switch {
		case id == u.Self:
			a.said.Can = u.Can
		case a.number < g.wish.first:
			silent = append(silent, fmt.Sprintf("host %d", id))
			continue
		}
		if !a.said.Can.Can(u.To) {
			cannot = append(cannot, fmt.Sprintf("the program of host %d can do %v", id, a.said.Can))
		}
	}
	isLate := u.Now-g.wish.began > u.Patience
	if silent != nil && isLate {
		cannot = append(cannot, fmt.Sprintf("%s did not say what it can do: it is not there, or its program knows no versions", strings.Join(silent, ", ")))
	}
	switch {
	case cannot != nil && (isLate || silent == nil):
		g.wish = wish{}
		return fmt.Errorf("%w: every member must be able to do version %d of the state machine, and %s; the group stays at version %d", membership.ErrNotUpgraded, u.To, strings.Join(cannot, ", and "), u.From)
	case silent != nil:
		return ErrWaits
	}
	g.wish = wish{} // another attempt asks again
	return nil
}
