package plans

import (
	"encoding/hex"
	"slices"
	"strings"

	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/internal/lock"
)

// Catalog has the plans that programs have made over the admin socket: an operator looks at a plan, and then
// names it. They are in memory only, and the oldest go; a plan that was begun is in the log. An execution
// belongs to the host and not to the connection, so it goes on when the program is interrupted.
type Catalog struct {
	mu  lock.Mutex
	all []*Proposal // the latest last
}

// MaxProposals bounds how many plans a catalog keeps.
const MaxProposals = 16

// Proposal is a plan that was made and may be begun.
type Proposal struct {
	ID     membership.PlanID
	Member Member            // for which it was made
	Start  func() *Execution // begins it

	execution *Execution // nil: it was not begun
}

// Keep keeps a plan. The oldest that was not begun goes, or the oldest.
func (c *Catalog) Keep(p *Proposal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.all) >= MaxProposals {
		at := max(0, slices.IndexFunc(c.all, func(p *Proposal) bool { return p.execution == nil }))
		c.all = slices.Delete(c.all, at, at+1)
	}
	c.all = append(c.all, p)
}

// Find returns the plan with an id, of which the beginning is enough if it is long and names one plan only.
// It also returns the execution, or nil if the plan was not begun.
func (c *Catalog) Find(of Member, id string) (p *Proposal, begun *Execution) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.all {
		if p.Member == of && IsNamed(p.ID, id) {
			return p, p.execution
		}
	}
	return nil, nil
}

// Begin begins a plan if that was not yet.
func (c *Catalog) Begin(p *Proposal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.execution == nil {
		p.execution = p.Start()
	}
}

// IsNamed reports whether text names a plan: its id, or the 8 digits that logs show of it.
func IsNamed(id membership.PlanID, text string) bool {
	whole := hex.EncodeToString(id[:])
	return len(text) >= 8 && strings.HasPrefix(whole, text)
}
