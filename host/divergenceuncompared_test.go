package host

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/host/internal/divergence"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/transport"
)

// A leader warns of each member that does not sum up the results or the state as it does, with what both
// do, and of no member of another version. The warning ends when the member is started again.
func TestMembersThatAreNotCompared(t *testing.T) {
	for _, row := range []struct {
		name       string
		ours       statemachine.CommandOptions
		form       string // of host 2
		states     bool
		version    string
		says, then string // "": nothing
	}{
		{name: "the same", ours: statemachine.CommandOptions{ResultForm: "f"}, form: "f"},
		{name: "nothing", ours: statemachine.CommandOptions{}},
		{name: "another version", ours: statemachine.CommandOptions{ResultForm: "f", Version: "1"}, form: "g", states: true, version: "2"},
		{
			name: "another form", ours: statemachine.CommandOptions{ResultForm: "f", Version: "1"}, form: "g", version: "1",
			says: `the form of the results is "g" on host 2 and "f" on host 1, so that a difference between the two is not noticed`,
			then: "give all members the same type of results, Machine.Results and Machine.Unwatched (CommandOptions.ResultForm and KeepResults), or another Version to those that may differ",
		},
		{
			name: "no results", ours: statemachine.CommandOptions{KeepResults: true},
			says: `the form of the results is none on host 2 and "kept" on host 1`,
		},
		{
			name: "the leader has no results", ours: statemachine.CommandOptions{}, form: "f",
			says: `the form of the results is "f" on host 2 and none on host 1`,
		},
		{
			name: "no digest", ours: statemachine.CommandOptions{ResultForm: "f", Digest: func() uint64 { return 7 }}, form: "f",
			says: "host 1 has a digest of the state and host 2 has none, so that a difference between the two is not noticed",
			then: "give all members the same Machine.Digest (CommandOptions.Digest), or another Version to those that may differ",
		},
		{
			name: "neither", ours: statemachine.CommandOptions{}, form: "f", states: true,
			says: `and none on host 1, host 2 has a digest of the state and host 1 has none`,
			then: "KeepResults) and the same Machine.Digest (",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			l := openTestHost(t, 3)
			defer func() { _ = l.Close(over()) }()
			g, err := l.OpenGroup(t.Context(), GroupConfig{ID: 2}, Commands(&listMachine{}, row.ours))
			if err != nil {
				t.Fatal(err)
			}
			l.manual.runIdle()
			l.leadGroup(g)
			g.machine.divergence.Record(divergence.Checkpoint{Index: 7, Results: 4, HasResults: true, Digest: 4, HasDigest: true})
			report := func(w divergence.Watch) {
				r := g.machine.divergence.Report()
				r.Watch, r.Version = w, row.version
				r.Checkpoints = []divergence.Checkpoint{{Index: 8, Results: 5, HasResults: true, Digest: 5, HasDigest: true}}
				if err := l.Host.control(2, transport.Control, r.Encode()); err != nil {
					t.Fatal(err)
				}
			}
			report(divergence.Watch{Form: row.form, States: row.states})
			d := g.Explain()
			if d.Has(diagnosis.CodeDiverged) || d.Has(diagnosis.CodeNotCompared) != (row.says != "") {
				t.Fatal(d)
			}
			if row.says == "" {
				return
			}
			if w := d.Warnings[0]; w.Member != 2 || !strings.Contains(w.Evidence, row.says) || !strings.Contains(w.Fix, row.then) {
				t.Errorf("%v\nwant %s; %s", d, row.says, row.then)
			}
			l.comesInAnotherLife(t, 2)
			if d := g.Explain(); d.Has(diagnosis.CodeNotCompared) {
				t.Errorf("host 2 was started again, and has said nothing: %v", d)
			}
			report(divergence.Watch{Form: row.form, States: row.states})
			if d := g.Explain(); !d.Has(diagnosis.CodeNotCompared) {
				t.Errorf("host 2 was started again as it was: %v", d)
			}
			report(g.machine.divergence.Report().Watch)
			if d := g.Explain(); d.Has(diagnosis.CodeNotCompared) {
				t.Errorf("host 2 sums up the same: %v", d)
			}
		})
	}
}

// comesInAnotherLife lets a host be started again, in the same directory.
func (l *testHost) comesInAnotherLife(t *testing.T, id uint64) {
	t.Helper()
	peer := (*inbound)(l.Host).Introduce()
	peer.ID, peer.Incarnation, peer.Generation, peer.Life = id, incarnationOf(id), peer.Generation+1, peer.Life+1
	if err := (*inbound)(l.Host).Admit(peer, "test"); err != nil {
		t.Fatal(err)
	}
}
