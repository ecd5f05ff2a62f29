package appendlane

import (
	"bytes"
	"testing"

	"github.com/millrace/millrace/internal/arena"
)

// TestBlocksAreHeldUntilTheWrite is about data in blocks: the queue holds them until the log has the entries,
// whatever the turn does meanwhile. Then the cache holds what it shows. When the group leaves, or the disk
// refuses its entries and they are discarded, nothing is held.
func TestBlocksAreHeldUntilTheWrite(t *testing.T) {
	data := bytes.Repeat([]byte{7}, 600)
	for _, end := range []struct {
		name  string
		lives bool // the log must show the data afterwards
		by    func(s *testLane)
	}{
		{"written", true, func(s *testLane) { s.run() }},
		{"left", false, func(s *testLane) { s.Leave(s.q.Queue, false); s.run() }},
		{"stopped", false, func(s *testLane) { s.q.Release() }},
		{"discarded", false, func(s *testLane) {
			s.disk.SetHook(noNewSegments)
			s.run()
			s.Discard(s.q.Queue)
			s.run()
		}},
		{"written later", true, func(s *testLane) {
			s.disk.SetHook(noNewSegments)
			s.run()
			s.disk.SetHook(nil)
			s.Tick()
			s.run()
		}},
	} {
		t.Run(end.name, func(t *testing.T) {
			s := newTestLane(t)
			pool := arena.New(arena.Options{BlockBytes: 1 << 10, IdleBytes: 1 << 20, Poison: true})
			filler := arena.NewFiller(pool)
			s.put(sized(1, 100<<10)) // more than the segment has
			var all []arena.Ref
			for i := range uint64(3) { // each message comes with the blocks of all that are queued
				m := sized(i+2, 0)
				m.Entries[0].Data, all = filler.Copy(data, all)
				s.Hand(s.q.Queue, m, all...)
			}
			filler.Close()
			arena.ReleaseAll(all) // the turn
			end.by(s)
			own, ok := s.wal.Group(theGroup).Recent(2, 5, 1<<20)
			if ok != end.lives {
				t.Fatalf("the log shows %d entries (%t), want that to be %t", len(own), ok, end.lives)
			}
			for _, e := range own {
				if !bytes.Equal(e.Data, data) {
					t.Errorf("entry %d has %q", e.Index, e.Data[:9])
				}
			}
			if err := s.wal.Close(); err != nil {
				t.Error(err)
			}
			if err := pool.Home(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestBlocksOfALeavingGroup: a turn that hands over more when the lane has released the group leaves the
// blocks to the garbage collector.
func TestBlocksOfALeavingGroup(t *testing.T) {
	s := newTestLane(t)
	pool := arena.New(arena.Options{BlockBytes: 1 << 10, Poison: true})
	filler := arena.NewFiller(pool)
	s.Leave(s.q.Queue, false)
	s.run()
	m := sized(1, 0)
	var refs []arena.Ref
	m.Entries[0].Data, refs = filler.Copy([]byte("late"), nil)
	s.Hand(s.q.Queue, m, refs...)
	filler.Close()
	arena.ReleaseAll(refs)
	if err := pool.Home(); err != nil || string(m.Entries[0].Data) != "late" {
		t.Errorf("%q: %v", m.Entries[0].Data, err)
	}
}
