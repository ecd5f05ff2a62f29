package main

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/internal/counting"
)

// fussy is a counter that cannot take 13.
type fussy struct{ counting.Counter }

func (f *fussy) Apply(batch []millrace.Command[int64], results []int64) error {
	for _, c := range batch {
		if c.Value == 13 {
			panic("thirteen")
		}
	}
	return f.Counter.Apply(batch, results)
}

// A command that was skipped is shown: wal dump names the entry with the command, snapshot inspect the
// commands that the state lacks.
func TestSkipIsShown(t *testing.T) {
	dir := t.TempDir()
	resumed := make(chan struct{}, 1)
	n, err := millrace.Open(t.Context(), millrace.Config{ID: 1, Dir: dir, Members: map[uint64]string{1: "127.0.0.1:0"}, Logger: slog.New(slog.DiscardHandler), OnEvent: func(e millrace.Event) {
		if _, is := e.(event.MachineResumed); is {
			resumed <- struct{}{}
		}
	}}, millrace.InMemory(&fussy{}, millrace.Binary[int64]()))
	if err != nil {
		t.Fatal(err)
	}
	propose(t, n, 1, 1)
	if _, err := n.TakeSnapshot(t.Context()); err != nil { // with which it goes on when the command is skipped
		t.Fatal(err)
	}
	var halted *millrace.HaltedError
	if _, err := n.Propose(t.Context(), 13); !errors.As(err, &halted) || halted.First != halted.Last {
		t.Fatal(err)
	}
	if err := n.SkipCommand(t.Context(), millrace.Position{Index: halted.First, Pos: halted.FirstPos}); err != nil {
		t.Fatal(err)
	}
	<-resumed
	propose(t, n, 2, 3)
	if _, err := n.TakeSnapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := n.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		fmt.Sprintf("(skip of command %d)", halted.First):                          {"wal", "dump", dir},
		fmt.Sprintf(`"what":"skip of command %d"`, halted.First):                   {"wal", "dump", "--json", dir},
		fmt.Sprintf("without the commands [%d], which were skipped", halted.First): {"snapshot", "inspect", dir},
		fmt.Sprintf("\"skipped\": [\n        %d\n      ]", halted.First):           {"snapshot", "inspect", "--json", dir},
	} {
		var out strings.Builder
		if status := run(t.Context(), args, app{stdout: &out}); status != exitOK || !strings.Contains(out.String(), want) {
			t.Errorf("%v: status %d, no %q in\n%s", args, status, want, out.String())
		}
	}
}
