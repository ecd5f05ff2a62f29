package host_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/batches"
	"github.com/millrace/millrace/internal/scratch"
)

// Real hosts under each rule, with more clients than a batch has: nothing that is held back stays, also when
// the leader changes while it is.
func TestClusterHoldsBatches(t *testing.T) {
	for _, rule := range []batches.Rule{
		batches.Depth(1), batches.Halfway{}, batches.Spaced{By: time.Millisecond, Named: "spaced"}, batches.Window(1), batches.Stages{},
	} {
		t.Run(rule.Name(), func(t *testing.T) {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			c, err := startClusterWith(3, scratch.Dir(t), host.WithBatches(rule))
			t.Cleanup(func() {
				for _, h := range c.hosts {
					h.Close(context.Background())
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			const clients, each = 16, 20
			ctx := deadline(t)
			var wg sync.WaitGroup
			for k := range clients {
				wg.Go(func() {
					for i := range each {
						if k == 0 && i == each/2 {
							c.hosts[1].Group(theGroup).Campaign()
						}
						if _, err := c.propose(ctx, fmt.Sprintf("%d/%d", k, i)); err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			held := uint64(0)
			for _, h := range c.hosts {
				m := h.Group(theGroup).Metrics().Batches
				held += m.Held
			}
			if _, fixed := rule.(batches.Depth); fixed && held == 0 { // the others depend on what they measure
				t.Errorf("no batch was held back")
			}
			for _, j := range c.journals {
				j.waitFor(t, clients*each)
			}
			c.close(t)
			checkSame(t, c.journals, clients*each)
		})
	}
}
