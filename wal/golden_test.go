package wal

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal/record"
)

var writeGolden = flag.Bool("write-golden", false, "write testdata/golden instead of comparing with it")

// readGolden returns the bytes of a golden file.
func readGolden(t testing.TB, name string) []byte {
	text, err := os.ReadFile("testdata/golden/" + name)
	if err != nil {
		t.Fatal(err)
	}
	var data []byte
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "#") {
			continue
		}
		b, err := hex.DecodeString(line)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		data = append(data, b...)
	}
	return data
}

// checkGolden compares data with a golden file, eight bytes a line.
func checkGolden(t *testing.T, name, comment string, data []byte) {
	if *writeGolden {
		var b strings.Builder
		fmt.Fprintf(&b, "# %s\n", comment)
		for i := 0; i < len(data); i += 8 {
			fmt.Fprintln(&b, hex.EncodeToString(data[i:i+8]))
		}
		if err := os.WriteFile("testdata/golden/"+name, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want := readGolden(t, name); !bytes.Equal(data, want) {
		t.Errorf("%s: the format has changed; if that is meant, raise formatVersion, and -write-golden. Have:\n%s", name, hex.Dump(data))
	}
}

// goldenStory writes a log with a record of each kind that Append can cause.
func goldenStory(t *testing.T) (*crashfs.FS, twin) {
	fs, want := crashfs.New(), twin{}
	l := mustOpen(t, testOptions(fs, &manual{}))
	for _, w := range []Write{
		{Group: 3, HardState: raftpb.HardState{Term: 5, Vote: 2, Commit: 1},
			Entries: []raftpb.Entry{{Index: 1, Term: 5, Type: raftpb.EntryConfChange, Data: []byte("millrace")}}},
		{Group: 3, Entries: []raftpb.Entry{{Index: 2, Term: 5, Data: []byte("x")}, {Index: 3, Term: 5}}},
		{Group: 3, TruncateFrom: 3},
		{Group: 3, CompactThrough: 1},
		{Group: 4, Snapshot: Snapshot{Index: 1000, Term: 7}},
	} {
		mustAppend(t, l, w)
		want.apply([]Write{w})
		mustSync(t, l)
	}
	mustClose(t, l)
	return fs, want
}

func TestGoldenBytes(t *testing.T) {
	fs, _ := goldenStory(t)
	data := files(t, fs)[record.SegmentName(1)]
	end := len(bytes.TrimRight(data, "\x00"))
	checkGolden(t, "version3.hex", "A segment of format version 3: see goldenStory. Eight bytes a line, as format.go draws them.", data[:(end+7)&^7])
}

// All kinds of records, including those that the log writes by itself.
func TestGoldenKinds(t *testing.T) {
	s := forge(3).linkTo(2, 4000, 0x01020304)
	for k := record.KindEntry; k <= record.KindDeletion; k++ {
		h, body := record.Header{Kind: k, Group: 5, Index: 6, Term: 7, Durable: 64}, []byte(nil)
		switch k {
		case record.KindLink:
			continue
		case record.KindEntry, record.KindMoved:
			h.Type, body = 1, []byte("mill")
		case record.KindHardState:
			body = make([]byte, record.HardStateBytes)
		}
		s.add(h, body)
		if k.InWrite() { // also as the first, an inner and the last part of a write
			for _, h.Edge = range []record.Edge{record.Begins, 0, record.Ends} {
				s.addPart(h, body)
			}
		}
	}
	checkGolden(t, "kinds.hex", "A segment of format version 3 with a record of each kind: see TestGoldenKinds.", s.data)
}

// The records of version 2, one of each kind, are still valid, and none of them begins or ends a write.
func TestKindsOfVersion2AreRead(t *testing.T) {
	data := readGolden(t, "version2-kinds.hex")
	seen := map[record.Kind]bool{}
	head, ok := record.ParseSegmentHeader(data)
	if !ok || head.Version != 2 {
		t.Fatalf("%+v", head)
	}
	for off, chain := int64(record.SegmentHeaderBytes), head.CRC; off < int64(len(data)); {
		h, _, why := record.Parse(data[off:], head.Seal(), off, chain)
		if why != record.FlawNone || h.Version != 2 || h.Edge != 0 {
			t.Fatalf("at %d: %+v, %s", off, h, why)
		}
		seen[h.Kind] = true
		off, chain = off+h.Bytes(), h.Chain
	}
	if len(seen) != int(record.KindFront) {
		t.Errorf("kinds %v", seen)
	}
}

// Logs of versions 1 and 2 can be read. Open begins a new segment after theirs, and does not change theirs.
func TestOldVersionsAreRead(t *testing.T) {
	version1 := twin{}
	version1.apply([]Write{{Group: 3, HardState: raftpb.HardState{Term: 5, Vote: 2, Commit: 1}, Entries: []raftpb.Entry{
		{Index: 1, Term: 5, Type: raftpb.EntryConfChange, Data: []byte("millrace")}, {Index: 2, Term: 5, Data: []byte("x")},
	}}})
	_, story := goldenStory(t)
	for name, want := range map[string]twin{"version1.hex": version1, "version2.hex": story} {
		data := make([]byte, 4096)
		copy(data, readGolden(t, name))
		fs := diskOf(t, map[string][]byte{record.SegmentName(1): data})
		opts := testOptions(fs, &manual{})
		for life := range 3 {
			l := mustOpen(t, opts)
			want.check(t, l)
			if now := files(t, fs)[record.SegmentName(1)]; !bytes.Equal(now, data) || l.tail.seg.id < 2 {
				t.Errorf("%s, life %d: the old segment was changed, or is still written; the tail is %d", name, life, l.tail.seg.id)
			}
			last := want[3].last()
			w := []Write{{Group: 3, Entries: entries(last+1, last+4, 6, 200)}}
			mustAppend(t, l, w...)
			want.apply(w)
			mustClose(t, l)
		}
	}
}

// The tail of an older version may hold a commit index above the last entry. Open lowers it, as the older
// version did, even if the upgrade crashes after any operation. It does not lower one that version 3 wrote.
func TestUpgradeLowersCommits(t *testing.T) {
	state := func(commit uint64) []byte {
		return binary.LittleEndian.AppendUint64(make([]byte, 8), commit)
	}
	old := forgeOf(1, 2).link(nil)
	for group := uint64(1); group <= 3; group++ {
		old.add(record.Header{Kind: record.KindEntry, Group: group, Index: 1, Term: 1}, []byte("12345678"))
		old.add(record.Header{Kind: record.KindHardState, Group: group, Term: 1}, state(9))
	}
	for n := 0; ; n++ {
		fs := diskOf(t, map[string][]byte{record.SegmentName(1): old.file()})
		opts := testOptions(fs.Mount(), &manual{})
		ops, rng := 0, uint64(n)
		fs.SetHook(func(op crashfs.Op) error {
			if ops++; ops == n+1 {
				fs.Crash(crashfs.LoseSome, func() uint64 { rng = rng*6364136223846793005 + 1442695040888963407; return rng >> 33 })
				return errPower
			}
			return nil
		})
		l, err := Open(opts)
		done := ops <= n
		if fs.SetHook(nil); !done {
			opts.FS = fs.Mount()
			l, err = Open(opts)
		}
		if err != nil {
			t.Fatalf("cut short at operation %d: %v", n, err)
		}
		for group := uint64(1); group <= 3; group++ {
			if hs := l.Group(group).HardState(); hs.Commit != 1 {
				t.Errorf("cut short at operation %d: group %d: %+v", n, group, hs)
			}
		}
		if done {
			mustClose(t, l)
			if n < 8 {
				t.Errorf("%d operations", n)
			}
			return
		}
	}
}
