package planted_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The table of docs/internals/planted-bugs.md has a row for each bug. A run with -planted.write writes the
// rows of the bugs that it has run; TestTableIsComplete says which are missing.

const tableFile = "docs/internals/planted-bugs.md"

const (
	tableHead = "| bug | what it does | found by | CPU seconds |\n|---|---|---|---|\n"
	tableEnd  = "\n<!-- end of the table -->\n"
)

// row is the row of a bug.
func (b *bug) row(found []verdict) string {
	if len(found) == 0 {
		return fmt.Sprintf("| `%s` | %s | the same as without: %s | - |", b.name, b.what, b.same)
	}
	var by, cpu []string
	for _, v := range found {
		how := v.layer()
		if v.judge.test != labTest {
			how += ", " + strings.TrimSpace(fmt.Sprintf("`%s` %s", v.judge.test, v.args))
		}
		switch {
		case v.judge.test == labTest:
			how += ", " + v.detail
		case v.test == "does not end" || v.test == "panics":
			how += ", which " + v.test
		}
		by, cpu = append(by, how), append(cpu, fmt.Sprintf("%.1f", v.cpu.Seconds()))
	}
	return fmt.Sprintf("| `%s` | %s | %s | %s |", b.name, b.what, strings.Join(by, "; "), strings.Join(cpu, "; "))
}

// readTable returns what stands before the rows, the rows by bug, and what stands behind them.
func readTable() (before string, rows map[string]string, after string, err error) {
	text, err := source(tableFile)
	if err != nil {
		return "", nil, "", err
	}
	before, text, ok := strings.Cut(text, tableHead)
	body, after, ends := strings.Cut(text, tableEnd)
	if !ok || !ends {
		return "", nil, "", fmt.Errorf("%s has no table with the head and the end that are expected", tableFile)
	}
	rows = map[string]string{}
	for line := range strings.Lines(body) {
		name := strings.SplitN(line, "`", 3)
		if len(name) < 3 {
			return "", nil, "", fmt.Errorf("%s: a row without a name: %s", tableFile, line)
		}
		rows[name[1]] = strings.TrimSuffix(line, "\n")
	}
	return before, rows, after, nil
}

// writeTable writes these rows into the table, and leaves the others.
func writeTable(now map[string]string) error {
	before, rows, after, err := readTable()
	if err != nil {
		return err
	}
	var out strings.Builder
	out.WriteString(before + tableHead)
	for i := range bugs {
		name := bugs[i].name
		if now[name] != "" {
			rows[name] = now[name]
		}
		if rows[name] != "" {
			out.WriteString(rows[name] + "\n")
		}
	}
	out.WriteString(strings.TrimPrefix(tableEnd, "\n") + after)
	return os.WriteFile(filepath.Join(root, tableFile), []byte(strings.Replace(out.String(), "\n"+strings.TrimPrefix(tableEnd, "\n"), "\n"+tableEnd, 1)), 0o600)
}

// The table has a row for each bug, and the row says what the bug does and where it is known to be found.
func TestTableIsComplete(t *testing.T) {
	_, rows, _, err := readTable()
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range pointers(bugs) {
		row := rows[b.name]
		delete(rows, b.name)
		if !strings.HasPrefix(row, fmt.Sprintf("| `%s` | %s |", b.name, b.what)) {
			t.Errorf("%s: bug %q has no row, or another description: go test ./internal/planted -run TestEachIsFound -v -timeout 0 -planted.only '^%s$' -planted.write", tableFile, b.name, b.name)
			continue
		}
		for _, j := range b.judges() {
			if b.found != "" && j.test != labTest && !strings.Contains(row, strings.TrimSpace(fmt.Sprintf("`%s` %s", j.test, j.args))) {
				t.Errorf("%s: the row of %q does not name its judge %s %s", tableFile, b.name, j.test, j.args)
			}
		}
	}
	for name := range rows {
		t.Errorf("%s has a row for %q, which is no bug", tableFile, name)
	}
}
