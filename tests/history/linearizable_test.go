package history

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// script makes a history of one key from lines: "CALL RETURN OPERATION". A return of "-" never came; one of
// "x" was a refusal. Operations are "get V" with "age A" or not, "put V", "swap W V" with "took" or "found
// V", "delete W" likewise, "exchange V found W", and "append E found LIST". "at INDEX" may follow each.
func script(t *testing.T, text string) (h History) {
	t.Helper()
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		o := Operation{Key: "k", Client: len(h), Outcome: Answered}
		fmt.Sscan(f[0], (*int64)(&o.Call))
		switch f[1] {
		case "-":
			o.Outcome, o.Return = Unknown, Never
		case "x":
			o.Outcome, o.Return = Refused, o.Call+1
		default:
			fmt.Sscan(f[1], (*int64)(&o.Return))
		}
		value := func(i int) string {
			if i >= len(f) || f[i] == "none" {
				return ""
			}
			return f[i]
		}
		end := 4
		switch f[2] {
		case "get":
			o.Kind, o.Got = Get, value(3)
			if value(4) == "age" {
				fmt.Sscan(f[5], (*int64)(&o.MaxAge))
			}
		case "put":
			o.Kind, o.Value = Put, value(3)
		case "swap":
			o.Kind, o.Want, o.Value, end = Swap, value(3), value(4), 5
		case "delete":
			o.Kind, o.Want = Delete, value(3)
		case "exchange":
			o.Kind, o.Value = Exchange, value(3)
		case "append":
			o.Kind, o.Value = Append, value(3)
		default:
			t.Fatalf("no operation: %s", line)
		}
		if f[len(f)-2] == "at" {
			fmt.Sscan(f[len(f)-1], &o.Index)
		}
		if value(end) == "took" {
			o.Took = true
		} else if value(end) == "found" {
			o.Got = value(end + 1)
		}
		h = append(h, o)
	}
	return h
}

// TestLinearizable: histories, with what is wrong with some of them.
func TestLinearizable(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"nothing", "", ""},
		{"one after the other", "1 2 put a\n3 4 get a\n5 6 swap a b took\n7 8 delete b took\n9 10 get none", ""},
		{"a stale read", "1 2 put a\n3 4 put b\n5 6 get a", "not linearizable"},
		{"a read that may be old enough", "1 2 put a\n3 4 put b\n6 7 get a age 2", ""},
		{"a read that is too old", "1 2 put a\n3 4 put b\n6 7 get a age 1", "not linearizable"},
		{"a read of what was not written", "1 2 get a", "not linearizable"},
		{"a read before the write", "1 2 get a\n3 4 put a", "not linearizable"},
		{"a concurrent read, old or new", "1 2 put a\n3 9 put b\n4 5 get a\n6 7 get b", ""},
		{"a concurrent read, new and then old", "1 2 put a\n3 9 put b\n4 5 get b\n6 7 get a", "not linearizable"},
		{"a lost write", "1 2 put a\n3 4 get none", "not linearizable"},
		{"an unknown write that was not applied", "1 2 put a\n3 - put b\n4 5 get a\n6 7 get a", ""},
		{"an unknown write that was applied late", "1 2 put a\n3 - put b\n4 5 get a\n6 7 get b\n8 9 get b", ""},
		{"an unknown write that was applied twice", "1 2 put a\n3 - put b\n4 5 get b\n6 7 put c\n8 9 get c\n10 11 get b", "not linearizable"},
		{"a refused write that was applied", "1 2 put a\n3 x put b\n4 5 get b", "not linearizable"},
		{"a refused write that was not applied", "1 2 put a\n3 x put b\n4 5 get a", ""},
		{"two swaps of one value took", "1 2 put a\n3 9 swap a b took\n4 8 swap a c took", "not linearizable"},
		{"one of two swaps took", "1 2 put a\n3 9 swap a b took\n4 8 swap a c found b", ""},
		{"a swap that should have taken", "1 2 put a\n3 4 swap a b found b", "not linearizable"},
		{"a swap that should not have taken", "1 2 put a\n3 4 put b\n5 6 swap a c took", "not linearizable"},
		{"a swap that found an old value", "1 2 put a\n3 4 put b\n5 6 swap x c found a", "not linearizable"},
		{"an unknown swap, found", "1 2 put a\n3 - swap a b\n4 5 get b", ""},
		{"an unknown swap, impossible", "1 2 put a\n3 - swap c b\n4 5 get b", "not linearizable"},
		{"an unknown delete", "1 2 put a\n3 - delete a\n4 5 get a\n6 7 get none\n8 9 put b\n10 11 get b", ""},
		{"an unknown delete of another value", "1 2 put a\n3 - delete x\n4 5 get none", "not linearizable"},
		{"an unknown read", "1 - get none\n2 3 put a", ""},
		{"exchanges", "1 2 put a\n3 4 exchange b found a\n5 6 exchange c found b\n7 8 get c", ""},
		{"an exchange that found an old value", "1 2 put a\n3 4 exchange b found a\n5 6 exchange c found a", "not linearizable"},
		{"an unknown exchange, found", "1 2 put a\n3 - exchange b\n4 5 exchange c found b", ""},
		{"a list", "1 2 append a", "Lists checks"},
		{"a value of two writes", "1 2 put a\n3 4 put a", "cannot be checked"},
	} {
		err := script(t, c.text).Linearizable(time.Minute)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// The error shows the operation that has no place, and not those after it.
func TestErrorNamesTheOperation(t *testing.T) {
	err := script(t, "1 2 put a\n3 4 put b\n5 6 get a\n7 8 get b\n9 10 put c").Linearizable(time.Minute)
	if err == nil || !strings.Contains(err.Error(), "> [5ns 6ns] client 2 get: found \"a\"") || strings.Contains(err.Error(), "client 4") {
		t.Error(err)
	}
}

var histories = flag.Int("histories", 10_000, "how many random histories are checked with and without what Linearizable leaves out")

// TestReduced: a history means the same without the operations that Linearizable leaves out. Random histories
// of few operations are checked with and without.
func TestReduced(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	rejected, accepted := 0, 0
	for range *histories {
		h := randomHistory(rng)
		all := History(nil)
		for _, o := range h {
			if o.Outcome != Refused {
				all = append(all, o)
			}
		}
		whole, err := all.search(time.Minute) == porcupine.Ok, h.Linearizable(time.Minute)
		if errors.Is(err, ErrUndecided) || whole != (err == nil) {
			t.Fatalf("%v\nwhole: %v\nreduced: %v", h, whole, err)
		}
		if err == nil {
			accepted++
		} else {
			rejected++
		}
	}
	t.Logf("%d histories accepted, %d rejected", accepted, rejected)
	if accepted < 1000 || rejected < 1000 {
		t.Error("the random histories are all alike")
	}
}

// randomHistory returns up to eight operations with random times and results.
func randomHistory(rng *rand.Rand) (h History) {
	values := []string{""}
	for i := range 2 + rng.IntN(7) {
		o := Operation{Client: i, Key: "k", Outcome: Answered, Call: time.Duration(rng.IntN(30))}
		o.Return = o.Call + time.Duration(1+rng.IntN(10))
		o.Kind = []Kind{Get, Put, Swap, Delete, Exchange}[rng.IntN(5)]
		o.Got = values[rng.IntN(len(values))]
		o.Want = values[rng.IntN(len(values))]
		switch {
		case o.Kind == Delete && o.Want == "":
			o.Kind = Get
		case o.Kind != Get && o.Kind != Delete:
			o.Value = string(rune('a' + i))
			values = append(values, o.Value)
		}
		if o.Kind == Get && rng.IntN(3) == 0 {
			o.MaxAge = time.Duration(rng.IntN(10))
		}
		o.Took = (o.Kind == Swap || o.Kind == Delete) && (rng.IntN(2) == 0 || o.Got == o.Want)
		if rng.IntN(4) == 0 && o.Kind != Get {
			o.Outcome, o.Return, o.Took, o.Got = Unknown, Never, false, ""
		} else if rng.IntN(10) == 0 && o.Kind != Get {
			o.Outcome = Refused
		}
		h = append(h, o)
	}
	return h
}
