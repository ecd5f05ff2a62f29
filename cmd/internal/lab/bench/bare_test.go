package bench

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/labtest"
	"github.com/millrace/millrace/cmd/internal/lab/load"
)

func openTestBare(t *testing.T, s load.Setup) *bare {
	t.Helper()
	if s.Dir == "" {
		s.Dir = t.TempDir()
	}
	target, err := openBare(t.Context(), s)
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

// acknowledged is a load after which b has acknowledged a write.
func acknowledged(t *testing.T, b *bare, s load.Setup) (l *load.Load) {
	t.Helper()
	for length := range labtest.Lengths(100 * time.Millisecond) {
		l = load.New(b, load.NewSource(s.ValueBytes, 1), 0, length)
		if _, err := l.Run(t.Context(), func(string) {}, load.Closed{Clients: s.InFlight}); err != nil {
			t.Fatal(err)
		}
		if l.Ledger().Acked() > 0 {
			break
		}
	}
	return l
}

func TestBareReplicatesAndSurvivesItsCheck(t *testing.T) {
	for _, s := range []load.Setup{{Hosts: 1, ValueBytes: 100, InFlight: 1}, {Hosts: 3, ValueBytes: 1024, InFlight: 20}} {
		s.Dir = t.TempDir()
		b := openTestBare(t, s)
		l := acknowledged(t, b, s)
		if err := b.Verify(t.Context(), l.Ledger()); err != nil {
			t.Fatal(err)
		}
		c, acked := b.Counters(), l.Ledger().Acked()
		if acked == 0 || c.AppendedEntries != acked*uint64(s.Hosts) || c.FsyncBytes != acked*uint64((s.ValueBytes+4)*s.Hosts) || c.Fsyncs == 0 {
			t.Errorf("%d acknowledged: %+v", acked, c)
		}

		// A write that was acknowledged and never arrived.
		_, page := l.Ledger().Open()
		page.Acknowledge(page.Send())
		if err := b.Verify(t.Context(), l.Ledger()); !errors.Is(err, lab.ErrMismatch) || !strings.Contains(err.Error(), "is not there") {
			t.Errorf("lost write: %v", err)
		}
		if s.Hosts > 1 { // a bit rots on a follower's disk
			spoil(t, filepath.Join(s.Dir, "bare-3-0.log"), 300)
			if err := b.Verify(t.Context(), l.Ledger()); !errors.Is(err, lab.ErrMismatch) || !strings.Contains(err.Error(), "voter 3") {
				t.Errorf("rotten bit: %v", err)
			}
		}
	}
}

// Values fill the ring many times over, so that writers wait for space and records wrap.
func TestBareRingWraps(t *testing.T) {
	b := openTestBare(t, load.Setup{Hosts: 3, ValueBytes: 1, InFlight: 1}) // the smallest ring: 1 MiB
	source := load.NewSource(300_001, 1)
	ledger := &load.Ledger{}
	var wg sync.WaitGroup
	for range 8 {
		id, page := ledger.Open()
		wg.Go(func() {
			for range 20 {
				seq := page.Send()
				if err := b.Propose(t.Context(), source.Value(load.ValueID{Client: id, Seq: seq})); err != nil {
					t.Error(err)
					return
				}
				page.Acknowledge(seq)
			}
		})
	}
	wg.Wait()
	if err := b.Verify(t.Context(), ledger); err != nil {
		t.Fatal(err)
	}
}

// A follower that is gone stops the baseline. Clients that wait get an answer, and so do later ones.
func TestBareAnswersEveryClientWhenItStops(t *testing.T) {
	b := openTestBare(t, load.Setup{Hosts: 3, ValueBytes: 64, InFlight: 4})
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

// spoil changes one byte of a file.
func spoil(t *testing.T, path string, at int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{0xff}, at); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}
