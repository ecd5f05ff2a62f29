package spec

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

var (
	traceCount  = flag.Int("traces", 50, "how many traces of the core to check")
	traceEvents = flag.Int("events", 1000, "how many events of each run to check")
	traceFirst  = flag.Uint64("first", 0, "take seeds behind this one")
	traceTicks  = flag.Int("ticks", 100, "how long faults last in a run, in ticks")
)

// tracesPerRun bounds the size of a module, which TLC reads at once.
const tracesPerRun = 50

// Each step of the core is a step of the specification.
func TestTraces(t *testing.T) {
	seed, events := *traceFirst, 0
	begin := time.Now()
	for left := *traceCount; left > 0; {
		var batch []*trace
		for len(batch) < min(left, tracesPerRun) {
			seed++
			tr, ok, err := record(seed, *traceTicks, *traceEvents)
			if err != nil {
				t.Fatal(err)
			}
			if ok {
				batch = append(batch, tr)
				events += len(tr.events)
			}
		}
		if refused, ok := validate(t, batch); !ok {
			t.Fatal(refused)
		}
		left -= len(batch)
	}
	t.Logf("%d traces of the seeds through %d, with %d events, in %.1f s", *traceCount, seed, events, time.Since(begin).Seconds())
}

// refusal is an event that is no step of the specification.
type refusal struct {
	trace *trace
	event int    // from 1
	state string // before it; there may have been others that agreed with the trace so far
}

func (r refusal) String() string {
	text := r.trace.events[r.event-1]
	if m := regexp.MustCompile(`m \|-> (\d+)`).FindStringSubmatch(text); m != nil {
		number, _ := strconv.Atoi(m[1])
		text += "\n  the message is " + r.trace.messages[number-1]
	}
	return fmt.Sprintf("seed %d, event %d is no step of the specification:\n  %s\nthe state before it:\n%s\ncheck it again: go test -run TestTraces -first %d -traces 1 -events %d",
		r.trace.seed, r.event, text, r.state, r.trace.seed-1, r.event)
}

var (
	accepted = regexp.MustCompile(`<<"accepted", (\d+)>>`)
	passes   = regexp.MustCompile(`<<"passes", (\d+)>>`)
)

// follow runs TLC along traces.
func follow(t *testing.T, traces []*trace, constants map[string]string, property string) outcome {
	t.Helper()
	tlc, folder := checker(t)
	if err := os.WriteFile(filepath.Join(folder, "TraceData.tla"), []byte(module(traces)), 0o644); err != nil {
		t.Fatal(err)
	}
	config, err := model("Trace")
	if err == nil {
		config, err = withConstants(config, constants)
	}
	if err != nil {
		t.Fatal(err)
	}
	if property != "" {
		config = withProperty(config, property)
	}
	o, err := tlc.run(t.Context(), job{folder: folder, module: "Trace", config: config, workers: *workers})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// validate checks traces with TLC. ok is false if one is refused.
func validate(t *testing.T, traces []*trace) (r refusal, ok bool) {
	t.Helper()
	o := follow(t, traces, nil, "")
	if o.violated != "" {
		t.Fatalf("%s is violated along a trace:\n%s", o.violated, lastLines(o.output, 200))
	}
	reached := map[int]bool{}
	for _, m := range accepted.FindAllStringSubmatch(o.output, -1) {
		number, _ := strconv.Atoi(m[1])
		reached[number] = true
	}
	for i, tr := range traces {
		if !reached[i+1] {
			return explain(t, tr), false
		}
	}
	return r, true
}

// stops returns the event behind the last one that a state of the trace has passed, and whether one of them
// has reached the end.
func stops(t *testing.T, tr *trace) (event int, ok bool) {
	t.Helper()
	o := follow(t, []*trace{tr}, map[string]string{"Slowly": "1"}, "")
	if o.violated != "" {
		t.Fatalf("%s is violated along a trace:\n%s", o.violated, lastLines(o.output, 200))
	}
	event = 1
	for _, m := range passes.FindAllStringSubmatch(o.output, -1) {
		at, _ := strconv.Atoi(m[1])
		event = max(event, at+1)
	}
	return event, accepted.MatchString(o.output)
}

// explain returns where a trace is refused, and the state there.
func explain(t *testing.T, tr *trace) refusal {
	t.Helper()
	event, _ := stops(t, tr)
	r := refusal{trace: tr, event: event}
	o := follow(t, []*trace{tr}, map[string]string{"StopAt": fmt.Sprint(event)}, "NotThere")
	if at := strings.LastIndex(o.output, "\nState "); at >= 0 {
		r.state = o.output[at+1:]
	}
	return r
}

// A trace in which something is wrong is refused, at the event where it is wrong.
func TestCorruptedTracesAreRefused(t *testing.T) {
	for _, c := range corruptions {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for seed := uint64(1); seed < 200; seed++ {
				tr, ok, err := record(seed, *traceTicks, 400)
				if err != nil {
					t.Fatal(err)
				}
				if !ok {
					continue
				}
				event := c.corrupt(tr)
				if event == 0 {
					continue // nothing of that kind in it
				}
				stop, ok := stops(t, tr)
				if ok {
					t.Fatalf("seed %d: event %d was corrupted, and is accepted: %s", seed, event, tr.events[event-1])
				}
				if stop < event {
					t.Fatalf("seed %d: event %d was corrupted, and already event %d is refused", seed, event, stop)
				}
				t.Logf("seed %d: event %d was corrupted, event %d is refused", seed, event, stop)
				return
			}
			t.Error("no trace has an event of this kind")
		})
	}
}
