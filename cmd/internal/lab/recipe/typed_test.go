package recipe

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/bench"
	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/cmd/internal/lab/report"
)

var briefRound = typedRound{Clients: 5, ValueBytes: 64, Hosts: 3, Duration: 10 * time.Millisecond, Warmup: time.Millisecond, Seed: 1}

// Leaders that another host has taken over while the machine was busy are brought back: asking to be elected
// does not help while the followers hear the other one.
func TestLeadersComeBack(t *testing.T) {
	c, err := openTypedCluster(t.Context(), 3, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := bench.CloseHosts(c.hosts); err != nil {
			t.Error(err)
		}
	}()
	for _, id := range []uint64{groupOfBytes, groupOfTypes} {
		if err := c.hosts[0].Group(id).TransferLeadership(t.Context(), 2); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.awaitLeaders(t.Context()); err != nil || !c.leads(groupOfBytes) || !c.leads(groupOfTypes) {
		t.Errorf("after the leaders had moved: %v", err)
	}
}

// Every way, on real hosts, briefly. Run checks what was acknowledged and what was read.
func TestTypedRun(t *testing.T) {
	var told []typedWay
	rows, err := briefRound.Run(t.Context(), t.TempDir(), report.Silence{}, func(w typedWay) { told = append(told, w) })
	if err != nil || len(rows) != len(typedWays) || len(told) != len(typedWays) || slices.Equal(told, typedWays) {
		t.Fatalf("%+v, told of %q, %v", rows, told, err)
	}
	for i, row := range rows {
		if row.Way != typedWays[i] || row.Clients != briefRound.Clients || row.Failed > 0 {
			t.Errorf("row %d: %+v", i, row)
		}
	}
}

// A read that misses what was acknowledged before it ends the run.
func TestStaleReadIsFound(t *testing.T) {
	r := typedReader{machine: &countingMachine{count: 6}, want: 7}
	if err := r.once(t.Context(), readNothing); err != nil || !errors.Is(r.fewest, lab.ErrMismatch) {
		t.Errorf("%v, %v", err, r.fewest)
	}
}

// A client uses its buffer again, and what was acknowledged is still there: the codec copies.
func TestTypedWritesCopy(t *testing.T) {
	for _, w := range typedWays {
		if w.writes() && (typedWriter{way: w}).Copies() != (w != writeBytes) {
			t.Error(w)
		}
	}
	var _ load.Copier = typedWriter{}
}

func TestTypedInterrupted(t *testing.T) {
	interrupted := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	rows, err := briefRound.Run(ctx, t.TempDir(), report.Silence{}, func(typedWay) { cancel(interrupted) })
	if !errors.Is(err, interrupted) || rows != nil {
		t.Errorf("%+v, %v", rows, err)
	}
}
