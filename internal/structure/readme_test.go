package structure

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestReadmeProgramCompiles: the program in the README is one of the examples, compiles, and vet accepts it.
func TestReadmeProgramCompiles(t *testing.T) {
	inRoot(t)
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	programs := regexp.MustCompile("(?s)```go\n((?://[^\n]*\n)*package main\n.*?)```").FindAllSubmatch(readme, -1)
	if len(programs) != 1 {
		t.Fatalf("the README has %d programs, want one", len(programs))
	}
	example, err := os.ReadFile("examples/counter/main.go")
	if err != nil {
		t.Fatal(err)
	}
	if string(programs[0][1]) != string(example) {
		t.Error("the program in the README is not examples/counter/main.go, word for word")
	}
	main := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(main, programs[0][1], 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "go", "vet", main).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if formatted, err := exec.CommandContext(t.Context(), "gofmt", "-l", main).CombinedOutput(); err != nil || len(formatted) > 0 {
		t.Errorf("not gofmt-clean: %v %s", err, formatted)
	}
}

// TestCounterFitsInFortyLines: the program of the README has at most forty lines of code, imports included,
// of at most a hundred columns.
func TestCounterFitsInFortyLines(t *testing.T) {
	inRoot(t)
	source, err := os.ReadFile("examples/counter/main.go")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(source)) {
		if columns := utf8.RuneCountInString(strings.ReplaceAll(strings.TrimSuffix(line, "\n"), "\t", "    ")); columns > 100 {
			t.Errorf("%d columns, want at most 100: %s", columns, line)
		}
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
			n++
		}
	}
	if n > 40 {
		t.Errorf("the counter has %d lines of code, want at most 40", n)
	}
}

// TestHowtoCodeIsTested: each piece of Go in the how-to pages is a part of an example_test.go, word for
// word, so it compiles, and runs where it can.
func TestHowtoCodeIsTested(t *testing.T) {
	inRoot(t)
	var tested strings.Builder
	err := filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Base(file) != "example_test.go" {
			return err
		}
		source, err := os.ReadFile(file)
		tested.WriteString(withoutIndent(string(source)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob("docs/howto/*.md")
	if err != nil || len(pages) < 4 {
		t.Fatalf("how-to pages: %v, %v", pages, err)
	}
	pieces := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
			pieces++
			if !strings.Contains(tested.String(), withoutIndent(m[1])) {
				t.Errorf("%s: this is in no example_test.go:\n%s", page, m[1])
			}
		}
	}
	if pieces < 8 {
		t.Errorf("%d pieces of Go in the how-to pages; they had more", pieces)
	}
}

func withoutIndent(source string) string {
	var b strings.Builder
	for line := range strings.Lines(source) {
		b.WriteString(strings.TrimSpace(line) + "\n")
	}
	return b.String()
}
