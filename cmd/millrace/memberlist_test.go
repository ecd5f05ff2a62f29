package main

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/host/admin"
	"github.com/millrace/millrace/wal/inspect"
)

// A host that does not know which members are there says so, and whom to ask: it never says "no".
func TestMembersListNamesWhomToAsk(t *testing.T) {
	m := memberList{admin.Members{Host: 2, Group: 1, Leader: 3, Founded: true, Tolerates: -1,
		Members: []admin.Member{{ID: 1, Role: "voter"}, {ID: 2, Role: "voter", Heard: true}, {ID: 3, Role: "voter", Heard: true}}}}
	for _, row := range []struct {
		view, leader uint64
		heard, says  string
	}{
		{0, 3, " unknown ", "how many more voters may fail is unknown to host 2 (host 3 leads: ask there)"},
		{0, 0, " unknown ", "how many more voters may fail is unknown to host 2 (no leader is known)"},
		{3, 3, " no ", "the voters that were heard lately are no quorum"},
	} {
		m.View, m.Leader = row.view, row.leader
		var b strings.Builder
		if err := m.WriteText(&b); err != nil {
			t.Fatal(err)
		}
		if line := strings.Split(b.String(), "\n")[2]; !strings.Contains(line, row.heard) || !strings.Contains(b.String(), row.says) {
			t.Errorf("view %d, leader %d: want %q and %q in\n%s", row.view, row.leader, row.heard, row.says, b.String())
		}
	}
}

// JSON has the number of the cluster once, as a string: jq and JavaScript would round it.
func TestMemberListJSON(t *testing.T) {
	var b strings.Builder
	if err := inspect.WriteJSON(&b, &memberList{admin.Members{Cluster: 17684268089083619882, Group: 7}}); err != nil {
		t.Fatal(err)
	}
	if strings.Count(b.String(), `"cluster"`) != 1 || !strings.Contains(b.String(), `"cluster": "17684268089083619882"`) || !strings.Contains(b.String(), `"group": 7`) {
		t.Error(b.String())
	}
}
