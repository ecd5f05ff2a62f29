package host

import (
	"slices"
	"testing"
)

// A host that has forwarded commands is told the commit index as soon as it covers one of them, once for
// each advance, and not when nothing of the host waits. Where the log was cut, the commands that took the
// place count.
func TestForwardersAreToldWhatTheyWaitFor(t *testing.T) {
	var fs forwarders
	told := func(commit uint64, want ...uint64) {
		t.Helper()
		var have []uint64
		fs.due(commit, func(host uint64) { have = append(have, host) })
		if !slices.Equal(have, want) {
			t.Errorf("commit index %d: told %v, want %v", commit, have, want)
		}
	}
	told(100)
	fs.note(2, 10, 12)
	fs.note(3, 13, 13)
	told(9)
	told(11, 2)
	told(11)
	told(12, 2)
	told(13, 3)
	told(20)
	fs.note(2, 21, 21)
	told(20)
	fs.note(2, 22, 25)
	told(21, 2)
	fs.note(2, 22, 22) // the log was cut at 22
	told(22, 2)
	told(25)
	fs.note(2, 30, 40)
	fs.note(2, 28, 28) // the log was cut at 28
	told(28, 2)
	told(40)
}
