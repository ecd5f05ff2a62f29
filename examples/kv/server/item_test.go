package server

import "testing"

// Commands that share an entry give different versions, so a change with the version of the first does not
// pass for one with that of the second.
func TestCommandsOfOneEntryHaveVersionsOfTheirOwn(t *testing.T) {
	seen := map[uint64]bool{}
	for _, index := range []uint64{1, 2, 1 << 40} {
		for _, pos := range []uint32{0, 1, 1<<16 - 1} {
			v := VersionOf(index, pos)
			if seen[v] || pos == 0 && v != index {
				t.Errorf("command %d.%d gives version %d", index, pos, v)
			}
			seen[v] = true
		}
	}
}
