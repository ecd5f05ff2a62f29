package recipe

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/cmd/internal/lab/report"
	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/statemachine"
)

func groupsRow(ops, cpu float64) report.Result {
	return report.Result{OpsPerSec: ops, CPUUsPerOp: cpu, MeanUs: 1e9 / ops, P99Us: 4e9 / ops, FsyncsPerOp: 0.006, EntriesPerAppend: 300, Runs: 1, Warnings: []string{}}
}

// The row is the pair with the median ratio, not that with the median throughput; one group has no pair.
func TestMedianOfPairs(t *testing.T) {
	pairs := func(rates ...float64) (of []windowPair) {
		for i := 0; i < len(rates); i += 2 {
			of = append(of, windowPair{one: groupsRow(rates[i], 1), all: groupsRow(rates[i+1], 2)})
		}
		return of
	}
	var r groupsResult
	r.Groups = 2
	r.setPairs(pairs(100, 90, 1000, 500, 10, 7))
	if r.Ratio != 0.7 || r.OpsPerSec != 7 || r.OneOpsPerSec != 10 || r.MinRatio != 0.5 || r.MaxRatio != 0.9 {
		t.Errorf("%+v", r)
	}
	if r.Runs != 3 || r.MinOpsPerSec != 7 || r.MaxOpsPerSec != 500 {
		t.Errorf("spread of %d runs: %v to %v", r.Runs, r.MinOpsPerSec, r.MaxOpsPerSec)
	}
	r = groupsResult{Groups: 1}
	r.setPairs(pairs(3, 3, 1, 1, 2, 2))
	if r.OpsPerSec != 2 || r.Ratio != 0 || r.OneOpsPerSec != 0 || r.Runs != 3 {
		t.Errorf("%+v", r)
	}
}

func briefGroups(groups int) groupsPlan {
	return groupsPlan{Groups: groups, Clients: 5, ValueBytes: 64, Hosts: 3, Heartbeat: 20 * time.Millisecond, Idle: time.Millisecond, Duration: 20 * time.Millisecond, Warmup: time.Millisecond, Runs: 2, Seed: 1}
}

// Every step, on real hosts, briefly. Run checks what was acknowledged, and that a restart changes nothing.
func TestGroupsRun(t *testing.T) {
	for _, n := range []int{1, 3} {
		row, err := briefGroups(n).Run(t.Context(), t.TempDir(), report.Silence{})
		if err != nil || row.Groups != n || row.FoundSec == 0 || row.CloseSec == 0 || row.ReopenSec == 0 || row.ReplaySec == 0 || row.LogBytes == 0 || row.Failed > 0 {
			t.Fatalf("not measured: %+v, %v", row, err)
		}
		if n == 1 && row.Ratio != 0 || row.MinRatio > row.Ratio || row.Ratio > row.MaxRatio {
			t.Errorf("ratios %v, %v to %v", row.Ratio, row.MinRatio, row.MaxRatio)
		}
	}
}

// interrupter ends a run when it hears of a phase.
type interrupter struct {
	report.Silence
	phase string
	end   func()
}

func (i interrupter) Phase(name string) {
	if name == i.phase {
		i.end()
	}
}

// An interrupt in any phase ends the run with its cause.
func TestGroupsInterrupted(t *testing.T) {
	interrupted := errors.New("interrupted")
	for _, phase := range []string{"found", "idle", "reopen", "measure", "verify", "replay"} {
		t.Run(phase, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			row, err := briefGroups(3).Run(ctx, t.TempDir(), interrupter{phase: phase, end: func() { cancel(interrupted) }})
			if !errors.Is(err, interrupted) {
				t.Errorf("%+v, %v", row, err)
			}
		})
	}
}

// openGroups returns hosts with two groups each, and the context that a stopped group ends.
func openGroups(t *testing.T) (context.Context, *groupsCluster) {
	t.Helper()
	ctx, stop := context.WithCancelCause(t.Context())
	c := newGroupsCluster(briefGroups(2), t.TempDir(), stop)
	t.Cleanup(func() {
		stop(nil)
		if err := c.close(); err != nil {
			t.Error(err)
		}
	})
	if err := c.start(ctx, 2); err != nil {
		t.Fatal(err)
	}
	return ctx, c
}

type brokenMachine struct{}

func (brokenMachine) Apply([]statemachine.Entry) error { return errors.New("out of order") }

// A group that stops ends the run with its sentence, whatever the run is doing.
func TestStoppedGroupEndsTheRun(t *testing.T) {
	ctx, c := openGroups(t)
	const id = 7
	g, err := c.hosts[0].OpenGroup(ctx, host.GroupConfig{ID: id, Members: []uint64{1}}, brokenMachine{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.WaitLeader(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Submit(make([]byte, 64)); err != nil {
		t.Fatal(err)
	}
	<-ctx.Done()
	err = explain(ctx, errors.New("a consequence"))
	var stopped *stoppedError
	if !errors.As(err, &stopped) || !strings.HasPrefix(err.Error(), "host 1: group 7 has stopped: ") || !strings.Contains(err.Error(), "out of order") {
		t.Error(err)
	}
}

// What a client wrote to a group must be in that group, on every host and after a restart.
func TestChecksFindWhatIsWrong(t *testing.T) {
	ctx, c := openGroups(t)
	window := func(spoil func(value []byte) []byte) error {
		both := groupsTarget{c, 2}
		for i := range c.machines {
			for g := range 2 {
				c.machines[i][g].begin(both.share(g))
			}
		}
		source, ledger := load.NewSource(64, 1), &load.Ledger{}
		for range 2 {
			client, page := ledger.Open()
			value := source.Value(load.ValueID{Client: client, Seq: page.Send()})
			page.Acknowledge(0)
			if err := both.Propose(ctx, spoil(value)); err != nil {
				t.Fatal(err)
			}
		}
		return both.Verify(ctx, ledger)
	}
	if err := window(func(v []byte) []byte { return v }); err != nil {
		t.Error(err)
	}
	err := window(func(v []byte) []byte { v[40] ^= 1; return v })
	if !errors.Is(err, lab.ErrMismatch) || !strings.HasPrefix(err.Error(), "group 1: ") {
		t.Error(err)
	}
	want := c.totals()
	if err := c.awaitTotals(ctx, want); err != nil {
		t.Error(err)
	}
	want[3].hash++
	if err := c.awaitTotals(ctx, want); !errors.Is(err, lab.ErrMismatch) || !strings.Contains(err.Error(), "host 2, group 2: after 2 commands its state was") {
		t.Error(err)
	}
	want[3].hash--
	want[0].commands++
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if err := c.awaitTotals(ended, want); err == nil || !strings.Contains(err.Error(), "host 1, group 1: it had applied 3 commands") {
		t.Error(err)
	}
}
