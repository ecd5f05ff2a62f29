package load_test

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/labtest"
	"github.com/millrace/millrace/cmd/internal/lab/load"
)

// What a load in another process has measured arrives whole, and what its clients know can be verified.
func TestTransfer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target, ledger := labtest.NewTarget(2), &load.Ledger{}
		target.Stall = func() { pass(time.Millisecond) }
		o := windowOf(t, target, load.Window{Warmup: 100 * time.Millisecond, Length: 1500 * time.Millisecond, Ledger: ledger})
		var b bytes.Buffer
		if err := load.Send(&b, o, ledger); err != nil {
			t.Fatal(err)
		}
		text := b.Bytes()
		have, theirs, err := load.Receive(&b)
		if err != nil {
			t.Fatal(err)
		}
		if have.Completed != o.Completed || have.Length != o.Length || have.Latency.Count() != o.Latency.Count() || have.Latency.Quantile(0.99) != o.Latency.Quantile(0.99) ||
			have.Timeline.Rate(0, time.Second) != o.Timeline.Rate(0, time.Second) || have.Timeline.Second(1).Max() != o.Timeline.Second(1).Max() ||
			!have.Timeline.Origin.Equal(o.Timeline.Origin) {
			t.Errorf("%+v", have)
		}
		if err := target.Verify(t.Context(), theirs); err != nil || theirs.Acked() != ledger.Acked() {
			t.Errorf("%d acknowledged, want %d: %v", theirs.Acked(), ledger.Acked(), err)
		}
		for n := range 20 { // what is cut off is no outcome
			if _, _, err := load.Receive(bytes.NewReader(text[:len(text)*n/20])); err == nil {
				t.Errorf("%d/20 of the bytes were read without an error", n)
			}
		}
	})
}
