package bench

import (
	"context"
	"errors"
	"hash/crc32"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/load"
)

func TestFullBareAppliesEverywhere(t *testing.T) {
	for _, s := range []load.Setup{{Hosts: 1, ValueBytes: 100, InFlight: 1}, {Hosts: 3, ValueBytes: 1024, InFlight: 20}} {
		s.Dir = t.TempDir()
		target, err := openFullBare(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		b := target.(*bare)
		t.Cleanup(func() {
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		})
		l := acknowledged(t, b, s)
		if err := b.Verify(t.Context(), l.Ledger()); err != nil {
			t.Fatal(err)
		}
		c, want := b.Counters(), l.Ledger().Acked()*uint64(s.Hosts)
		if want == 0 || c.AppendedEntries != want || c.AppliedEntries != want || c.Applies == 0 || c.Fsyncs == 0 {
			t.Errorf("%d acknowledged on %d hosts: %+v", want, s.Hosts, c)
		}
		for i, m := range b.full.machines() {
			if have := m.State().Entries * uint64(s.Hosts); have != want {
				t.Errorf("host %d applied %d values of %d", i+1, have, want)
			}
		}
		_, page := l.Ledger().Open()
		page.Acknowledge(page.Send())
		short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if err := b.Verify(short, l.Ledger()); !errors.Is(err, lab.ErrMismatch) {
			t.Errorf("lost write: %v", err)
		}
		cancel()
	}
}

// streamOf is a stream of values, with marks where the test puts them, and the positions of its records.
func streamOf(values [][]byte, tell func(f *fullBare, i int, end uint64)) []byte {
	r := &ring{buf: make([]byte, 1<<20), heads: make([]uint64, 1)}
	f := &fullBare{}
	for i, v := range values {
		end := f.append(r, v, crc32.Checksum(v, castagnoli))
		tell(f, i, end)
	}
	f.mark(r)
	return r.buf[:r.tail]
}

// A follower applies what marks cover and nothing beyond, whatever the reads from its socket are cut into.
func TestFollowerAppliesWhatIsCommitted(t *testing.T) {
	source := load.NewSource(200, 1)
	var values [][]byte
	for i := range 100 {
		values = append(values, source.Value(load.ValueID{Seq: uint64(i)}))
	}
	var covered uint64 // values below the last mark
	stream := streamOf(values, func(f *fullBare, i int, end uint64) {
		if i%7 == 3 {
			f.answered, covered = end, uint64(i+1)
		}
	})
	for _, step := range []int{1, 3, 208, 1000, len(stream)} {
		c := newChecked(&fullVoter{}, 256) // it grows, and is compacted
		for rest := stream; len(rest) > 0; {
			n := copy(c.space(), rest[:min(step, len(rest))])
			fresh, err := c.take(n)
			if err != nil {
				t.Fatal(err)
			}
			if string(fresh) != string(rest[:n]) {
				t.Fatalf("steps of %d: take returns other bytes than were read", step)
			}
			c.apply()
			rest = rest[n:]
		}
		if have := c.voter.machine.State().Entries; have != covered || c.voter.appended.Load() != 100 {
			t.Errorf("steps of %d: %d applied, want %d; %d of 100 appended", step, have, covered, c.voter.appended.Load())
		}
		if err := c.voter.machine.Verify(ledgerOf(100, int(covered))); err != nil {
			t.Error(err)
		}
	}
}

// ledgerOf is a client that has sent some values, of which the first have been acknowledged.
func ledgerOf(sent, acknowledged int) *load.Ledger {
	l := &load.Ledger{}
	_, page := l.Open()
	for i := range sent {
		if seq := page.Send(); i < acknowledged {
			page.Acknowledge(seq)
		}
	}
	return l
}

// A bit that changed on the way, in a value or in a length, stops the follower before it acknowledges.
func TestFollowerRefusesWhatIsDamaged(t *testing.T) {
	value := load.NewSource(200, 1).Value(load.ValueID{})
	for _, tc := range []struct {
		at   int
		want string
	}{
		{fullHeaderBytes + 150, "does not have its checksum"},
		{5, "does not have its checksum"},
		{3, "says that it has"},
	} {
		stream := streamOf([][]byte{value}, func(*fullBare, int, uint64) {})
		stream[tc.at] ^= 0x40
		c := newChecked(&fullVoter{}, 1<<10)
		_, err := c.take(copy(c.space(), stream))
		if !errors.Is(err, lab.ErrMismatch) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("byte %d: %v, want %q", tc.at, err, tc.want)
		}
	}
}
