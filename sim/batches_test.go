package sim_test

import (
	"testing"
	"time"

	held "github.com/millrace/millrace/host/batches"
	"github.com/millrace/millrace/sim"
	"github.com/millrace/millrace/sim/batches"
)

// batchRun is a run with clients in a closed loop.
func batchRun(clients int, delay, sync time.Duration, rule batches.Rule) sim.BatchRun {
	return sim.BatchRun{
		Host: held.Immediate, Hardware: sim.Hardware{Delay: delay, LineRate: 1.25e9, Sync: sync, DiskRate: 2e9, Jitter: 0.1, Processors: 2, Costs: sim.DefaultCosts},
		Rule: rule, Clients: clients, Think: 100 * time.Microsecond, ValueBytes: 1024, Ops: 300, Seed: 1,
	}
}

func measureBatches(t *testing.T, run sim.BatchRun) sim.BatchResult {
	t.Helper()
	r, err := sim.MeasureBatches(run)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%v, %d clients, %.0f/s: %v", run.Hardware, run.Clients, run.Rate, r)
	return r
}

// The time of a lone write is what the Hardware says: a delay each way, a sync with its jitter, and the
// processor time on the way, which is a part of that of all hosts.
func TestTimeOfALoneWrite(t *testing.T) {
	for _, delay := range []time.Duration{50 * time.Microsecond, 20 * time.Millisecond} {
		for _, sync := range []time.Duration{250 * time.Microsecond, 30 * time.Millisecond} {
			r := measureBatches(t, batchRun(1, delay, sync, nil))
			least := 2*delay + sync
			if most := least + least/10 + r.CPU; r.Mean < least || r.P99 > most {
				t.Errorf("mean %v, p99 %v, want %v to %v", r.Mean, r.P99, least, most)
			}
			if r.CPU < 150*time.Microsecond || r.CPU > 350*time.Microsecond {
				t.Errorf("%v of processor time for a write, where the bench measured about 240 us", r.CPU)
			}
		}
	}
}

// The same run has the same figures, and another seed other ones.
func TestMeasureBatchesRepeats(t *testing.T) {
	run := batchRun(16, 50*time.Microsecond, 250*time.Microsecond, batches.Halfway{})
	first, second := measureBatches(t, run), measureBatches(t, run)
	if first != second {
		t.Errorf("%v, and then %v", first, second)
	}
	run.Seed++
	if third := measureBatches(t, run); third == first {
		t.Errorf("another seed makes no difference: %v", third)
	}
}

// Two bounds that follow without a measurement. Where the network takes 40 times as long as the disk, a batch
// that waits for the one before costs another round. And a rule that never holds holds nothing.
func TestDepthOneWaitsForTheNetwork(t *testing.T) {
	const delay, sync = 20 * time.Millisecond, time.Millisecond
	once, one := measureBatches(t, batchRun(16, delay, sync, batches.AtOnce{})), measureBatches(t, batchRun(16, delay, sync, batches.Depth(1)))
	if once.Held != 0 || one.Held == 0 || once.PerBatch > 4 || one.PerBatch < 4 {
		t.Errorf("held %d and %d times, %.1f and %.1f writes in a batch", once.Held, one.Held, once.PerBatch, one.PerBatch)
	}
	if round := 2*delay + sync; once.Mean > round*5/4 || one.Mean < round*3/2 {
		t.Errorf("means %v at once, %v one by one, of a round of %v", once.Mean, one.Mean, round)
	}
}

// Neither rule of a host is always the better one, and a host finds out by itself (decision 0036). With idle
// processors batches leave at once; on a slow disk all clients share one.
func TestAHostFindsTheBetterRule(t *testing.T) {
	for _, cell := range []struct {
		clients       int
		sync          time.Duration
		better, worse held.Kind
	}{
		{16, 100 * time.Microsecond, held.Immediate, held.Cohorts},
		{100, 100 * time.Microsecond, held.Immediate, held.Cohorts},
		{16, time.Millisecond, held.Cohorts, held.Immediate},
	} {
		mean := func(k held.Kind, warm int) time.Duration {
			run := batchRun(cell.clients, 50*time.Microsecond, cell.sync, nil)
			run.Host, run.Ops, run.Warm = k, 3000, warm
			return measureBatches(t, run).Mean
		}
		better, worse, found := mean(cell.better, 0), mean(cell.worse, 0), mean(held.Automatic, 10_000)
		if worse < better*6/5 {
			t.Errorf("%d clients, sync %v: the worse rule takes %v, the better one %v: there is nothing to find", cell.clients, cell.sync, worse, better)
		}
		if found > better*11/10 {
			t.Errorf("%d clients, sync %v: a host takes %v, and the better rule %v", cell.clients, cell.sync, found, better)
		}
	}
}

// Many small batches on a slow disk: a write waits for the sync under way and for its own, and no longer. A
// bound on the messages in flight that is less than a round takes makes it wait for a third one.
func TestSmallBatchesOnASlowDisk(t *testing.T) {
	const sync = 30 * time.Millisecond
	run := batchRun(0, 50*time.Microsecond, sync, nil)
	run.Rate, run.Ops = 8500, 6000
	if r := measureBatches(t, run); r.PerBatch > 2 || r.P99 > sync*5/2 {
		t.Errorf("p99 %v with %.1f writes in a batch, on disks that take %v", r.P99, r.PerBatch, sync)
	}
}
