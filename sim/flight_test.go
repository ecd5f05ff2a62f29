package sim_test

import (
	"flag"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/millrace/millrace/host/flight"
	"github.com/millrace/millrace/sim"
)

var flightSeeds = flag.Uint64("flight-seeds", 12, "how many seeds TestFlightRecordersReplay runs")

// Whatever happens to hosts with flight recorders, their recordings replay exactly, and no input of the core
// that a host can give is left out of the test. Bootstrap, ForgetLeader, SetElectionTimeout and single ticks
// are of other programs than the host.
func TestFlightRecordersReplay(t *testing.T) {
	var mu sync.Mutex
	var sum sim.Flights
	eachSeed(1, *flightSeeds, func(seed uint64) (more bool) {
		f, err := sim.FlightRecorders(sim.Options{Seed: seed})
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		sum.Steps, sum.States, sum.Cut, sum.Stops = sum.Steps+f.Steps, sum.States+f.States, sum.Cut+f.Cut, sum.Stops+f.Stops
		for k, n := range f.Kinds {
			sum.Kinds[k] += n
		}
		return !t.Failed()
	})
	t.Logf("%d steps, %d states compared, %d recordings without their beginning, %d groups that stopped", sum.Steps, sum.States, sum.Cut, sum.Stops)
	for k, n := range sum.Kinds {
		if n > 0 {
			t.Logf("%9d %v", n, flight.Kind(k))
		}
	}
	if t.Failed() || *flightSeeds < 12 {
		return
	}
	for _, k := range []flight.Kind{flight.Start, flight.Checkpoint, flight.Stepped, flight.ApplyConfChange, flight.TickN, flight.TickMissed, flight.TransferLeader,
		flight.HeardLeader, flight.PeerActive, flight.SetPulsed, flight.ReadIndex, flight.EntriesArrived, flight.StretchPromise,
		flight.Ready, flight.Advance, flight.ReplyTerm, flight.ReplyFirst, flight.ReplyLast, flight.ReplyEntries, flight.ReplySnapshot, flight.ReplyInitial, flight.ReplyChanges} {
		if sum.Kinds[k] == 0 {
			t.Errorf("no record of kind %v was replayed", k)
		}
	}
	if sum.States == 0 || sum.Cut == 0 || sum.Stops == 0 {
		t.Error("no recorder has dropped a stretch, or no group has stopped")
	}
}

// A recorder changes nothing: a run with recorders is the same run, event for event, unless a group stops
// or a machine halts, about which a file is written.
func TestFlightRecordersChangeNothing(t *testing.T) {
	var same atomic.Int64
	eachSeed(1, 12, func(seed uint64) (more bool) {
		with, err := sim.Run(sim.Options{Seed: seed, FlightRecorder: true})
		if err != nil {
			t.Error(err)
		}
		without, err := sim.Run(sim.Options{Seed: seed})
		if without.Flights.Stops > 0 || without.Faults[sim.Halts] > 0 {
			return true
		}
		same.Add(1)
		if err != nil || with.Digest != without.Digest || with.Events != without.Events || with.Flights.Steps == 0 {
			t.Errorf("seed %d: %d events with a recorder, and %d without: %v", seed, with.Events, without.Events, err)
		}
		return !t.Failed()
	})
	if same.Load() < 3 {
		t.Errorf("in %d runs no group has stopped; that proves little", same.Load())
	}
}
