package leadership

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/host/internal/control"
)

// Records about what is applied are read as they were written, and nothing else is.
func TestAppliedRecords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom([]byte{control.AppliedQuestion, control.AppliedAnswer}).Draw(t, "kind")
		r := AppliedRecord{Group: rapid.Uint64().Draw(t, "group"), Term: rapid.Uint64().Draw(t, "term"), Number: rapid.Uint64().Draw(t, "number")}
		if kind == control.AppliedAnswer {
			r.Applied = rapid.Uint64().Draw(t, "applied")
		}
		b := r.Encode(kind)
		if have, err := DecodeApplied(b); err != nil || have != r {
			t.Fatalf("%+v is read as %+v, %v", r, have, err)
		}
		cut := rapid.IntRange(1, len(b)-1).Draw(t, "cut")
		for _, bad := range [][]byte{b[:cut], append(b, 0)} {
			if _, err := DecodeApplied(bad); !errors.Is(err, control.ErrBad) {
				t.Fatalf("%v is read: %v", bad, err)
			}
		}
	})
}
