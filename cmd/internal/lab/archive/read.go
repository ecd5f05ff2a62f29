package archive

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/millrace/millrace/cmd/internal/lab"
)

// ErrDamaged is the error of a file that is not what a Writer writes. It is wrapped with file and reason.
var ErrDamaged = errors.New("the results are damaged")

const maxJSONBytes = 512 << 20

// Archive is the directory of a run, read.
type Archive struct {
	Dir  string
	Run  *Run
	Envs Environments
}

// Read reads result.json and env.json. The error wraps lab.ErrCannot, and names the field Dir, if a file is
// not there or cannot be read. It wraps ErrDamaged if a file is not what a Writer writes. Files of
// histograms are read by ReadHistograms; Read checks only that they are there.
func Read(dir string) (*Archive, error) {
	a := &Archive{Dir: dir, Run: &Run{}}
	if err := readJSON(dir, ResultFile, a.Run); err != nil {
		return nil, err
	}
	if err := a.Run.Validate(); err != nil {
		return nil, damaged(dir, ResultFile, err.Error())
	}
	if err := readJSON(dir, EnvironmentFile, &a.Envs); err != nil {
		return nil, err
	}
	if err := a.Envs.validate(); err != nil {
		return nil, damaged(dir, EnvironmentFile, err.Error())
	}
	for _, p := range a.Run.Points {
		for _, r := range p.Repeats {
			if r.Histograms == "" {
				continue
			}
			if _, err := os.Stat(filepath.Join(dir, r.Histograms)); err != nil {
				return nil, cannotRead(dir, r.Histograms, err)
			}
		}
	}
	return a, nil
}

// readJSON reads one value and nothing else. Unknown fields are refused: they are of another version, or a
// mistake, and a report that left them out would be wrong without a word. The schema is looked at first, so
// that a newer file is called newer.
func readJSON(dir, name string, into any) error {
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return cannotRead(dir, name, err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxJSONBytes+1))
	if err != nil {
		return cannotRead(dir, name, err)
	}
	if len(text) > maxJSONBytes {
		return damaged(dir, name, fmt.Sprintf("more than %d MiB", maxJSONBytes>>20))
	}
	var head struct {
		Schema string `json:"schema"`
	}
	if err := json.Unmarshal(text, &head); err != nil {
		return damaged(dir, name, err.Error())
	}
	if head.Schema != Schema {
		return damaged(dir, name, fmt.Sprintf("schema is %q, and this program knows %q", clip(head.Schema), Schema))
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return damaged(dir, name, err.Error())
	}
	return nil
}

func damaged(dir, name, reason string) error {
	return fmt.Errorf("%w: %s: %s", ErrDamaged, filepath.Join(dir, name), reason)
}

func cannotRead(dir, name string, err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return lab.Cannot("Dir", "%s has no %s; give the directory that a run of the lab has written", dir, name)
	}
	return lab.Cannot("Dir", "cannot read %s: %v", filepath.Join(dir, name), lab.Cause(err))
}
