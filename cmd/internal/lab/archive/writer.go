package archive

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/millrace/millrace/cmd/internal/lab"
)

// Names of the files that each archive has.
const (
	ResultFile      = "result.json"
	EnvironmentFile = "env.json"
	BenchFile       = "bench.txt"
)

// Writer writes the archive of one run. Its methods may not be called at the same time, except that several
// HistogramLogs may be open.
type Writer struct {
	dir  string
	held io.Closer // nil: other processes may write, too
}

// Create makes the directory of a run, which must be empty or not exist. The error names the field Out and
// wraps lab.ErrCannot.
func Create(dir string) (*Writer, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, lab.Cannot("Out", "cannot create %s: %v", dir, lab.Cause(err))
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, lab.Cannot("Out", "cannot read %s: %v", dir, lab.Cause(err))
	}
	entries = slices.DeleteFunc(entries, func(e os.DirEntry) bool { return e.Name() == holdFile }) // of a run that was killed at once
	if len(entries) > 0 {
		return nil, lab.Cannot("Out", "%s is not empty (it has %s); choose another directory or empty it", dir, entries[0].Name())
	}
	return &Writer{dir: dir}, nil
}

// Dir returns the directory.
func (w *Writer) Dir() string { return w.dir }

// Save writes the run so far. It may be called after each repeat; result.json is replaced last, so a reader
// never sees one whose histograms are missing. Save sets the schemas, declares the standard metrics that are
// used, and refuses a run that Read would refuse.
func (w *Writer) Save(r *Run, env Environments) error {
	r.Schema, env.Schema = Schema, Schema
	r.declareStandard()
	if err := errors.Join(r.Validate(), env.validate()); err != nil {
		return fmt.Errorf("the run cannot be saved: %w", err)
	}
	if err := w.write(EnvironmentFile, asJSON(env)); err != nil {
		return err
	}
	if err := w.write(BenchFile, func(out io.Writer) error { return r.WriteBench(out, env) }); err != nil {
		return err
	}
	return w.write(ResultFile, asJSON(r))
}

func asJSON(v any) func(io.Writer) error {
	return func(w io.Writer) error {
		enc := json.NewEncoder(w)
		enc.SetIndent("", " ")
		return enc.Encode(v)
	}
}

func (w *Writer) write(name string, content func(io.Writer) error) error {
	return WriteFile(filepath.Join(w.dir, name), content)
}

// WriteFile writes a file whole or not at all, and replaces one that exists.
func WriteFile(path string, content func(io.Writer) error) error {
	f, err := createPending(path)
	if err != nil {
		return err
	}
	defer f.discard()
	if err := content(f); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return f.publish()
}

// pendingFile is a file that gets its name when it is complete and durable. Until then its name ends in
// pendingSuffix, which no reader looks for.
type pendingFile struct {
	*os.File
	path string
	done bool
}

const pendingSuffix = ".pending"

func createPending(path string) (*pendingFile, error) {
	f, err := os.OpenFile(path+pendingSuffix, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return nil, lab.Cannot("Out", "cannot create %s: %v", path, lab.Cause(err))
	}
	return &pendingFile{File: f, path: path}, nil
}

// publish syncs the file, gives it its name, and syncs the directory.
func (f *pendingFile) publish() error {
	defer f.discard()
	if err := f.Sync(); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), f.path); err != nil {
		return err
	}
	f.done = true
	dir, err := os.Open(filepath.Dir(f.path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close(), f.Close())
}

// discard closes and removes a file that was not published.
func (f *pendingFile) discard() {
	if f.done {
		return
	}
	f.done = true
	_ = f.Close()
	_ = os.Remove(f.Name())
}
