package structure

import (
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	causeCode = regexp.MustCompile(`(?m)^(?:const|\t)\s*Code\w+ +Code = "(.+)"$`)
	coded     = regexp.MustCompile("`([a-z_*]+)")
	series    = regexp.MustCompile(`(?m)^# TYPE millrace_([a-z_]+) `)
	causeRow  = regexp.MustCompile("(?m)^\\| `([a-z ]+)`(?: \\(warning\\))? \\|")
)

// section returns a section of docs/operate/watch.md.
func section(t *testing.T, title string) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/operate/watch.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut(string(page), "\n## "+title+"\n")
	if !found {
		t.Fatalf("docs/operate/watch.md has no section %q", title)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	return text
}

// inCode are the words in code of a column of the tables in a text.
func inCode(text string, column int) (words []string) {
	for line := range strings.Lines(text) {
		if cells := strings.Split(line, "|"); len(cells) > column {
			for _, m := range coded.FindAllStringSubmatch(cells[column], -1) {
				words = append(words, m[1])
			}
		}
	}
	return words
}

// The table of metrics in docs/operate/watch.md has each series of package ops. It names none that is not
// there, and the alarms neither.
func TestWatchNamesEachSeries(t *testing.T) {
	text, err := os.ReadFile("../../ops/testdata/fresh.txt")
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	for _, m := range series.FindAllStringSubmatch(string(text), -1) {
		named[m[1]] = false
	}
	for _, pattern := range inCode(section(t, "Metrics"), 3) {
		found := false
		for name := range named {
			if ok, err := path.Match(pattern, name); err != nil {
				t.Errorf("%s: %v", pattern, err)
			} else if ok {
				found, named[name] = true, true
			}
		}
		if !found {
			t.Errorf("the table of metrics names %s, and no series is called so", pattern)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(named)) {
		if !named[name] {
			t.Errorf("the table of metrics does not name %s", name)
		}
	}
}

// Each cause of Explain has a row in docs/operate/watch.md, and the page has no others.
func TestWatchHasEachCause(t *testing.T) {
	files, err := filepath.Glob("../../host/diagnosis/*.go")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]bool{} // whether Explain has it
	for _, m := range causeRow.FindAllStringSubmatch(section(t, "First: ask Explain"), -1) {
		rows[m[1]] = false
	}
	codes := 0
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range causeCode.FindAllStringSubmatch(string(source), -1) {
			codes++
			if _, found := rows[m[1]]; !found {
				t.Errorf("%s: docs/operate/watch.md has no row for the cause %q", filepath.Base(file), m[1])
			}
			rows[m[1]] = true
		}
	}
	for row, found := range rows {
		if !found {
			t.Errorf("docs/operate/watch.md has a row for %q, and Explain no such cause", row)
		}
	}
	if codes < 20 {
		t.Errorf("%d causes were found in the source of host", codes)
	}
}
