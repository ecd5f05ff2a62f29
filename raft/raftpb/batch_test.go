package raftpb

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
)

func commandsOf(t testing.TB, data []byte) (commands [][]byte) {
	t.Helper()
	b, err := ReadBatch(data)
	if err != nil {
		t.Fatal(err)
	}
	for b.Len() > 0 {
		commands = append(commands, b.Next())
	}
	return commands
}

// The commands of a batch come out as they went in, and none can grow into the next.
func TestBatch(t *testing.T) {
	want := [][]byte{[]byte("one"), {0}, bytes.Repeat([]byte("x"), 3000)}
	data := AppendBatch([]byte("before"), want...)[len("before"):]
	have := commandsOf(t, data)
	if fmt.Sprint(have) != fmt.Sprint(want) {
		t.Fatalf("%q became %q", want, have)
	}
	_ = append(have[0], "grown"...)
	if again := commandsOf(t, data); fmt.Sprint(again) != fmt.Sprint(want) {
		t.Error("a command that grew has overwritten the next")
	}
	if n := BatchOverheadBytes + 3*CommandOverheadBytes + 3004; len(data) != n {
		t.Errorf("%d bytes, want %d", len(data), n)
	}
}

// A Joiner makes what AppendBatch does, and keeps no command.
func TestJoiner(t *testing.T) {
	var j Joiner
	for _, n := range []int{2, 300, 1, 7} {
		var commands [][]byte
		var entries []Entry
		for i := range n {
			c := bytes.Repeat([]byte{byte(i + 1)}, i%40+1)
			commands, entries = append(commands, c), append(entries, Entry{Data: c})
		}
		e := j.Join(entries)
		if e.Type != EntryBatch || !bytes.Equal(e.Data, AppendBatch(nil, commands...)) {
			t.Fatalf("%d commands became %v %q", n, e.Type, e.Data)
		}
		for _, p := range j.pieces[:cap(j.pieces)] {
			if p != nil {
				t.Fatalf("after %d commands it keeps %q", n, p)
			}
		}
	}
}

// An entry says which commands it holds.
func TestCommandsOfAnEntry(t *testing.T) {
	for _, c := range []struct {
		entry Entry
		want  string
	}{
		{Entry{Index: 7, Data: []byte("one")}, "7=one "},
		{Entry{Index: 7, Type: EntryBatch, Data: AppendBatch(nil, []byte("one"), []byte("two"))}, "7=one 7.1=two "},
		{Entry{Index: 7}, ""},
		{Entry{Index: 7, Type: EntryBatch, Data: []byte("no batch")}, ""},
		{Entry{Index: 7, Type: EntryHost, Data: []byte("one")}, ""},
	} {
		have := ""
		for at, command := range c.entry.Commands() {
			have += fmt.Sprintf("%v=%s ", at, command)
		}
		if have != c.want {
			t.Errorf("%+v holds %q, want %q", c.entry, have, c.want)
		}
	}
	for range (&Entry{Type: EntryBatch, Data: AppendBatch(nil, []byte("one"), []byte("two"))}).Commands() {
		break
	}
}

// A position is read as it is written, and positions are ordered as in the log.
func TestPositions(t *testing.T) {
	all := []Position{{Index: 3}, {Index: 3, Pos: 1}, {Index: 3, Pos: 12}, {Index: 20}}
	for i, p := range all {
		if have, err := ParsePosition(p.String()); err != nil || have != p {
			t.Errorf("%v: %v, %v", p, have, err)
		}
		text, _ := json.Marshal(p)
		var read Position
		if err := json.Unmarshal(text, &read); err != nil || read != p || (text[0] == '"') != (p.Pos > 0) {
			t.Errorf("%v as JSON: %s, %v, %v", p, text, read, err)
		}
		for j, other := range all {
			if have := p.Compare(other); have != cmp.Compare(i, j) {
				t.Errorf("%v beside %v: %d", p, other, have)
			}
		}
	}
	for _, bad := range []string{"", "0", "x", "3.", "3.x", "3.4294967296", "-1", "3.1.1"} {
		if p, err := ParsePosition(bad); err == nil {
			t.Errorf("%q is %v", bad, p)
		}
	}
}

// What lies about its commands is refused with a sentence.
func TestBadBatches(t *testing.T) {
	good := AppendBatch(nil, []byte("one"), []byte("two"))
	with := func(at int, v uint32) []byte {
		data := bytes.Clone(good)
		binary.LittleEndian.PutUint32(data[at:], v)
		return data
	}
	for why, data := range map[string][]byte{
		"raftpb: the commands of a batch cannot be read: 3 bytes are too few":                                            good[:3],
		"raftpb: the commands of a batch cannot be read: it says that it has 0, want 1 to 65536":                         with(0, 0),
		"raftpb: the commands of a batch cannot be read: it says that it has 65537, want 1 to 65536":                     with(0, MaxBatchCommands+1),
		"raftpb: the commands of a batch cannot be read: 0 bytes are left for command 3 of 3":                            with(0, 3),
		"raftpb: the commands of a batch cannot be read: 7 bytes follow the last of 1":                                   with(0, 1),
		"raftpb: the commands of a batch cannot be read: command 1 of 2 says that it has 0 bytes, want 1 to 10":          with(4, 0),
		"raftpb: the commands of a batch cannot be read: command 1 of 2 says that it has 4294967295 bytes, want 1 to 10": with(4, 1<<32-1),
		"raftpb: the commands of a batch cannot be read: command 2 of 2 says that it has 3 bytes, want 1 to 2":           good[:len(good)-1],
		"raftpb: the commands of a batch cannot be read: 1 bytes follow the last of 2":                                   append(bytes.Clone(good), 0),
	} {
		if _, err := ReadBatch(data); !errors.Is(err, ErrBatch) || err.Error() != why {
			t.Errorf("%q: %v, want %s", data, err, why)
		}
	}
}

// FuzzBatch: whatever is read is written in the same way.
func FuzzBatch(f *testing.F) {
	f.Add(AppendBatch(nil, []byte("one"), []byte("two")))
	f.Add(AppendBatch(nil, []byte("alone")))
	f.Add([]byte{2, 0, 0, 0, 1, 0, 0, 0, 'a', 255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, err := ReadBatch(data); err != nil {
			return
		}
		if again := AppendBatch(nil, commandsOf(t, data)...); !bytes.Equal(again, data) {
			t.Fatalf("%q is written as %q", data, again)
		}
	})
}
