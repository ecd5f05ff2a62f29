package inspect

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal"
)

var writeGolden = flag.Bool("write-golden", false, "write testdata instead of comparing with it")

// golden compares an output with testdata/name.
func golden(t *testing.T, name, have string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *writeGolden {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(have), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if have != string(want) {
		t.Errorf("%s has changed (-write-golden if that is meant). Have:\n%s", name, have)
	}
}

// goldenAnswer compares both forms of an answer, and its exit status.
func goldenAnswer(t *testing.T, name string, a Answer, exit int) {
	t.Helper()
	var text, js bytes.Buffer
	if err := errors.Join(a.WriteText(&text), WriteJSON(&js, a)); err != nil {
		t.Fatal(err)
	}
	golden(t, name+".txt", text.String())
	golden(t, name+".json", js.String())
	if a.Exit() != exit {
		t.Errorf("%s: exit status %d, want %d", name, a.Exit(), exit)
	}
}

type idle struct{}

func (idle) Go(string, env.Kind, env.Worker) env.Task { return idle{} }
func (idle) Wake()                                    {}
func (idle) Stop()                                    {}

func open(t *testing.T, fs vfs.FS, dir string, owner uint64) *wal.Log {
	t.Helper()
	l, err := wal.Open(wal.Options{FS: fs, Rand: rand.NewChaCha8([32]byte{1}), Dir: dir, Scheduler: idle{}, Owner: owner, SegmentBytes: 4096})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func add(t *testing.T, l *wal.Log, writes ...wal.Write) {
	t.Helper()
	if err := errors.Join(l.Append(writes), l.Sync()); err != nil {
		t.Fatal(err)
	}
}

func entries(lo, hi, term uint64, data string) (es []raftpb.Entry) {
	for i := lo; i < hi; i++ {
		es = append(es, raftpb.Entry{Index: i, Term: term, Data: fmt.Appendf(nil, "%s %d", data, i)})
	}
	return es
}

// story writes the log of one host: three segments, two groups, three terms.
func story(t *testing.T, fs vfs.FS, dir string, owner uint64) *wal.Log {
	t.Helper()
	l := open(t, fs, dir, owner)
	add(t, l, wal.Write{Group: 1, HardState: raftpb.HardState{Term: 2, Vote: 1}, Entries: entries(1, 11, 2, "first")})
	add(t, l, wal.Write{Group: 2, Snapshot: wal.Snapshot{Index: 100, Term: 5}, HardState: raftpb.HardState{Term: 6, Vote: 2, Commit: 100}})
	for i := uint64(11); i < 51; i += 10 {
		add(t, l, wal.Write{Group: 1, HardState: raftpb.HardState{Term: 3, Vote: 2, Commit: i - 1}, Entries: entries(i, i+10, 3, strings.Repeat("second ", 10))},
			wal.Write{Group: 2, Entries: entries(i+90, i+100, 6, "other")})
	}
	add(t, l, wal.Write{Group: 1, TruncateFrom: 49})
	add(t, l, wal.Write{Group: 1, HardState: raftpb.HardState{Term: 4, Vote: 3, Commit: 48}, Entries: entries(49, 52, 4, "third"), CompactThrough: 5})
	return l
}

func closed(t *testing.T, l *wal.Log) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// change edits 64 bytes of a file, without the log.
func change(t *testing.T, fs vfs.FS, name string, off int64, edit func(b []byte)) {
	t.Helper()
	f, err := fs.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 64)
	if _, err := f.ReadAt(b, off); err != nil {
		t.Fatal(err)
	}
	edit(b)
	if _, err := f.WriteAt(b, off); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

func flip(b []byte) { b[0] ^= 0x10 }

func segment(n int) string { return fmt.Sprintf("/log/%016x.wal", n) }

// harm is something that can happen to a log, and the exit status of verify after it.
type harm struct {
	name string
	exit int
	harm func(t *testing.T, fs *crashfs.FS)
}

var harms = []harm{
	{"whole", ExitWhole, func(*testing.T, *crashfs.FS) {}},
	{"torn", ExitWhole, func(t *testing.T, fs *crashfs.FS) {
		l := open(t, fs, "/log", 7)
		if err := l.Append([]wal.Write{{Group: 1, Entries: entries(52, 60, 4, "torn")}}); err != nil {
			t.Fatal(err)
		}
		n := uint64(0)
		fs.Crash(crashfs.LoseSome, func() uint64 { n++; return n })
	}},
	{"unfinished", ExitWhole, func(t *testing.T, fs *crashfs.FS) { // a whole write, and then one that lost its last sectors
		l := open(t, fs, "/log", 7)
		if err := l.Append([]wal.Write{
			{Group: 2, Entries: entries(140, 141, 6, "kept")},
			{Group: 1, HardState: raftpb.HardState{Term: 5, Vote: 1, Commit: 48}, Entries: entries(49, 60, 5, strings.Repeat("torn ", 30))},
		}); err != nil {
			t.Fatal(err)
		}
		fs.Crash(crashfs.LoseNothing, nil)
		for off := int64(2560); off < 4096; off += 64 {
			change(t, fs, segment(3), off, func(b []byte) { clear(b) })
		}
		fs.Crash(crashfs.LoseAll, nil) // a power cut; the changes are durable
	}},
	{"flip", ExitDamaged, func(t *testing.T, fs *crashfs.FS) { change(t, fs, segment(2), 1000, flip) }},
	{"flip-last", ExitDamaged, func(t *testing.T, fs *crashfs.FS) { change(t, fs, segment(3), 600, flip) }},
	{"header", ExitDamaged, func(t *testing.T, fs *crashfs.FS) { change(t, fs, segment(2), 16, flip) }},
	{"missing-first", ExitDamaged, func(t *testing.T, fs *crashfs.FS) { remove(t, fs, segment(1)) }},
	{"missing-middle", ExitDamaged, func(t *testing.T, fs *crashfs.FS) { remove(t, fs, segment(2)) }},
	{"missing-last", ExitDamaged, func(t *testing.T, fs *crashfs.FS) { remove(t, fs, segment(3)) }}, // the log was closed, so FENCE knows its end
	{"renamed", ExitDamaged, func(t *testing.T, fs *crashfs.FS) {
		if err := fs.Rename(segment(3), segment(9)); err != nil {
			t.Fatal(err)
		}
	}},
	{"foreign", ExitCannot, func(t *testing.T, fs *crashfs.FS) {
		closed(t, story(t, fs, "/other", 8))
		remove(t, fs, segment(2))
		if err := fs.Rename(strings.Replace(segment(2), "log", "other", 1), segment(2)); err != nil {
			t.Fatal(err)
		}
	}},
	{"foreign-first", ExitCannot, func(t *testing.T, fs *crashfs.FS) {
		closed(t, story(t, fs, "/other", 8))
		remove(t, fs, segment(1))
		if err := fs.Rename(strings.Replace(segment(1), "log", "other", 1), segment(1)); err != nil {
			t.Fatal(err)
		}
	}},
	{"future", ExitCannot, func(t *testing.T, fs *crashfs.FS) { future(t, fs, segment(3)) }},
	{"fence", ExitDamaged, func(t *testing.T, fs *crashfs.FS) {
		f, err := fs.Open("/log/FENCE")
		if err != nil {
			t.Fatal(err)
		}
		for _, off := range []int64{20, 4096 + 20} { // both copies
			if _, err := f.WriteAt([]byte{9}, off); err != nil {
				t.Fatal(err)
			}
		}
	}},
	{"extra", ExitWhole, func(t *testing.T, fs *crashfs.FS) {
		for _, name := range []string{"/log/notes.txt", "/log/3.wal", "/log/0000000000000000.spare"} {
			if _, err := fs.Create(name); err != nil {
				t.Fatal(err)
			}
		}
	}},
}

func remove(t *testing.T, fs vfs.FS, name string) {
	t.Helper()
	if err := fs.Remove(name); err != nil {
		t.Fatal(err)
	}
}

func TestVerify(t *testing.T) {
	for _, tc := range harms {
		t.Run(tc.name, func(t *testing.T) {
			fs := crashfs.New()
			closed(t, story(t, fs, "/log", 7))
			tc.harm(t, fs)
			v, err := Verify(t.Context(), wal.InspectOptions{FS: fs, Dir: "/log"})
			if err != nil {
				t.Fatal(err)
			}
			goldenAnswer(t, "verify-"+tc.name, v, tc.exit)
		})
	}
}

// The first segment belongs to another host. Verify must name that one, and not all the others.
func TestVerifyNamesTheStranger(t *testing.T) {
	fs := crashfs.New()
	closed(t, story(t, fs, "/log", 7))
	i := slices.IndexFunc(harms, func(h harm) bool { return h.name == "foreign-first" })
	harms[i].harm(t, fs)
	v, err := Verify(t.Context(), wal.InspectOptions{FS: fs, Dir: "/log"})
	if err != nil {
		t.Fatal(err)
	}
	strangers := 0
	for _, f := range v.Findings {
		if f.Kind == wal.Unreadable {
			strangers++
		}
	}
	if v.Owner != 7 || strangers != 1 || v.Findings[0].File != segment(1) {
		t.Errorf("the log of host %d, %+v; want the log of host 7, with a segment of another host in %s", v.Owner, v.Findings, segment(1))
	}
}

// Verify and Open agree on every log.
func TestVerifyIsWhatOpenDoes(t *testing.T) {
	for _, tc := range harms {
		fs := crashfs.New()
		closed(t, story(t, fs, "/log", 7))
		tc.harm(t, fs)
		l, err := wal.Open(wal.Options{FS: fs, Rand: rand.NewChaCha8([32]byte{1}), Dir: "/log", Scheduler: idle{}, Owner: 7, SegmentBytes: 4096})
		if opens := err == nil; opens != (tc.exit == ExitWhole) {
			t.Errorf("%s: exit status %d, but Open says %v", tc.name, tc.exit, err)
		}
		if err == nil {
			closed(t, l)
		}
	}
}

func TestStat(t *testing.T) {
	fs := crashfs.New()
	l := story(t, fs, "/log", 7)
	s, err := Stat(t.Context(), wal.InspectOptions{FS: fs, Dir: "/log"})
	if err != nil {
		t.Fatal(err)
	}
	goldenAnswer(t, "stat-in-use", s, ExitWhole)
	closed(t, l)
	if s, err = Stat(t.Context(), wal.InspectOptions{FS: fs, Dir: "/log"}); err != nil {
		t.Fatal(err)
	}
	goldenAnswer(t, "stat", s, ExitWhole)
}

func TestStatShowsDeletedGroups(t *testing.T) {
	fs := crashfs.New()
	l := open(t, fs, "/log", 7)
	add(t, l, wal.Write{Group: 1, Entries: entries(1, 4, 1, "x")}, wal.Write{Group: 9, Entries: entries(1, 4, 1, "x")}, wal.Write{Group: 9, Delete: true}, wal.Write{Group: 5, Delete: true})
	closed(t, l)
	s, err := Stat(t.Context(), wal.InspectOptions{FS: fs, Dir: "/log"})
	if err != nil {
		t.Fatal(err)
	}
	goldenAnswer(t, "stat-deleted", s, ExitWhole)
	if got := ids(make([]uint64, maxIDs+1)); got != strings.Repeat("0, ", maxIDs)+"…" {
		t.Errorf("%q", got)
	}
}

func TestDump(t *testing.T) {
	fs := crashfs.New()
	closed(t, story(t, fs, "/log", 7))
	change(t, fs, segment(2), 1000, flip)
	in := wal.InspectOptions{FS: fs, Dir: "/log"}
	for name, o := range map[string]DumpOptions{
		"dump":       {Data: "none"},
		"dump-text":  {Data: "text", ByGroup: true, Group: 1, From: 9, To: 12},
		"dump-hex":   {Data: "hex", ByGroup: true, Group: 2, Limit: 3},
		"dump-json":  {Data: "text", JSON: true, From: 10, To: 11},
		"dump-jsonl": {Data: "hex", JSON: true, Limit: 5},
	} {
		o.InspectOptions = in
		var b bytes.Buffer
		if err := Dump(t.Context(), o, &b); err != nil {
			t.Fatal(err)
		}
		golden(t, name+".txt", b.String())
	}
	for want, o := range map[string]DumpOptions{
		`--data: "base64" is not known`: {Data: "base64"},
		"--limit: -1 is negative":       {Data: "none", Limit: -1},
		"--from 5 is above --to 4":      {Data: "none", From: 5, To: 4},
	} {
		if err := Dump(t.Context(), o, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// Pairs of logs that two hosts can have.
func TestDiff(t *testing.T) {
	hs := func(term, commit uint64) raftpb.HardState {
		return raftpb.HardState{Term: term, Vote: 1, Commit: commit}
	}
	base := wal.Write{Group: 1, HardState: hs(2, 5), Entries: entries(1, 11, 2, "x")}
	for _, tc := range []struct {
		name    string
		exit    int
		verdict string
		a, b    []wal.Write
	}{
		{"same", ExitWhole, VerdictSame, []wal.Write{base}, []wal.Write{base}},
		{"prefix", ExitWhole, VerdictPrefix, []wal.Write{base}, []wal.Write{base, {Group: 1, Entries: entries(11, 20, 2, "x")}}},
		{"compacted", ExitWhole, VerdictPrefix, []wal.Write{base, {Group: 1, CompactThrough: 8}}, []wal.Write{base, {Group: 1, Entries: entries(11, 20, 2, "x")}}},
		{"empty", ExitWhole, VerdictPrefix, []wal.Write{base}, []wal.Write{{Group: 1, HardState: hs(1, 0)}}},
		{"apart", ExitDiffers, VerdictApart, []wal.Write{base}, []wal.Write{{Group: 1, HardState: hs(4, 50), Snapshot: wal.Snapshot{Index: 50, Term: 4}, Entries: entries(51, 60, 4, "x")}}},
		{"snapshot", ExitDiffers, VerdictApart, []wal.Write{base}, []wal.Write{{Group: 1, HardState: hs(4, 50), Snapshot: wal.Snapshot{Index: 50, Term: 4}}}},
		{"missing", ExitDiffers, VerdictMissing, []wal.Write{base}, []wal.Write{base, {Group: 9, HardState: hs(1, 0)}}},
		{"deleted", ExitDiffers, VerdictMissing, []wal.Write{base, {Group: 9, HardState: hs(1, 0)}, {Group: 9, Delete: true}}, []wal.Write{base, {Group: 9, HardState: hs(1, 0)}}},
		{"tail", ExitDiffers, VerdictTail, []wal.Write{base}, []wal.Write{base, {Group: 1, HardState: hs(3, 5), Entries: entries(8, 14, 3, "y")}}},
		{"tail-committed", ExitDiffers, VerdictTail, []wal.Write{base}, []wal.Write{base, {Group: 1, HardState: hs(3, 9), Entries: entries(8, 14, 3, "y")}}},
		{"violation", ExitDamaged, VerdictViolation, []wal.Write{base}, []wal.Write{base, {Group: 1, HardState: hs(3, 9), Entries: entries(4, 14, 3, "y")}}},
		{"log-matching", ExitDamaged, VerdictViolation, []wal.Write{base}, []wal.Write{base, {Group: 1, TruncateFrom: 9}, {Group: 1, Entries: entries(9, 11, 2, "z")}}},
		{"snapshot-violation", ExitDamaged, VerdictViolation, []wal.Write{base}, []wal.Write{{Group: 1, HardState: hs(3, 5), Snapshot: wal.Snapshot{Index: 5, Term: 1}}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			fs := crashfs.New()
			for i, writes := range [][]wal.Write{tc.a, tc.b} {
				l := open(t, fs, fmt.Sprintf("/%c", 'a'+i), uint64(i+1))
				for _, w := range writes {
					add(t, l, w)
				}
				closed(t, l)
			}
			c, err := Diff(t.Context(), wal.InspectOptions{FS: fs, Dir: "/a"}, wal.InspectOptions{FS: fs, Dir: "/b"})
			if err != nil {
				t.Fatal(err)
			}
			if c.Worst != tc.verdict {
				t.Errorf("%s, want %s", c.Worst, tc.verdict)
			}
			goldenAnswer(t, "diff-"+tc.name, c, tc.exit)
		})
	}
}

// If a log is damaged where Diff would have to compare it, Diff does not call it different.
func TestDiffOfADamagedLog(t *testing.T) {
	fs := crashfs.New()
	closed(t, story(t, fs, "/log", 7))
	closed(t, story(t, fs, "/b", 8))
	change(t, fs, segment(2), 1000, flip)
	c, err := Diff(t.Context(), wal.InspectOptions{FS: fs, Dir: "/log"}, wal.InspectOptions{FS: fs, Dir: "/b"})
	if err != nil {
		t.Fatal(err)
	}
	goldenAnswer(t, "diff-damaged", c, ExitDamaged)
}

func TestRepair(t *testing.T) {
	for _, tc := range harms {
		if tc.exit != ExitDamaged && tc.name != "foreign" && tc.name != "torn" && tc.name != "unfinished" {
			continue
		}
		t.Run(tc.name, func(t *testing.T) {
			fs := crashfs.New()
			closed(t, story(t, fs, "/log", 7))
			tc.harm(t, fs)
			opts := wal.RepairOptions{InspectOptions: wal.InspectOptions{FS: fs, Dir: "/log"}}
			planned, done := ExitDamaged, ExitAmnesia
			switch tc.name {
			case "foreign":
				planned, done = ExitCannot, ExitCannot
			case "torn", "unfinished":
				planned, done = ExitWhole, ExitWhole
			}
			plan, err := Repair(t.Context(), opts)
			if err != nil {
				t.Fatal(err)
			}
			goldenAnswer(t, "repair-plan-"+tc.name, plan, planned)
			opts.Write = true
			m, err := Repair(t.Context(), opts)
			if err != nil {
				t.Fatal(err)
			}
			goldenAnswer(t, "repair-"+tc.name, m, done)
		})
	}
}

// Only AcceptLoss makes a repair end the amnesia of a log.
func TestRepairAcceptsLoss(t *testing.T) {
	fs := crashfs.New()
	closed(t, story(t, fs, "/log", 7))
	change(t, fs, segment(2), 1000, flip)
	opts := wal.RepairOptions{InspectOptions: wal.InspectOptions{FS: fs, Dir: "/log"}, Write: true}
	for _, accept := range []bool{false, true} {
		opts.AcceptLoss = accept
		m, err := Repair(t.Context(), opts)
		if err != nil || !m.Done || m.Fence.Amnesia == accept {
			t.Fatalf("%+v, %v", m, err)
		}
	}
	l := open(t, fs, "/log", 7)
	defer closed(t, l)
	if l.Fence().Amnesia {
		t.Error("the log has amnesia")
	}
}

func TestFind(t *testing.T) {
	fs := crashfs.New()
	closed(t, story(t, fs, "/log", 7))
	if err := fs.MkdirAll("/empty/log"); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"/none", "/empty"} {
		if _, err := Find(fs, dir); !errors.Is(err, ErrNoLog) {
			t.Errorf("%s: %v", dir, err)
		}
	}
	host := t.TempDir()
	closed(t, story(t, vfs.OS(), filepath.Join(host, "log"), 7))
	for _, dir := range []string{host, filepath.Join(host, "log")} {
		if found, err := Find(nil, dir); err != nil || found != filepath.Join(host, "log") {
			t.Errorf("%s: %s, %v", dir, found, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Verify(ctx, wal.InspectOptions{FS: fs, Dir: "/log"}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// future sets the version of a segment to one that is not known yet, with a valid checksum.
func future(t *testing.T, fs vfs.FS, name string) {
	t.Helper()
	change(t, fs, name, 0, func(b []byte) {
		b[8] = 4
		sum := checksum(b[:60])
		b[60], b[61], b[62], b[63] = byte(sum), byte(sum>>8), byte(sum>>16), byte(sum>>24)
	})
}

func checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }
