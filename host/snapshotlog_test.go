package host

import "testing"

// A log that grows for long behind a snapshot is thinned out to few marks, and the bytes since the snapshot
// are still known: their metric, and the bound of what a transfer keeps of the log, rest on that.
func TestMarksReachBackToTheSnapshot(t *testing.T) {
	s := &groupSnapshots{spacing: minSpacing}
	for i := range uint64(100_000) {
		s.mark(i+1, s.applied.Add(minSpacing))
	}
	for _, index := range []uint64{1, 10, 50_000, 99_999} {
		have, want := s.bytesSince(index), int64(100_000-index)*minSpacing
		if have < want || have > want+s.spacing {
			t.Errorf("%d bytes since entry %d, want %d, or up to %d more", have, index, want, s.spacing)
		}
	}
}
