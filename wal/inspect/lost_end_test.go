package inspect

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal"
)

// tenEntries writes a closed log with the entries 1 to 10 of group 1, each appended alone.
func tenEntries(t *testing.T, fs vfs.FS, dir string, owner uint64) {
	t.Helper()
	l := open(t, fs, dir, owner)
	for i := uint64(1); i < 11; i++ {
		add(t, l, wal.Write{Group: 1, Entries: entries(i, i+1, 2, "x")})
	}
	closed(t, l)
}

// destroyHeader flips a bit in the header of an entry of group 1 in /log.
func destroyHeader(t *testing.T, fs vfs.FS, index uint64) {
	t.Helper()
	var found *Record
	err := ReadRecords(t.Context(), wal.InspectOptions{FS: fs, Dir: "/log"}, func(r Record) error {
		if r.Kind == "entry" && r.Index == index {
			found = &r
		}
		return nil
	})
	if err != nil || found == nil {
		t.Fatalf("entry %d: %v, %v", index, found, err)
	}
	change(t, fs, "/log/"+found.File, found.Offset, func(b []byte) { b[16] ^= 0x10 })
}

// A log that lost its end agrees with the log of its peer up to its last entry. Diff must still say that it
// is corrupt, and after a repair that it has amnesia. Its host does not start, so no leader sends it the
// missing entries.
func TestDiffOfALogThatLostItsEnd(t *testing.T) {
	fs := crashfs.New()
	tenEntries(t, fs, "/log", 7)
	tenEntries(t, fs, "/b", 8)
	destroyHeader(t, fs, 6)
	log, peer := wal.InspectOptions{FS: fs, Dir: "/log"}, wal.InspectOptions{FS: fs, Dir: "/b"}
	for _, tc := range []struct {
		name string
		exit int
	}{{"lost-end", ExitDamaged}, {"amnesia", ExitAmnesia}} {
		there, err := Diff(t.Context(), log, peer)
		if err != nil {
			t.Fatal(err)
		}
		back, err := Diff(t.Context(), peer, log)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []*Comparison{there, back} {
			var text bytes.Buffer
			if err := c.WriteText(&text); err != nil {
				t.Fatal(err)
			}
			for _, untrue := range []string{"agree:", "will send"} {
				if strings.Contains(text.String(), untrue) {
					t.Errorf("%s: the answer says %q", tc.name, untrue)
				}
			}
			if c.Exit() != tc.exit {
				t.Errorf("%s: exit status %d, want %d", tc.name, c.Exit(), tc.exit)
			}
		}
		goldenAnswer(t, "diff-"+tc.name, there, tc.exit)
		if _, err := Repair(t.Context(), wal.RepairOptions{InspectOptions: log, Write: true}); err != nil {
			t.Fatal(err)
		}
	}
}

// The header of entry 6 is destroyed, so the readable headers after the damage begin at 7. Entry 6 is lost
// too, and every answer that an operator reads before and after the repair must say so.
func TestEveryAnswerNamesTheSameLoss(t *testing.T) {
	for _, destroyed := range [][]uint64{{6}, {9, 6}, {1}} { // the last one first, because reading ends at a destroyed header
		t.Run(fmt.Sprint(destroyed), func(t *testing.T) {
			fs := crashfs.New()
			tenEntries(t, fs, "/log", 7)
			for _, i := range destroyed {
				destroyHeader(t, fs, i)
			}
			in := wal.InspectOptions{FS: fs, Dir: "/log"}
			var said []string
			verify := func() *Verdict {
				v, err := Verify(t.Context(), in)
				if err != nil {
					t.Fatal(err)
				}
				return v
			}
			repair := func(write, accept bool) {
				r, err := Repair(t.Context(), wal.RepairOptions{InspectOptions: in, Write: write, AcceptLoss: accept})
				if err != nil {
					t.Fatal(err)
				}
				for _, l := range r.Losses {
					said = append(said, spans(l.Lost))
				}
			}
			said = append(said, spans(verify().Findings[0].Lost))
			repair(false, false)
			repair(true, false)
			for _, h := range verify().Missing {
				said = append(said, fmt.Sprintf("group %d: %s", h.Group, span(h.First, h.Through)))
			}
			repair(true, true)
			want := "group 1: " + span(destroyed[len(destroyed)-1], 10)
			if len(said) != 5 {
				t.Fatalf("verify, plan, repair, verify, accept name %q", said)
			}
			for _, have := range said {
				if have != want {
					t.Fatalf("verify, plan, repair, verify, accept name %q, want %q from each", said, want)
				}
			}
		})
	}
}
