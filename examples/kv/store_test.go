package main

import (
	"bytes"
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/examples/kv/server"
	"github.com/millrace/millrace/examples/kv/server/servertest"
	"github.com/millrace/millrace/sim"
	"github.com/millrace/millrace/smtest"
)

// A store is what millrace expects of a state machine: deterministic, with snapshots of one moment and an
// atomic Restore.
func TestStore(t *testing.T) {
	smtest.Run(t, func() millrace.Machine[server.Command, server.Result] { return newStore().Machine() }, servertest.Commands()...)
}

// TestExpiry: a key with a time to live goes at the first command behind it. An add keeps the time, a put
// without one ends it, a put with one renews it.
func TestExpiry(t *testing.T) {
	s := newStore()
	put := server.Command{Op: server.PutFor, Key: "a", Value: []byte("1"), TTL: time.Second}
	for i, step := range []struct {
		at   time.Duration
		do   server.Command
		want int // keys
	}{
		{0, put, 1},
		{time.Second - 1, server.Command{Op: server.Tick}, 1},
		{time.Second, server.Command{Op: server.Tick}, 0},
		{time.Second, put, 1},
		{2*time.Second - 1, put, 1},
		{2 * time.Second, server.Command{Op: server.Add, Key: "a", Delta: 1}, 1},
		{3*time.Second - 1, server.Command{Op: server.Put, Key: "b", When: server.IfAbsent}, 1},
		{3 * time.Second, put, 2},
		{3 * time.Second, server.Command{Op: server.Put, Key: "a"}, 2},
		{time.Hour, server.Command{Op: server.Tick}, 2},
		{time.Hour, put, 2},
		{time.Hour, server.Command{Op: server.Delete, Key: "a"}, 1},
		{2 * time.Hour, server.Command{Op: server.Delete, Key: "b"}, 0},
	} {
		c := []millrace.Command[server.Command]{{Index: uint64(i + 1), Time: step.at, Value: step.do}}
		if err := s.Apply(c, make([]server.Result, 1)); err != nil || s.totals.Keys != step.want || s.totals.Keys != len(s.items.all) {
			t.Errorf("step %d: %d keys, want %d (%v)", i, s.totals.Keys, step.want, err)
		}
	}
	if s.totals != (server.Totals{}) || s.items.ends.Len() > 0 {
		t.Errorf("an empty store has %+v and %d timers", s.totals, s.items.ends.Len())
	}
}

// TestSimulated runs the store on simulated hosts, with all their faults. A value that was put for a while is
// never the reason of a refusal when its time was over for long.
func TestSimulated(t *testing.T) {
	const ttl = 200 * time.Millisecond
	for seed := range uint64(5) {
		_, _, err := sim.RunMachine(sim.Options{Seed: seed, Faults: time.Second}, sim.Workload[server.Command, server.Result]{
			Machine: func(uint64) millrace.Machine[server.Command, server.Result] { return newStore().Machine() },
			Command: func(rng *rand.Rand) server.Command {
				c := server.Command{Op: server.PutFor, When: server.IfAbsent, Key: strconv.Itoa(rng.IntN(3)), TTL: ttl}
				switch rng.IntN(4) {
				case 0:
					c.Op, c.When, c.TTL = server.Delete, server.Always, 0
				case 1:
					c.When = server.Always // it renews the key
				}
				return c
			},
			Check: expired(ttl),
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// expired looks at each refusal because a key exists. It names the version of the command that has put the
// key.
func expired(ttl time.Duration) func([]sim.Operation[server.Command, server.Result]) error {
	return func(history []sim.Operation[server.Command, server.Result]) error {
		slices.SortFunc(history, func(a, b sim.Operation[server.Command, server.Result]) int {
			return cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(a.Pos, b.Pos))
		})
		put := map[uint64]sim.Operation[server.Command, server.Result]{}
		for _, op := range history {
			switch r := op.Output; {
			case op.Outcome != sim.Applied:
			case op.Input.Op == server.PutFor && r.Verdict == server.Done:
				put[r.Version] = op
			case op.Input.When == server.IfAbsent && r.Verdict == server.Mismatch:
				by, known := put[r.Version]
				if known && by.Input.Key != op.Input.Key {
					return fmt.Errorf("key %s is said to have the value that was put for %s", op.Input.Key, by.Input.Key)
				}
				// Log time goes on while a leader works: in this simulation, most of the time.
				if known && op.Call > by.Return+50*ttl {
					return fmt.Errorf("key %s was put until %v, and is there at %v", op.Input.Key, by.Return+ttl, op.Call)
				}
			}
		}
		return nil
	}
}

// A store is the same after Snapshot and Restore, and as it was when its snapshot is damaged.
func TestSnapshot(t *testing.T) {
	s := newStore()
	var batch []millrace.Command[server.Command]
	for i, key := range []string{"b", "a", "", "b"} {
		batch = append(batch, millrace.Command[server.Command]{Index: uint64(i + 5), Value: server.Command{Op: server.Put, Key: key, Value: []byte(strings.Repeat("v", i))}})
	}
	if err := s.Apply(batch, make([]server.Result, len(batch))); err != nil {
		t.Fatal(err)
	}
	expires := newStore()
	put := millrace.Command[server.Command]{Index: 9, Time: time.Minute, Value: server.Command{Op: server.PutFor, Key: "a", TTL: time.Second}}
	if err := expires.Apply(append(batch, put), make([]server.Result, len(batch)+1)); err != nil {
		t.Fatal(err)
	}
	for _, from := range []*store{s, newStore(), expires} {
		snap, err := from.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		later := []millrace.Command[server.Command]{{Index: 100, Time: time.Minute, Value: server.Command{Op: server.Put, Key: "later", Value: []byte("x")}}}
		if err := from.Apply(later, make([]server.Result, 1)); err != nil {
			t.Fatal(err)
		}
		var form bytes.Buffer
		if err := snap.WriteTo(t.Context(), &form); err != nil {
			t.Fatal(err)
		}
		later = []millrace.Command[server.Command]{{Index: 101, Time: time.Minute, Value: server.Command{Op: server.Delete, Key: "later"}}}
		if err := from.Apply(later, make([]server.Result, 1)); err != nil {
			t.Fatal(err)
		}
		restored := newStore()
		if err := restored.Restore(t.Context(), bytes.NewReader(form.Bytes())); err != nil || restored.totals != from.totals || len(restored.items.all) != len(from.items.all) {
			t.Errorf("%+v became %+v (%v)", from.totals, restored.totals, err)
		}
		for key, i := range from.items.all {
			if have := restored.items.all[key]; have.Version != i.Version || have.Expires != i.Expires || !bytes.Equal(have.Value, i.Value) {
				t.Errorf("%q is %+v, want %+v", key, have, i)
			}
		}
		for n := range form.Len() {
			if err := restored.Restore(t.Context(), bytes.NewReader(form.Bytes()[:n])); err == nil || restored.totals != from.totals {
				t.Errorf("%d of %d bytes of a snapshot: %v, and the state has %+v, want %+v", n, form.Len(), err, restored.totals, from.totals)
			}
		}
	}
}
