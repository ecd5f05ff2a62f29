package planted_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// internal/planted/testdata/planted-bugs.md has a row for each bug. A run with -planted.write writes the
// rows of the bugs that it has run, and the tables that follow from this package alone; TestTableIsComplete
// says what is missing.

const tableFile = "internal/planted/testdata/planted-bugs.md"

const tableHead = "| bug | what it does | found by | CPU seconds |\n|---|---|---|---|\n"

// row is the row of a bug.
func (b *bug) row(found []verdict) string {
	if len(found) == 0 {
		return fmt.Sprintf("| `%s` | %s | the same as without: %s | - |", b.name, b.what, b.same)
	}
	var by, cpu []string
	for _, v := range found {
		how := v.layer()
		switch {
		case v.judge.test == labTest:
			how += ", " + v.detail
		case v.test == endless || v.test == "panics":
			how += ", " + v.judge.text() + ", which " + v.test
		default:
			how += ", " + v.judge.text()
		}
		by, cpu = append(by, how), append(cpu, fmt.Sprintf("%.1f", v.cpu.Seconds()))
	}
	return fmt.Sprintf("| `%s` | %s | %s | %s |", b.name, b.what, strings.Join(by, "; "), strings.Join(cpu, "; "))
}

// text names the judge, with its flags: the seeds that it needs.
func (j judge) text() string {
	return strings.TrimSpace(fmt.Sprintf("`%s` %s", j.test, strings.TrimSpace(strings.TrimSuffix(j.args, "-failures 1"))))
}

// section is a part of the file between two marks, which a test writes.
type section struct{ before, body, after string }

func cut(text, name string) (s section, err error) {
	begin, end := "<!-- begin "+name+" -->\n\n", "\n<!-- end "+name+" -->\n"
	before, rest, ok := strings.Cut(text, begin)
	body, after, ends := strings.Cut(rest, end)
	if !ok || !ends {
		return s, fmt.Errorf("%s has no section %q: the marks %q and %q", tableFile, name, begin, end)
	}
	return section{before + begin, body, end + after}, nil
}

// derived are the sections that do not depend on a run.
func derived() map[string]string {
	return map[string]string{"oracles": oracleTable(), "other systems": originTable(true, otherSystems), "reviews": originTable(false, reviews)}
}

// rowsOf returns the rows of the table of bugs, by bug.
func rowsOf(body string) (map[string]string, error) {
	body, ok := strings.CutPrefix(body, tableHead)
	if !ok {
		return nil, fmt.Errorf("%s: the table of bugs has another head", tableFile)
	}
	rows := map[string]string{}
	for line := range strings.Lines(body) {
		name := strings.SplitN(line, "`", 3)
		if len(name) < 3 {
			return nil, fmt.Errorf("%s: a row without a name: %s", tableFile, line)
		}
		rows[name[1]] = strings.TrimSuffix(line, "\n")
	}
	return rows, nil
}

// writeTable writes these rows, leaves those of other bugs, and writes the other sections.
func writeTable(now map[string]string) error {
	text, err := source(tableFile)
	if err != nil {
		return err
	}
	s, err := cut(text, "bugs")
	if err != nil {
		return err
	}
	rows, err := rowsOf(s.body)
	if err != nil {
		return err
	}
	out := tableHead
	for i := range bugs {
		name := bugs[i].name
		if now[name] != "" {
			rows[name] = now[name]
		}
		if rows[name] != "" {
			out += rows[name] + "\n"
		}
	}
	text = s.before + out + s.after
	for name, body := range derived() {
		if s, err = cut(text, name); err != nil {
			return err
		}
		text = s.before + body + s.after
	}
	return os.WriteFile(filepath.Join(root, tableFile), []byte(text), 0o600)
}

// The file has a row for each bug, which says what the bug does and which judges are known to find it.
func TestTableIsComplete(t *testing.T) {
	text, err := source(tableFile)
	if err != nil {
		t.Fatal(err)
	}
	s, err := cut(text, "bugs")
	if err != nil {
		t.Fatal(err)
	}
	rows, err := rowsOf(s.body)
	if err != nil {
		t.Fatal(err)
	}
	const again = "go test ./internal/planted -run TestEachIsFound -v -timeout 0 -planted.write -planted.only"
	for _, b := range pointers(bugs) {
		row := rows[b.name]
		delete(rows, b.name)
		if !strings.HasPrefix(row, fmt.Sprintf("| `%s` | %s |", b.name, b.what)) {
			t.Errorf("%s: bug %q has no row, or another description: %s '^%s$'", tableFile, b.name, again, b.name)
			continue
		}
		for _, j := range b.judges() {
			if b.found != "" && j.test != labTest && !strings.Contains(row, j.text()) {
				t.Errorf("%s: the row of %q does not name its judge %s: %s '^%s$'", tableFile, b.name, j.text(), again, b.name)
			}
		}
	}
	for name := range rows {
		t.Errorf("%s has a row for %q, which is no bug", tableFile, name)
	}
	for name, want := range derived() {
		if s, err := cut(text, name); err != nil || s.body != want {
			t.Errorf("%s: section %q is not what this package says (%v): %s '^none$'", tableFile, name, err, again)
		}
	}
}
