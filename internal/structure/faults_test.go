package structure

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestFaultsAreShown: docs/internals/faults.md has a row for each fault of the catalogue, in order, with the
// tests that show it or the reason why none does, and the tests exist.
func TestFaultsAreShown(t *testing.T) {
	inRoot(t)
	text, err := os.ReadFile("docs/internals/faults.md")
	if err != nil {
		t.Fatal(err)
	}
	const faults, atLeast = 132, 90
	tests := testNames(t)
	named := regexp.MustCompile("`((?:Test|Fuzz)[A-Z]\\w+)`")
	rows, shown := 0, 0
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		n, err := strconv.Atoi(strings.TrimSpace(cells[0]))
		if err != nil {
			continue
		}
		rows++
		if n != rows || len(cells) != 4 {
			t.Fatalf("row %d has number %d and %d cells: %s", rows, n, len(cells), line)
		}
		if words := len(strings.Fields(cells[3])); words == 0 || words < 5 && !strings.Contains(cells[3], "`") {
			t.Errorf("fault %d has neither a test nor a reason: %s", n, cells[3])
		}
		found := named.FindAllStringSubmatch(cells[3], -1)
		for _, m := range found {
			if !tests[m[1]] {
				t.Errorf("fault %d names %s, and no such test exists", n, m[1])
			}
		}
		if layer := strings.TrimSpace(cells[2]); layer != "–" && layer != "service" && len(found) > 0 {
			shown++
		}
	}
	if rows != faults || shown < atLeast {
		t.Errorf("%d faults have a row, want %d; %d are shown by a test, want at least %d", rows, faults, shown, atLeast)
	}
}
