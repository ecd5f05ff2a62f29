package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/cmd/internal/lab/labtest"
	"github.com/millrace/millrace/internal/counting"
	"github.com/millrace/millrace/object"
	"github.com/millrace/millrace/object/files"
	"github.com/millrace/millrace/vfs"
)

// writeObjects makes objects 01… and 02… of 150,000 bytes for each group in a host's directory.
func writeObjects(t *testing.T, host string, groups ...uint64) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, group := range groups {
		store, err := files.Open(vfs.OS(), filepath.Join(host, "groups", fmt.Sprint(group), "objects"))
		must(err)
		for i := range byte(2) {
			w, err := store.Create(object.ID{i + 1}, 1<<20)
			must(err)
			_, err = w.Write([]byte(strings.Repeat("object", 25_000)))
			must(err)
			_, err = w.Publish()
			must(err)
		}
	}
}

// askObjects runs a command line of objects.
func askObjects(t *testing.T, args ...string) (status int, stdout string) {
	t.Helper()
	status, stdout, _ = runVerb(t, t.Context(), append([]string{"objects"}, args...)...)
	return status, stdout
}

// What an operator sees of two groups' objects: whole, damaged, received in part, and unfinished.
func TestObjectsOfAHost(t *testing.T) {
	host := t.TempDir()
	writeObjects(t, host, 12, 7)
	expect := func(status int, args string, texts ...string) {
		t.Helper()
		have, stdout := askObjects(t, strings.Fields(args)...)
		if have != status {
			t.Errorf("%s: status %d, want %d", args, have, status)
		}
		for _, text := range texts {
			if !strings.Contains(stdout, text) {
				t.Errorf("%s: no %q in\n%s", args, text, stdout)
			}
		}
	}
	first, second := object.ID{1}.String(), object.ID{2}.String()
	expect(exitOK, "list "+host, "whole       group 7     "+first+"         150000 bytes  hash ", "group 12    "+second, "4 objects of 600000 bytes: 4 whole; the content was not read\n")
	expect(exitOK, "verify "+host, "4 objects of 600000 bytes: 4 whole\n")
	expect(exitOK, "verify "+host+" --group 12", "2 objects of 300000 bytes: 2 whole\n")
	expect(exitOK, "verify "+host+" --group 12 --object "+second, "1 objects of 150000 bytes: 1 whole\n")
	expect(exitCannot, "verify "+host+" --group 13")
	expect(exitCannot, "verify "+host+" --object "+object.ID{3}.String())

	dir := filepath.Join(host, "groups", "7", "objects", first)
	inner := filepath.Join(dir, "0000000000000001-0000000000000001")
	part := filepath.Join(inner, "part-00000000")
	data, err := os.ReadFile(part)
	if err != nil {
		t.Fatal(err)
	}
	data[140_000] ^= 1
	if err := os.WriteFile(part, data, 0o600); err != nil {
		t.Fatal(err)
	}
	expect(exitOK, "list "+host, "4 whole; the content")
	expect(exitDamaged, "verify "+host, "damaged     group 7     "+first, part+", offset 131072: it has the CRC32C", "want ", "remove "+dir+" while", ": 3 whole, 1 damaged\n")
	expect(exitOK, "verify --group 12 "+host)

	status, stdout := askObjects(t, "verify", "--json", host)
	var answer struct {
		Dir      string
		Verified bool
		Objects  []struct {
			Group           uint64
			ID, State, Hash string
			Bytes           int64
			Damage          *struct {
				File   string
				Offset *int64
			}
		}
	}
	if err := json.Unmarshal([]byte(stdout), &answer); err != nil || status != exitDamaged || !answer.Verified || len(answer.Objects) != 4 {
		t.Fatalf("status %d, %v in\n%s", status, err, stdout)
	}
	if o := answer.Objects[0]; o.Group != 7 || o.ID != first || o.State != "damaged" || o.Bytes != 150_000 || len(o.Hash) != 64 || o.Damage == nil || o.Damage.File != part || *o.Damage.Offset != 131_072 {
		t.Errorf("the damaged object is %+v", o)
	}
	if answer.Objects[3].Damage != nil {
		t.Errorf("a whole object is %+v", answer.Objects[3])
	}

	if err := os.Truncate(part, 1); err != nil {
		t.Fatal(err)
	}
	expect(exitDamaged, "list "+host, part+": it has 1 bytes, want 150000")
	if err := os.Rename(filepath.Join(inner, "MANIFEST"), filepath.Join(inner, "OFFER")); err != nil {
		t.Fatal(err)
	}
	expect(exitOK, "verify "+host, "receiving   group 7     "+first+"         150000 bytes", ": 3 whole, 1 receiving\n")
	if err := os.Remove(filepath.Join(inner, "OFFER")); err != nil {
		t.Fatal(err)
	}
	expect(exitOK, "verify "+host, "unfinished  group 7     "+first+"              0 bytes\n")
	if err := os.RemoveAll(dir); err != nil { // as the text has advised
		t.Fatal(err)
	}
	expect(exitOK, "verify "+host, "3 objects of 450000 bytes: 3 whole\n")
}

// What is read of objects is counted, and the end is told once, whatever was damaged.
func TestObjectsProgress(t *testing.T) {
	host := t.TempDir()
	writeObjects(t, host, 1)
	fsys := &readCounter{FS: vfs.ReadOnly(vfs.OS())}
	found, err := files.Find(t.Context(), fsys, host)
	if err != nil {
		t.Fatal(err)
	}
	calls, last, ends := 0, int64(0), 0
	fsys.count(func(done, total int64) {
		if calls++; done < last || total != 300_000 {
			t.Errorf("%d of %d bytes after %d", done, total, last)
		}
		if last = done; done == total {
			ends++
		}
	}, found)
	for i := range found {
		if err := found[i].Verify(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if last != 299_999 || ends != 0 {
		t.Errorf("%d bytes and %d ends before the end", last, ends)
	}
	if fsys.end(); calls != 7 || ends != 1 {
		t.Errorf("%d calls, want one for each of six blocks and the end", calls)
	}
}

// What the help says is a promise to operators.
func TestObjectsHelp(t *testing.T) {
	var all strings.Builder
	for _, verb := range []string{"", "list", "verify", "scrub"} {
		_, out := askObjects(t, strings.Fields(verb+" --help")...)
		all.WriteString("== millrace objects " + verb + "\n" + out + "\n")
	}
	labtest.Golden(t, "objects-help.txt", []byte(all.String()))
}

// objectCounter is a counter that may have objects.
type objectCounter struct{ counting.Counter }

// UseObjects implements millrace.ObjectUser.
func (*objectCounter) UseObjects(*millrace.Objects) {}

// A running host verifies all of its objects, and says which are damaged.
func TestScrub(t *testing.T) {
	t.Chdir(t.TempDir()) // paths of sockets are short
	c := millrace.Config{ID: 1, Dir: "one", Members: map[uint64]string{1: "127.0.0.1:7001"}, Listen: "127.0.0.1:0", AdminSocket: true, Logger: slog.New(slog.DiscardHandler)}
	n, err := millrace.Open(t.Context(), c, millrace.InMemory(&objectCounter{}, millrace.Binary[int64]()).Objects(millrace.ObjectOptions{}))
	if err != nil {
		t.Fatal(err)
	}
	var last millrace.Object
	for range 3 {
		if last, err = n.Upload(t.Context(), strings.NewReader(strings.Repeat("object", 25_000)), millrace.UploadOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(status int, args string, texts ...string) {
		t.Helper()
		have, stdout := askObjects(t, strings.Fields(args)...)
		for _, text := range texts {
			if have != status || !strings.Contains(stdout, text) {
				t.Errorf("%s: status %d, want %d, and %q in\n%s", args, have, status, text, stdout)
			}
		}
	}
	expect(exitOK, "scrub one", "3 objects of 450000 bytes were read: 0 damaged\n")
	expect(exitOK, "scrub one --group 1 --rate 0 --json", `"objects": 3`, `"damaged": []`)
	expect(exitCannot, "scrub one --group 9", "")
	expect(exitUsage, "scrub one --rate -1", "")
	part := filepath.Join("one", "groups", "1", "objects", last.ID.String(), "0000000000000001-0000000000000001", "part-00000000")
	f, err := os.OpenFile(part, os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteAt([]byte{1}, 70_000)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	expect(exitDamaged, "scrub one", "damaged     group 1     "+last.ID.String(), part+", ", "3 objects of 450000 bytes were read: 1 damaged\n")
	if err := n.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	expect(exitCannot, "scrub one", "")
}
