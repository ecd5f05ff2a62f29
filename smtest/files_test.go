package smtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/millrace/millrace"
)

// pages is a machine that keeps each command in a file of its own.
type pages struct {
	dir, faults string
	names       []string
	made        int
}

func newPages(t *testing.T, faults string) func() millrace.Machine[string, int] {
	root := t.TempDir()
	return func() millrace.Machine[string, int] {
		dir, err := os.MkdirTemp(root, "pages")
		if err != nil {
			t.Fatal(err)
		}
		p := &pages{dir: dir, faults: faults}
		if faults == "no RestoreFiles" {
			return millrace.InMemory[string, int](struct {
				millrace.StateMachine[string, int]
			}{p}, text{})
		}
		return millrace.InMemory[string, int](p, text{})
	}
}

// text is a codec.
type text struct{}

func (text) Append(dst []byte, s string) ([]byte, error) { return append(dst, s...), nil }
func (text) Decode(b []byte) (string, error)             { return string(b), nil }

func (p *pages) Apply(batch []millrace.Command[string], results []int) error {
	for i, c := range batch {
		name := fmt.Sprintf("page-%d", len(p.names))
		if err := os.WriteFile(p.path(name), []byte(c.Value), 0o600); err != nil {
			return err
		}
		p.names = append(slices.Clip(p.names), name)
		results[i] = len(p.names)
	}
	return nil
}

// path is where a file is: one that was restored over has another place.
func (p *pages) path(name string) string { return filepath.Join(p.dir, fmt.Sprint(p.made, "-", name)) }

type pagesView struct {
	millrace.Snapshot
	files []millrace.SnapshotFile
}

func (v pagesView) Files() []millrace.SnapshotFile { return v.files }

func (p *pages) Snapshot() (millrace.Snapshot, error) {
	v := pagesView{Snapshot: millrace.BytesSnapshot(fmt.Append(nil, len(p.names)))}
	for _, name := range p.names {
		v.files = append(v.files, millrace.SnapshotFile{Name: name, Path: p.path(name)})
	}
	return v, nil
}

func (p *pages) Restore(context.Context, io.Reader) error { return errors.New("it has files") }

func (p *pages) RestoreFiles(_ context.Context, r io.Reader, files millrace.SnapshotFiles) error {
	next := pages{dir: p.dir, faults: p.faults, made: p.made + 1}
	if p.faults == "not atomic" {
		p.names = nil
	}
	b, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	for i := range len(files.Names()) {
		name := fmt.Sprintf("page-%d", i)
		_ = os.Remove(next.path(name)) // of a Restore that has failed
		if err := files.Link(name, next.path(name)); err != nil {
			return err
		}
		next.names = append(next.names, name)
	}
	if p.faults == "loses a file" && len(next.names) > 2 {
		next.names = next.names[:2]
	}
	if fmt.Sprint(len(next.names)) != string(b) && p.faults == "" {
		return fmt.Errorf("%d files, want %s", len(next.names), b)
	}
	*p = next
	return nil
}

// laidOut is a machine with an engine: equal states have different files, in each machine its own.
type laidOut struct {
	*pages
	layout string
}

func (l *laidOut) Snapshot() (millrace.Snapshot, error) {
	snap, err := l.pages.Snapshot()
	v := snap.(pagesView)
	v.files = append(v.files, millrace.SnapshotFile{Name: "layout", Path: l.layout})
	return v, err
}

func (l *laidOut) RestoreFiles(ctx context.Context, r io.Reader, files millrace.SnapshotFiles) error {
	layout, err := files.Open("layout")
	if err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, layout); err != nil {
		return err
	}
	return l.pages.RestoreFiles(ctx, r, others{files})
}

// others are the files without the layout.
type others struct{ millrace.SnapshotFiles }

func (o others) Names() []string {
	return slices.DeleteFunc(o.SnapshotFiles.Names(), func(name string) bool { return name == "layout" })
}

// TestFilesOfAnEngine: a machine with a digest may have other files for the same state.
func TestFilesOfAnEngine(t *testing.T) {
	for _, digests := range []bool{true, false} {
		var made atomic.Int64 // machines are made in several goroutines
		newPage := newPages(t, "")
		err := check(t, func() millrace.Machine[string, int] {
			p := newPage().StateMachine().(*pages)
			l := &laidOut{p, filepath.Join(p.dir, "layout")}
			if err := os.WriteFile(l.layout, fmt.Append(nil, made.Add(1)), 0o600); err != nil {
				t.Error(err)
			}
			m := millrace.InMemory[string, int](l, text{})
			if digests {
				m = m.Digest(func() uint64 { return uint64(len(p.names)) })
			}
			return m
		}, []string{"a", "bb", "", "a"})
		if digests && err != nil || !digests && (err == nil || !strings.Contains(err.Error(), "the states differ")) {
			t.Errorf("with a digest: %t: %v", digests, err)
		}
	}
}

// TestMachineWithFiles: snapshots that have files are tested like others.
func TestMachineWithFiles(t *testing.T) {
	for faults, want := range map[string]string{
		"":                "",
		"not atomic":      "Restore is not atomic",
		"loses a file":    "has another state",
		"no RestoreFiles": "has no method RestoreFiles",
	} {
		err := check(t, newPages(t, faults), []string{"a", "bb", "", "a"})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", faults, err, want)
		}
	}
}

// heap has a state of two megabytes, which its Snapshot copies or does not.
type heap struct {
	big    []byte
	copies bool
	n      int
}

func (h *heap) Apply(batch []millrace.Command[string], results []int) error {
	for i := range batch {
		h.n++
		results[i] = h.n
	}
	return nil
}

func (h *heap) Snapshot() (millrace.Snapshot, error) {
	if h.copies {
		return millrace.BytesSnapshot(append(bytes.Clone(h.big), byte(h.n))), nil
	}
	return heapView{h.big, byte(h.n)}, nil
}

type heapView struct {
	big []byte
	n   byte
}

func (v heapView) WriteTo(_ context.Context, w io.Writer) error {
	if _, err := w.Write(v.big); err != nil {
		return err
	}
	_, err := w.Write([]byte{v.n})
	return err
}

func (heapView) Close() error { return nil }

func (h *heap) Restore(_ context.Context, r io.Reader) error {
	b, err := io.ReadAll(r)
	if err != nil || len(b) == 0 {
		return errors.Join(err, io.ErrUnexpectedEOF)
	}
	h.big, h.n = b[:len(b)-1], int(b[len(b)-1])
	return nil
}

// TestSnapshotThatCopies: a Snapshot that copies a large state is found, and one that returns a view is not.
func TestSnapshotThatCopies(t *testing.T) {
	for _, copies := range []bool{false, true} {
		k, err := newKit(t, func() millrace.Machine[string, int] {
			return millrace.InMemory[string, int](&heap{big: make([]byte, 2<<20), copies: copies}, text{})
		}, []string{"a", "b"})
		if err != nil {
			t.Fatal(err)
		}
		if err := k.checkCopies(); copies != (err != nil) || err != nil && !strings.Contains(err.Error(), "copies or encodes the state") {
			t.Errorf("it copies: %t: %v", copies, err)
		}
	}
}
