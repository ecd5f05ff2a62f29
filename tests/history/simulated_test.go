package history

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/sim"
	"github.com/millrace/millrace/sim/history"
)

// Histories of simulated clusters, with faults that no process can be made to have, checked in the same way.

// registers is a state machine of a few keys.
type registers map[string]string

// ask is a command of registers: an operation without its outcome.
type ask struct {
	Kind             Kind
	Key, Value, Want string
}

// found is what a command of registers has found and done.
type found struct {
	Got  string
	Took bool
}

// Apply implements millrace.StateMachine.
func (r registers) Apply(batch []millrace.Command[ask], results []found) error {
	for i := range batch {
		c := &batch[i].Value
		results[i] = found{Got: r[c.Key]}
		switch {
		case c.Kind == Append:
			r[c.Key] = history.Appended(r[c.Key], c.Value)
		case c.Kind == Put, c.Kind == Exchange:
			r[c.Key] = c.Value
		case c.Kind != Get && r[c.Key] == c.Want:
			r[c.Key], results[i].Took = c.Value, true
		}
	}
	return nil
}

// Snapshot implements millrace.StateMachine.
func (r registers) Snapshot() (millrace.Snapshot, error) {
	b, err := json.Marshal(r)
	return millrace.BytesSnapshot(b), err
}

// Restore implements millrace.StateMachine.
func (r registers) Restore(_ context.Context, from io.Reader) error {
	have := registers{}
	if err := json.NewDecoder(from).Decode(&have); err != nil {
		return err
	}
	clear(r)
	for key, value := range have {
		r[key] = value
	}
	return nil
}

// asks draws commands on a hundred keys: in a cluster that elects, hundreds of commands are open at a time,
// and the search for an order is long if they are on one key. Each value is written once, and conditions are
// about values of late. Ten other keys are lists.
func asks() func(*rand.Rand) ask {
	values := map[string][]string{}
	n := 0
	return func(rng *rand.Rand) ask {
		if rng.IntN(4) == 0 {
			n++
			return ask{Kind: []Kind{Get, Append, Append}[rng.IntN(3)], Key: fmt.Sprint("list-", rng.IntN(10)), Value: fmt.Sprint(n)}
		}
		c := ask{Kind: []Kind{Get, Put, Swap, Delete, Exchange}[rng.IntN(5)], Key: fmt.Sprint("key-", rng.IntN(100))}
		late := values[c.Key]
		if c.Kind == Put || c.Kind == Swap || c.Kind == Exchange {
			n++
			c.Value = fmt.Sprint(n)
			values[c.Key] = append(late, c.Value)
		}
		if len(late) > 0 {
			c.Want = late[len(late)-1-rng.IntN(min(3, len(late)))]
		} else if c.Kind == Delete {
			c.Kind = Get
		}
		return c
	}
}

// recorded is a history of the simulator in the form of this package.
func recorded(simulated []sim.Operation[ask, found]) (h History) {
	for _, s := range simulated {
		o := Operation{
			Client: s.Client, Key: s.Input.Key, Kind: s.Input.Kind, Value: s.Input.Value, Want: s.Input.Want,
			Outcome: map[sim.Outcome]Outcome{sim.Applied: Answered, sim.Refused: Refused, sim.Unknown: Unknown}[s.Outcome],
			Got:     s.Output.Got, Took: s.Output.Took, Call: s.Call, Return: s.Return,
			Index: s.Index*raftpb.MaxBatchCommands + uint64(s.Pos), // a position, which orders as the log does
		}
		if o.Outcome != Answered {
			o.Index = 0
		}
		if o.Outcome == Unknown {
			o.Return = Never
		}
		h = append(h, o)
	}
	return h
}

var seeds = flag.Int("seeds", 20, "how many simulated clusters")

// TestSimulatedHistories checks what clients of simulated clusters saw, and rejects the same with a stale
// read planted into it.
func TestSimulatedHistories(t *testing.T) {
	var all Counts
	var links, appends int
	planted := 0
	for seed := range uint64(*seeds) {
		_, simulated, err := sim.RunMachine(sim.Options{Seed: seed}, sim.Workload[ask, found]{
			Machine: func(uint64) millrace.Machine[ask, found] {
				return millrace.InMemory(registers{}, millrace.JSON[ask]())
			},
			Command: asks(),
		})
		if err != nil {
			t.Fatal(err)
		}
		whole := recorded(simulated)
		if err := whole.Monotonic(); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		n, err := whole.Lists()
		if err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		h := whole.without(func(o *Operation) bool { return strings.HasPrefix(o.Key, "list-") })
		if err := h.Linearizable(2 * time.Second); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		m, err := h.Chains()
		if err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		links, appends = links+m, appends+n
		judgeJudges(t, whole)
		all.sum(h.Count())
		if stale, err := h.WithStaleRead(seed); err != nil {
			continue // too few operations came through
		} else if planted++; stale.Linearizable(2*time.Second) == nil {
			t.Errorf("seed %d: a history with a stale read planted into it was accepted", seed)
		}
	}
	t.Logf("%d seeds: %v; a stale read planted into %d of them; %d links of chains, %d appends in lists", *seeds, all, planted, links, appends)
	if all.Answered == 0 || all.Unknown == 0 || all.Concurrent == 0 || planted == 0 || links == 0 || appends == 0 {
		t.Error("the histories show too little")
	}
}
