package wal

import "testing"

// A salvage that was cut off leaves the copy of a segment that is to take its place. A discarded log has no
// such place: the copy goes, too, or the next Open misses the segment.
func TestDiscardTakesTheDraftOfASalvage(t *testing.T) {
	one := forge(1).link(nil).entry(1)
	dir := forgedDir(one)
	dir[draftName] = one.file()
	fs := diskOf(t, dir)
	if err := Discard(fs, testDir); err != nil {
		t.Fatal(err)
	}
	opts := testOptions(fs, &manual{})
	opts.Owner = 9
	if l := mustOpen(t, opts); l.Group(1).LastIndex() > 0 {
		t.Errorf("what was discarded is back: %d", l.Group(1).LastIndex())
	}
}
