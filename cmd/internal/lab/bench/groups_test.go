package bench

import (
	"testing"

	"github.com/millrace/millrace/cmd/internal/lab/load"
)

// Clients of several groups: each write is once in the group of its client, on every host, and the hosts
// count what they do for all groups together.
func TestSeveralGroups(t *testing.T) {
	const groups, clients = 3, 12
	target := openBrief(t, load.Setup{Pipeline: GroupsName, Groups: groups, InFlight: clients})
	runWindows(t, target, load.Closed{Clients: clients}, &load.Ledger{}, clients, nil)
	for of, machines := range target.(*cluster).machines {
		for host, m := range machines {
			if m.State().Entries == 0 {
				t.Errorf("host %d has no command of group %d", host+1, of+1)
			}
		}
	}
	if c := target.Counters(); c.Turns == 0 || c.Frames == 0 || c.LogBytes < 3*64 || c.SentBytes < 2*64 {
		t.Errorf("counters %+v", c)
	}
}
