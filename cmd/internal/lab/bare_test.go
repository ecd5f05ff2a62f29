package lab

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"
)

func openTestBare(t *testing.T, s Setup) *bare {
	t.Helper()
	s.Dir = t.TempDir()
	target, err := OpenBare(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := target.Close(); err != nil {
			t.Error(err)
		}
	})
	return target.(*bare)
}

func TestBareReplicatesAndSurvivesItsCheck(t *testing.T) {
	for _, s := range []Setup{{Nodes: 1, ValueBytes: 100, InFlight: 1}, {Nodes: 3, ValueBytes: 1024, InFlight: 20}} {
		b := openTestBare(t, s)
		l := newLoad(b, newValueSource(s.ValueBytes, 1), 0, 100*time.Millisecond)
		_, err := l.run(t.Context(), noPhase, func(ctx context.Context, wg *sync.WaitGroup) { l.startClosed(ctx, s.InFlight, wg) })
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Verify(t.Context(), l.ledger); err != nil {
			t.Fatal(err)
		}
		c, acked := b.Counters(), l.ledger.Acked()
		if acked == 0 || c.AppendedEntries != acked*uint64(s.Nodes) || c.FsyncBytes != acked*uint64((s.ValueBytes+4)*s.Nodes) || c.Fsyncs == 0 {
			t.Errorf("%d acknowledged: %+v", acked, c)
		}

		// An acknowledged write that never arrived, and a bit that rots on a follower's disk.
		page := l.ledger.pages[0]
		page.acked.add(page.sent)
		if err := b.Verify(t.Context(), l.ledger); !errors.Is(err, ErrMismatch) || !strings.Contains(err.Error(), "is not there") {
			t.Errorf("lost write: %v", err)
		}
		if s.Nodes > 1 {
			if _, err := b.voters[1].log.segments[0].WriteAt([]byte{0xff}, 300); err != nil {
				t.Fatal(err)
			}
			if err := b.Verify(t.Context(), l.ledger); !errors.Is(err, ErrMismatch) || !strings.Contains(err.Error(), "voter 3") {
				t.Errorf("rotten bit: %v", err)
			}
		}
	}
}

// Values that fill the ring many times over, so that writers wait for room and records wrap.
func TestBareRingWraps(t *testing.T) {
	b := openTestBare(t, Setup{Nodes: 3, ValueBytes: 1, InFlight: 1}) // the smallest ring: 1 MiB
	source := newValueSource(300_001, 1)
	ledger := newLedger()
	var wg sync.WaitGroup
	for range 8 {
		id, page := ledger.open()
		wg.Go(func() {
			for range 20 {
				seq := page.sent
				page.sent++
				if err := b.Propose(t.Context(), source.value(valueID{id, seq})); err != nil {
					t.Error(err)
					return
				}
				page.acked.add(seq)
			}
		})
	}
	wg.Wait()
	if err := b.Verify(t.Context(), ledger); err != nil {
		t.Fatal(err)
	}
}

// One follower that is gone stops the yardstick: who waits gets an answer, and so does who comes later.
func TestBareAnswersEverybodyWhenItStops(t *testing.T) {
	b := openTestBare(t, Setup{Nodes: 3, ValueBytes: 64, InFlight: 4})
	var wg sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		wg.Go(func() {
			for errs[i] == nil {
				errs[i] = b.Propose(t.Context(), make([]byte, 64))
			}
		})
	}
	if err := b.voters[0].conn.Close(); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	for _, err := range append(errs, b.Propose(t.Context(), make([]byte, 64))) {
		if err == nil {
			t.Error("a write was acknowledged after the stop")
		}
	}
}
