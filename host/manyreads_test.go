package host

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/millrace/millrace/host/outcome"
)

// Reads that wait for a leader are bounded in bytes, and all of them end with the group.
func TestThousandsOfReadsWaitAndEnd(t *testing.T) {
	l := openTestHost(t, 3)
	reads := make([]Read, 1<<13)
	refused := 0
	for i := range reads {
		switch r := &reads[i]; i % 3 {
		case 0:
			l.group.StartRead(r, 0)
		case 1:
			l.group.StartRead(r, time.Hour)
		default:
			l.group.StartApplied(r, uint64(1+i%7))
		}
		if _, done, err := reads[i].Poll(); done {
			if refused++; !errors.Is(err, outcome.ErrOverloaded) {
				t.Fatalf("read %d ends with %v", i, err)
			}
		}
	}
	l.manual.runIdle()
	if used, share := l.Memory().Waiting.Used, l.Memory().Waiting.Share; used > share || refused == 0 || refused == len(reads) {
		t.Errorf("%d of %d reads are refused, and the others hold %d of %d bytes", refused, len(reads), used, share)
	}
	if err := l.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if have := l.group.Metrics().Reads.Refused; have != uint64(refused) {
		t.Errorf("%d refusals are counted, want %d", have, refused)
	}
	for i := range reads {
		if _, done, err := reads[i].Poll(); !done || !errors.Is(err, outcome.ErrStopped) && !errors.Is(err, outcome.ErrOverloaded) {
			t.Fatalf("read %d: %t, %v after the end", i, done, err)
		}
	}
	if used := l.Memory().Waiting.Used; used != 0 {
		t.Errorf("%d bytes are held after the end", used)
	}
}

// A function that was given up before a lane has called it does not run, and holds nothing.
func TestAFunctionThatWasGivenUpDoesNotRun(t *testing.T) {
	l := openTestHost(t, 1)
	var given, kept Read
	ran := ""
	l.group.StartBetween(&given, func() { ran += "given up " })
	l.group.StartBetween(&kept, func() { ran += "kept" })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := given.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a read that was given up ends with %v", err)
	}
	l.manual.runIdle()
	if _, done, err := kept.Poll(); !done || err != nil || ran != "kept" {
		t.Errorf("%t, %v; these functions ran: %q, want the second", done, err, ran)
	}
	if used := l.Memory().Waiting.Used; used != 0 {
		t.Errorf("%d bytes are left", used)
	}
}
