package wal

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs/crashfs"
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

// goldenStory is a log with a record of each kind that a caller can cause.
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
	data := files(t, fs)[segmentName(1)]
	end := len(bytes.TrimRight(data, "\x00"))
	checkGolden(t, "version2.hex", "A segment of format version 2: see goldenStory. Eight bytes a line, as format.go draws them.", data[:(end+7)&^7])
}

// The kinds that the log writes for itself, too.
func TestGoldenKinds(t *testing.T) {
	s := forge(3).linkTo(2, 4000, 0x01020304)
	for k := kindEntry; k <= kindFront; k++ {
		h, body := header{kind: k, group: 5, index: 6, term: 7, durable: 64}, []byte(nil)
		switch k {
		case kindLink:
			continue
		case kindEntry, kindMoved:
			h.typ, body = 1, []byte("mill")
		case kindHardState:
			body = make([]byte, hardStateBytes)
		}
		s.add(formatVersion, h, body)
	}
	checkGolden(t, "kinds.hex", "A segment of format version 2 with a record of each kind: see TestGoldenKinds.", s.data)
}

// A log that version 1 wrote is read, and gone on with.
func TestVersion1IsRead(t *testing.T) {
	data := make([]byte, 4096)
	copy(data, readGolden(t, "version1.hex"))
	opts := testOptions(diskOf(t, map[string][]byte{segmentName(1): data}), &manual{})
	want := twin{}
	want.apply([]Write{{Group: 3, HardState: raftpb.HardState{Term: 5, Vote: 2, Commit: 1}, Entries: []raftpb.Entry{
		{Index: 1, Term: 5, Type: raftpb.EntryConfChange, Data: []byte("millrace")}, {Index: 2, Term: 5, Data: []byte("x")},
	}}})
	for range 3 {
		l := mustOpen(t, opts)
		want.check(t, l)
		w := []Write{{Group: 3, Entries: entries(want[3].last()+1, want[3].last()+20, 6, 200)}, {Group: 3, CompactThrough: want[3].last()}}
		mustAppend(t, l, w...)
		want.apply(w)
		mustClose(t, l)
	}
}

// A kind that version 1 did not have is not valid in a record that says it is of version 1.
func TestKindsBelongToVersions(t *testing.T) {
	for k := range kind(12) {
		h := header{kind: k, index: 1, length: map[kind]uint32{kindHardState: hardStateBytes, kindLink: linkBytes}[k]}
		for version, last := range map[uint8]kind{1: kindMark, 2: kindFront} {
			if got, want := h.consistent(version, 64), k >= 1 && k <= last; got != want {
				t.Errorf("%s in version %d: consistent is %v", k, version, got)
			}
		}
	}
}
