package sim

import (
	"bytes"
	"context"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/flight"
)

// Flights sums up the recordings of a run whose hosts have flight recorders. When a process ends, whichever
// way, what its recorder has is written, read back and replayed. The replay must be exact: each input of each
// core of each group, from the oldest stretch that the recorder has kept.
type Flights struct {
	Steps  int      // that were replayed,
	Kinds  [128]int // by flight.Kind, with the replies of the storage
	States int      // that were compared, at the beginnings of stretches
	Cut    int      // recordings of which the recorder had dropped the beginning
	Stops  int      // groups that have stopped by themselves, each of which makes its host write a file
}

// FlightRecorders runs random faults on hosts with flight recorders, for odd seeds while members change. The
// error, if any, is a *Violation.
func FlightRecorders(o Options) (Flights, error) {
	o.FlightRecorder, o.churn = true, o.Seed%2 == 1
	r, err := Run(o)
	return r.Flights, err
}

// drawFlights gives all hosts a recorder, if the run wants that. Small ones drop what is old.
func (w *world) drawFlights() {
	if !w.options.FlightRecorder {
		return
	}
	rng := splitSeed(w.options.Seed, 77)
	w.config.FlightRecorder = host.FlightRecorder{Bytes: pick(rng, int64(flight.MinBytes), 256<<10, 64<<20), Data: pick(rng, flight.Lengths, flight.Hashes, flight.Payloads)}
}

// checkFlight replays what the recorder of a process has. The process may be in the middle of an input: its
// power may fail in any call of the disk.
func (l *life) checkFlight() {
	w := l.w
	if !w.options.FlightRecorder || l.process == nil {
		return
	}
	var b bytes.Buffer
	if err := l.process.WriteFlight(&b, "the end of a simulated process"); err != nil {
		w.violate("%s cannot write its recording: %v", l.name, err)
	}
	f, err := flight.Read(&b)
	if err != nil || f.Cut {
		w.violate("%s has written a recording that cannot be read: %v", l.name, err)
	}
	for _, group := range f.Groups() {
		r, err := flight.Replay(context.Background(), f, group, func(s *flight.Step) error {
			w.flights.Kinds[s.Record.Kind]++
			for i := range s.Asked {
				w.flights.Kinds[s.Asked[i].Kind]++
			}
			if s.Differs != "" {
				w.violate("the recording of group %d of %s does not replay: step %d (%v): %s", group, l.name, s.Number, s.Record.Kind, s.Differs)
			}
			return nil
		})
		if err != nil {
			w.violate("the recording of group %d of %s cannot be replayed: %v", group, l.name, err)
		}
		w.flights.Steps += r.Steps
		w.flights.States += r.Checkpoints
	}
	if len(f.Stretches) > 0 && f.Stretches[0].Number > 1 {
		w.flights.Cut++
	}
}
