package history

import (
	"slices"
	"sync"
	"testing"
)

// Clients add at the same time; nothing is lost, and what was returned does not change afterwards.
func TestRecorder(t *testing.T) {
	var r Recorder
	const clients, each = 8, 100
	var running sync.WaitGroup
	for client := range clients {
		running.Go(func() {
			for n := range each {
				r.Add(Operation{Client: client, Index: uint64(n)})
			}
		})
	}
	running.Wait()
	all := r.Operations()
	next := [clients]uint64{}
	for _, o := range all {
		if o.Index != next[o.Client] {
			t.Fatalf("client %d added %d, and then %d", o.Client, next[o.Client]-1, o.Index)
		}
		next[o.Client]++
	}
	if r.Len() != clients*each || len(all) != clients*each {
		t.Errorf("%d were recorded, and %d returned", r.Len(), len(all))
	}
	all[0].Client = 99
	if r.Add(Operation{Outcome: Unknown, Return: 5}); r.Operations()[0].Client == 99 {
		t.Error("what was returned is what is kept")
	}
	if last := r.Operations()[clients*each]; last.Return != Never {
		t.Errorf("an operation of unknown outcome returned at %v", last.Return)
	}
}

// What each kind of operation has found, and how it is written in an error.
func TestOperations(t *testing.T) {
	for _, c := range []struct {
		o     Operation
		found string
		known bool
		text  string
	}{
		{Operation{Kind: Get, Got: "a", Outcome: Answered, Call: 1, Return: 2, MaxAge: 5}, "a", true, `[1ns 2ns] client 0 get at most 5ns old: found "a"`},
		{Operation{Kind: Get, Outcome: Unknown, Call: 1}, "", false, "[1ns ...] client 0 get: unknown"},
		{Operation{Kind: Put, Value: "b", Outcome: Answered, Call: 1, Return: 2, Index: 7}, "", false, `[1ns 2ns] client 0 put to "b": done, at index 7`},
		{Operation{Kind: Swap, Want: "a", Value: "b", Took: true, Outcome: Answered, Return: 1}, "a", true, `[0s 1ns] client 0 swap if "a" to "b": done`},
		{Operation{Kind: Swap, Want: "a", Value: "b", Got: "c", Outcome: Answered, Return: 1}, "c", true, `[0s 1ns] client 0 swap if "a" to "b": found "c"`},
		{Operation{Kind: Delete, Want: "a", Outcome: Unknown}, "a", true, `[0s ...] client 0 delete if "a": unknown`},
		{Operation{Kind: Exchange, Value: "b", Got: "a", Outcome: Answered, Return: 1}, "a", true, `[0s 1ns] client 0 exchange to "b": found "a"`},
		{Operation{Kind: Append, Value: "b", Got: "a", Outcome: Refused, Return: 1}, "", false, `[0s 1ns] client 0 append of "b": refused`},
	} {
		if found, known := c.o.Found(); found != c.found || known != c.known {
			t.Errorf("%v: found %q, %v", c.o, found, known)
		}
		if text := c.o.String(); text != c.text {
			t.Errorf("%s, want %s", text, c.text)
		}
	}
	if o := (Operation{Call: 7, MaxAge: 3}); o.Begin() != 4 {
		t.Errorf("it begins at %v", o.Begin())
	}
	list := ""
	for _, element := range []string{"a", "b", "c"} {
		list = Appended(list, element)
	}
	if !slices.Equal(List(list), []string{"a", "b", "c"}) || List("") != nil {
		t.Errorf("%q has the elements %q, and the empty one %q", list, List(list), List(""))
	}
}
