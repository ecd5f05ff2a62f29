package millrace_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/wal"
)

// What a later program leaves in a directory: each piece of it is refused with a sentence that names the file
// or the entry, and the versions, and stays as it was. So going back either works or says why not.

// aDirectory makes a directory in which one member has added three numbers.
func aDirectory(t *testing.T) millrace.Config {
	t.Helper()
	c := alone(t)
	n, err := millrace.Open(t.Context(), c, addsUp(), quiet())
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := n.Propose(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	return c
}

func addsUp() millrace.Machine[int64, int64] {
	return millrace.InMemory(&counter{}, millrace.Binary[int64]())
}

// addEntry appends an entry to the log of a member that is closed, and commits it or not.
func addEntry(t *testing.T, c millrace.Config, e raftpb.Entry, commit bool) (index uint64) {
	t.Helper()
	log, err := host.OpenWAL(host.LogConfig{
		FS: vfs.OS(), Dir: filepath.Join(c.Dir, "log"), Owner: c.ID, Scheduler: env.Real().Scheduler, Clock: env.Real().Clock,
		Logger: slog.New(slog.DiscardHandler), Events: func(wal.Event) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	g := log.Group(1)
	hard := g.HardState()
	e.Index, e.Term = g.LastIndex()+1, hard.Term
	w := wal.Write{Group: 1, Entries: []raftpb.Entry{e}}
	if commit {
		hard.Commit, w.HardState = e.Index, hard
		w.HardState.Commit = e.Index
	}
	if err := log.Append([]wal.Write{w}); err != nil {
		t.Fatal(err)
	}
	if err := log.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	return e.Index
}

// filesOf returns what a directory has, without the log, whose segments begin with a start.
func filesOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.Contains(path, string(filepath.Separator)+"log") {
			return err
		}
		b, err := os.ReadFile(path)
		all[path] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestLaterEntries: a group is not opened whose log has an entry of a later program, whether it is committed
// or not. The first of them is named.
func TestLaterEntries(t *testing.T) {
	for _, c := range []struct {
		name string
		e    raftpb.Entry
		want string
	}{
		{"a type", raftpb.Entry{Type: 18, Data: []byte("x")}, "has type 18, and this program knows 0, 1, 2, 16 and 17: a later version of Millrace has written it"},
		{"a kind", raftpb.Entry{Type: raftpb.EntryHost, Data: []byte("\x28 and more")}, "has kind 40 of the host's entries, and this program knows kinds through 39: a later version of Millrace has written it"},
	} {
		for _, committed := range []bool{false, true} {
			t.Run(c.name, func(t *testing.T) {
				config := aDirectory(t)
				index := addEntry(t, config, c.e, committed)
				addEntry(t, config, raftpb.Entry{Type: raftpb.EntryHost, Data: []byte("\x30")}, committed)
				n, err := millrace.Open(t.Context(), config, addsUp(), quiet())
				if err == nil {
					t.Fatal("it is opened: ", n.Close(context.Background()))
				}
				for _, part := range []string{c.want, "millrace: group 1 cannot be opened", fmt.Sprint("entry ", index, " of its log in ", filepath.Join(config.Dir, "log")), "start this host with that version; the group is as it was"} {
					if !strings.Contains(err.Error(), part) {
						t.Errorf("%v\nlacks %q", err, part)
					}
				}
			})
		}
	}
}

// TestLaterFiles: a file of a later version is refused, by its name and with both numbers, and stays as it
// is.
func TestLaterFiles(t *testing.T) {
	for _, c := range []struct{ file, old, later, want string }{
		{"identity.json", `"version":3`, `"version":4`, "has version 4, this program supports only version 3"},
		{"lives.json", `"version":1`, `"version":2`, "has version 2, this program supports only version 1"},
		{"peers.json", ``, `{"version":3}`, "has version 3, this program supports only version 2"},
		{"groups/1/joined.json", ``, `{"version":2}`, "has version 2, this program supports only version 1"},
		{"groups/1/machine.json", ``, `{"version":2}`, "has version 2, this program supports only version 1"},
	} {
		t.Run(c.file, func(t *testing.T) {
			config := aDirectory(t)
			path := filepath.Join(config.Dir, c.file)
			text := c.later
			if c.old != "" {
				b, err := os.ReadFile(path)
				if err != nil || !strings.Contains(string(b), c.old) {
					t.Fatalf("%s is %s (%v)", path, b, err)
				}
				text = strings.Replace(string(b), c.old, c.later, 1)
			}
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			before := filesOf(t, config.Dir)
			n, err := millrace.Open(t.Context(), config, addsUp(), quiet())
			if err == nil {
				t.Fatal("it is opened: ", n.Close(context.Background()))
			}
			if !strings.Contains(err.Error(), path+" "+c.want) || !strings.Contains(err.Error(), "start the program that wrote") {
				t.Errorf("%v\nwant %s %s", err, path, c.want)
			}
			for name, was := range before { // a start is counted in lives.json, before a group is opened
				if is := filesOf(t, config.Dir)[name]; is != was && (filepath.Base(name) != "lives.json" || c.file == "lives.json") {
					t.Errorf("%s was %q and is %q", name, was, is)
				}
			}
		})
	}
}
