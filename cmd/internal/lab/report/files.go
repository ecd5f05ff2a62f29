package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/millrace/millrace/cmd/internal/lab"
)

// Output is one file of a report.
type Output struct {
	Name  string
	Write func(io.Writer) error
}

// Files is a report that can be written as files.
type Files interface{ Outputs() []Output }

// WriteJSON writes rows as one indented JSON array, which is empty without rows.
func WriteJSON[T any](w io.Writer, rows []T) error {
	if rows == nil {
		rows = []T{}
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(rows)
}

// ValidateOut refuses a directory that cannot take the files of a report, before an hour of measuring. It
// leaves no trace. The report may be a nil pointer. The error names the field Out and wraps lab.ErrCannot.
func ValidateOut(dir string, of Files) error {
	for _, o := range of.Outputs() {
		if _, err := os.Lstat(filepath.Join(dir, o.Name)); err == nil {
			return lab.Cannot("Out", "%s is already there; choose another directory or remove it", filepath.Join(dir, o.Name))
		}
	}
	existing, err := nearestDir(dir)
	if err != nil {
		return err
	}
	probe, err := os.MkdirTemp(existing, ".millrace-probe-")
	if err != nil {
		return lab.Cannot("Out", "cannot write to %s: %v", existing, lab.Cause(err))
	}
	return os.Remove(probe)
}

// nearestDir returns dir or the closest ancestor that exists.
func nearestDir(dir string) (string, error) {
	info, err := os.Stat(dir)
	switch {
	case err == nil && info.IsDir():
		return dir, nil
	case err == nil:
		return "", lab.Cannot("Out", "%s is not a directory", dir)
	case !errors.Is(err, os.ErrNotExist):
		return "", lab.Cannot("Out", "cannot use %s: %v", dir, lab.Cause(err))
	}
	return nearestDir(filepath.Dir(filepath.Clean(dir)))
}

// WriteFiles writes the files of a report into dir: all of them, or none.
func WriteFiles(dir string, of Files) (err error) {
	existing, err := nearestDir(dir)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return lab.Cannot("Out", "cannot create %s: %v", dir, lab.Cause(err))
	}
	var written []string
	defer func() {
		if err == nil {
			return
		}
		for _, name := range written {
			_ = os.Remove(name) // the first error is the one to report
		}
		for d := filepath.Clean(dir); d != filepath.Clean(existing); d = filepath.Dir(d) {
			_ = os.Remove(d)
		}
	}()
	for _, o := range of.Outputs() {
		name := filepath.Join(dir, o.Name)
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if err != nil {
			return lab.Cannot("Out", "cannot create %s: %v", name, lab.Cause(err))
		}
		written = append(written, name)
		if err := errors.Join(o.Write(f), f.Close()); err != nil {
			return fmt.Errorf("writing %s: %w", name, err)
		}
	}
	return nil
}
