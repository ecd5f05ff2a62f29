package sim_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	hostbatches "github.com/millrace/millrace/host/batches"
	"github.com/millrace/millrace/sim"
)

func TestCohortProbe(t *testing.T) {
	factor := 1
	procs := 2
	if os.Getenv("LIMITED") != "" {
		factor, procs = 3, 1
	}
	c := sim.DefaultCosts
	for _, d := range []*time.Duration{&c.Wake, &c.Turn, &c.Send, &c.Receive, &c.Write, &c.Sync, &c.Client, &c.KiB} {
		*d *= time.Duration(factor)
	}
	for _, delay := range []time.Duration{50 * time.Microsecond, 500 * time.Microsecond} {
		for _, sync := range []time.Duration{100 * time.Microsecond, 250 * time.Microsecond, time.Millisecond} {
			for _, clients := range []int{1, 16, 100, 1000, -5000, -20000} {
				for _, rule := range []string{"once", "cohort", "choice"} {
					run := sim.BatchRun{Hardware: sim.Hardware{Delay: delay, LineRate: 1.25e9, Sync: sync, DiskRate: 2e9, Jitter: .1, Processors: procs, Costs: c}, Clients: clients, Think: 100 * time.Microsecond, ValueBytes: 1024, Ops: 6000, Seed: 1}
					if clients < 0 {
						run.Clients, run.Rate = 0, float64(-clients)
					}
					if clients == 1 {
						run.Ops = 600
					}
					run.Host = hostbatches.Immediate
					switch rule {
					case "cohort":
						run.Host = hostbatches.Cohorts
					case "choice":
						run.Host = hostbatches.Automatic
						run.Ops *= 3
					}
					r, err := sim.MeasureBatches(run)
					if err != nil {
						t.Fatal(err)
					}
					fmt.Printf("%v sync %v %d clients %-7s %8.0f/s mean %8v p99 %8v batch %.1f cpu %v\n", delay, sync, clients, rule, r.OpsPerSec, r.Mean.Round(time.Microsecond), r.P99.Round(time.Microsecond), r.PerBatch, r.CPU)
				}
			}
		}
	}
}
