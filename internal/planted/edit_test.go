package planted_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// A bug on purpose is an edit: a text that occurs exactly once in a file of the repository is replaced by
// another. The edit is applied with "go test -overlay", so the code that users build holds no trace of it
// (docs/decisions/0001-planted-bugs.md).

// bug is one bug on purpose.
type bug struct {
	name string
	what string // what it does, in a sentence that a table can hold
	// found is the test that is known to find the bug, "TestCrashLab" or a test of the package. A short run runs
	// it. Empty if no test finds the bug: then same says why none can.
	found string
	in    string // the folder of that test's package, if it is not "wal"
	rare  bool   // finding it takes more than a minute, or was never timed: a short run does not draw it
	same  string // why the program behaves the same with the edit as without, or nearly
	edits []edit
}

// folder returns the folder of the package whose tests judge the bug.
func (b *bug) folder() string { return cmp.Or(b.in, "wal") }

// edit replaces old, which occurs once in the file, by new.
type edit struct {
	file     string // from the root of the repository
	old, new string
}

// root is the root of the repository.
const root = "../.."

// apply returns the file with the edit, or why it does not apply.
func (e edit) apply(text string) (string, error) {
	switch n := strings.Count(text, e.old); {
	case n != 1:
		return "", fmt.Errorf("%s has the text %d times, want once: %q", e.file, n, e.old)
	case e.old == e.new:
		return "", fmt.Errorf("%s: the edit changes nothing", e.file)
	}
	return strings.Replace(text, e.old, e.new, 1), nil
}

// texts returns the files that b edits, with its edits.
func (b *bug) texts() (map[string]string, error) {
	texts := map[string]string{}
	for _, e := range b.edits {
		if _, ok := texts[e.file]; !ok {
			data, err := os.ReadFile(filepath.Join(root, e.file))
			if err != nil {
				return nil, err
			}
			texts[e.file] = string(data)
		}
		text, err := e.apply(texts[e.file])
		if err != nil {
			return nil, err
		}
		texts[e.file] = text
	}
	return texts, nil
}

// overlay writes the edited files, and the list of them that "go build -overlay" reads. It returns the path
// of the list.
func (b *bug) overlay(dir string) (string, error) {
	texts, err := b.texts()
	if err != nil {
		return "", err
	}
	replace := map[string]string{}
	for file, text := range texts {
		original, err := filepath.Abs(filepath.Join(root, file))
		if err != nil {
			return "", err
		}
		edited := filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(edited, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[original] = edited
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, list, 0o600)
}
