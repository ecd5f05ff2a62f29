package proposals

import (
	"slices"
	"testing"
)

// A host that has forwarded commands is told the commit index as soon as it covers one of them. It is told
// once for each advance, and not when nothing of the host waits. Where the log was cut, the commands that
// took the place count.
func TestForwardersAreToldWhatTheyWaitFor(t *testing.T) {
	var fs Forwarders
	told := func(commit uint64, want ...uint64) {
		t.Helper()
		var have []uint64
		fs.Due(commit, func(host uint64) { have = append(have, host) })
		if !slices.Equal(have, want) {
			t.Errorf("commit index %d: told %v, want %v", commit, have, want)
		}
	}
	told(100)
	fs.Add(2, 10, 12)
	fs.Add(3, 13, 13)
	told(9)
	told(11, 2)
	told(11)
	told(12, 2)
	told(13, 3)
	told(20)
	fs.Add(2, 21, 21)
	told(20)
	fs.Add(2, 22, 25)
	told(21, 2)
	fs.Add(2, 22, 22) // the log was cut at 22
	told(22, 2)
	told(25)
	fs.Add(2, 30, 40)
	fs.Add(2, 28, 28) // the log was cut at 28
	told(28, 2)
	told(40)
}

// Each frame number counts once, also when numbers come late; those that are too old count as seen.
func TestSeenFrames(t *testing.T) {
	var s SeenFrames
	naive := map[uint64]bool{}
	last := uint64(0)
	for i, n := range []uint64{100, 100, 101, 99, 99, 98, 105, 103, 103, 104, 102, 200, 137, 136, 135, 200, 201, 150, 150, 300, 237, 236, 235, 1 << 50, 1<<50 - 1, 300} {
		want := !naive[n] && (last == 0 || n > last || last-n <= 64)
		if got := s.Observe(&Frame{From: 2, Number: n}); got != want {
			t.Errorf("step %d: frame %d after %d: first time %v, want %v", i, n, last, got, want)
		}
		naive[n], last = true, max(last, n)
	}
	if !s.Observe(&Frame{From: 3, Number: 100}) || !s.Observe(&Frame{From: 2, Bulk: true, Number: 100}) {
		t.Error("frames of another host, or of another kind, count as seen")
	}
}
