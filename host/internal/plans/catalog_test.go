package plans_test

import (
	"encoding/hex"
	"testing"

	"github.com/millrace/millrace/host/internal/plans"
	"github.com/millrace/millrace/host/membership"
)

// A catalog that is full forgets the oldest plan that was not begun. A plan is begun once, and is found by
// the beginning of its id.
func TestCatalog(t *testing.T) {
	var c plans.Catalog
	started := 0
	text := func(i int) string { return hex.EncodeToString([]byte{byte(i), 1, 2, 3}) }
	for i := range plans.MaxProposals + 1 {
		c.Keep(&plans.Proposal{ID: membership.PlanID{byte(i), 1, 2, 3}, Start: func() *plans.Execution { started++; return new(plans.Execution) }})
		if i == 0 {
			p, _ := c.Find(nil, text(0))
			c.Begin(p)
			c.Begin(p)
		}
	}
	if _, begun := c.Find(nil, text(0)); begun == nil || started != 1 {
		t.Errorf("the plan that was begun is %v, and was begun %d times", begun, started)
	}
	if p, _ := c.Find(nil, text(1)); p != nil {
		t.Errorf("the oldest plan that was not begun is still there")
	}
	if p, _ := c.Find(nil, text(2)); p == nil {
		t.Errorf("the second oldest is gone")
	}
	if p, _ := c.Find(nil, text(2)[:6]); p != nil {
		t.Errorf("6 digits name plan %v", p.ID)
	}
}
