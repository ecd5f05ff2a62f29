package members

import (
	"testing"

	"github.com/millrace/millrace/wal"
)

// fencedLog is a log with a mark. Its groups are 1 and 2, it has lost the beginning of group 3, and group 4
// was removed.
type fencedLog struct{ fence wal.Fence }

func (l fencedLog) Groups() []uint64  { return []uint64{1, 2, 4} }
func (l fencedLog) Deleted() []uint64 { return []uint64{4} }
func (l fencedLog) Holes() []wal.Hole { return []wal.Hole{{Group: 3}} }
func (l fencedLog) Fence() wal.Fence  { return l.fence }

// The mark of a log goes when each of its groups has authority again, or is removed. A group regains
// authority once in the life of its host.
func TestAuthority(t *testing.T) {
	var a Authority
	a.Init(fencedLog{wal.Fence{Amnesia: true, LacksTerms: true}})
	for _, id := range []uint64{1, 3, 5} {
		if !a.Open(id) || !a.WaitsForMeetings() {
			t.Errorf("group %d has authority", id)
		}
	}
	for _, id := range []uint64{1, 2, 4, 3, 1} {
		if a.Regained(id) || !a.WaitsForMeetings() {
			t.Errorf("after group %d all have authority", id)
		}
	}
	if a.Open(1) {
		t.Error("group 1 has lost authority again")
	}
	if !a.Regained(5) || a.WaitsForMeetings() || a.Regained(5) {
		t.Error("all have authority, and that is not seen once")
	}
	var whole Authority
	whole.Init(fencedLog{})
	if whole.Open(1) || whole.Regained(1) || whole.WaitsForMeetings() {
		t.Error("a whole log has no authority")
	}
}
