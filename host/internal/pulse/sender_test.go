package pulse

import "testing"

// testShard is a shard on a script.
type testShard struct{ hangs bool }

func (s *testShard) Hangs() bool { return s.hangs }

// A group whose shard hangs is in no list, and the answers to such a list do not count for it when the shard
// works again.
func TestAnswersDoNotCountForAHungShard(t *testing.T) {
	s := &testShard{}
	p, g := New(1, 5, []uint64{2, 3}, []Shard{s}), &testGroup{id: 7, shard: s}
	p.Set(g, []uint64{1, 2, 3}, 1, 1)
	beat := func() Record { return p.Beat()[0].Record }
	answer := func(r Record, at int64) (active int) {
		p.Answered(2, Answer{Life: r.Life, Version: r.Version, Known: true}, at)
		p.Active(g, at, func(uint64, int64) { active++ })
		return active
	}
	if r := beat(); len(r.Lines) != 1 {
		t.Fatalf("the list is %+v, want the group", r)
	}
	s.hangs = true
	r := beat()
	if !r.Pulses || !r.HasList || len(r.Lines) != 0 {
		t.Fatalf("the list is %+v, want none of the shard that hangs", r)
	}
	s.hangs = false
	if answer(r, 1000) > 0 {
		t.Fatal("an answer to a list without the group counts for it")
	}
	if r = beat(); len(r.Lines) != 1 {
		t.Fatalf("the list is %+v, want the group again", r)
	}
	if answer(r, 1001) != 1 {
		t.Fatal("an answer to the list with the group does not count")
	}
}

// A group that has stopped is put into no list.
func TestStoppedLeaderIsNotVouchedFor(t *testing.T) {
	p, g := New(1, 5, []uint64{2}, nil), &testGroup{id: 7, ended: true}
	if p.Set(g, []uint64{1, 2}, 1, 1) || p.Beat()[0].Pulses {
		t.Error("a pulse vouches for a group that has stopped")
	}
}
