package planted_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// A bug on purpose is an edit: in a file of the repository, a text that stands there once is replaced by another. It is
// applied with "go test -overlay", so the code that users build holds no trace of it (docs/decisions/0001-planted-bugs.md).

// bug is one bug on purpose.
type bug struct {
	name string
	what string // what it does, in a sentence that a table can hold
	// found is the test that is known to find it, which a CI run of the bug runs: "TestCrashLab", or a test of the package.
	// Empty for a bug that nothing finds: then same says why nothing can.
	found string
	in    string // the folder of that test's package, if it is not "wal"
	rare  bool   // it takes more than a minute to find, or nobody has measured how long: a short run does not draw it
	same  string // why the program does the same with the edit as without, or nearly
	edits []edit
}

// folder returns the folder of the package whose tests judge the bug.
func (b *bug) folder() string { return cmp.Or(b.in, "wal") }

// edit replaces old, which stands once in the file, by new.
type edit struct {
	file     string // from the root of the repository
	old, new string
}

// root is the repository's.
const root = "../.."

// apply returns the file with the edit, or why it does not apply.
func (e edit) apply(text string) (string, error) {
	switch n := strings.Count(text, e.old); {
	case n != 1:
		return "", fmt.Errorf("%s has %d times what should stand there once: %q", e.file, n, e.old)
	case e.old == e.new:
		return "", fmt.Errorf("%s: the edit changes nothing", e.file)
	}
	return strings.Replace(text, e.old, e.new, 1), nil
}

// texts returns the files that b edits, as they are with it.
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

// overlay writes the edited files and the list of them that "go build -overlay" reads, and returns the path of the list.
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
