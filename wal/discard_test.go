package wal

import "testing"

// A salvage that crashed leaves a copy that would have replaced a segment. Discard must remove the copy too.
// Otherwise the next Open reports that the segment is missing.
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
