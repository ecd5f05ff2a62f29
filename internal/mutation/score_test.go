//go:build linux

package mutation

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The results are in testdata/results.jsonl; what people found out about the survivors is in the table of
// internal/mutation/testdata/mutation.md. After a run, -mutation.write brings the tables up to date: it
// keeps the verdicts of the table.
//
//	go test ./internal/mutation -run TestSurvivorsAreJudged -mutation.write

var write = flag.Bool("mutation.write", false, "write the tables of internal/mutation/testdata/mutation.md again, with the verdicts that it has")

const (
	document = "testdata/mutation.md"
	unread   = "open: not read yet"
)

// TestSurvivorsAreJudged: the document has the scores of the results and one verdict on each mutant that
// survived: it is equivalent, or a test finds it now, or its place is gone from the code, or it is open.
func TestSurvivorsAreJudged(t *testing.T) {
	results, err := readResults("testdata/results.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	verdicts := verdictsIn(text)
	first, last := earliest(results), latest(results)
	for i, r := range first {
		switch v := kindOf(verdicts[r.ID]); {
		case r.Result != Survived || *write:
		case v == "":
			t.Errorf("no row for %s: -mutation.write makes one", r.ID)
		case v == "test" && last[i].Result == Survived:
			t.Errorf("%s still survives: -mutation.again judges it again", r.ID)
		case v != "test" && last[i].Result != Survived:
			t.Errorf("%s is %s by %s now, and the table says %q", r.ID, last[i].Result, last[i].Test, v)
		}
	}
	want := between(t, text, "scores", scoreTable(first, last, verdicts))
	want = between(t, want, "survivors", survivorTable(first, last, verdicts))
	if *write {
		if err := os.WriteFile(document, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if want != text {
		t.Errorf("the tables of %s are not those of the results: go test ./internal/mutation -run TestSurvivorsAreJudged -mutation.write", document)
	}
}

// between replaces what is between the comments <!-- name --> and <!-- end -->.
func between(t *testing.T, text, name, table string) string {
	t.Helper()
	before, rest, ok := strings.Cut(text, "<!-- "+name+" -->\n")
	_, after, ends := strings.Cut(rest, "<!-- end -->")
	if !ok || !ends {
		t.Fatalf("%s has no place for the table of %s", document, name)
	}
	return before + "<!-- " + name + " -->\n" + table + "<!-- end -->" + after
}

// verdictsIn reads the verdicts of the table of survivors, by the names of the mutants.
func verdictsIn(text string) map[string]string {
	row := regexp.MustCompile("(?m)^\\| `([^`]+:[^`]+)`.*\\| ((?:equivalent|test|gone|open): [^|]+) \\|$")
	found := map[string]string{}
	for _, m := range row.FindAllStringSubmatch(text, -1) {
		found[m[1]] = m[2]
	}
	return found
}

// equivalents returns the mutants that are known to be equivalent.
func equivalents() (map[string]bool, error) {
	text, err := os.ReadFile(document)
	if err != nil {
		return nil, err
	}
	found := map[string]bool{}
	for id, v := range verdictsIn(string(text)) {
		found[id] = kindOf(v) == "equivalent"
	}
	return found, nil
}

func kindOf(verdict string) string {
	kind, _, _ := strings.Cut(verdict, ":")
	return kind
}

func survivorTable(first, last []Result, verdicts map[string]string) string {
	var b strings.Builder
	b.WriteString("| mutant | line | was | is | verdict |\n|---|---|---|---|---|\n")
	for i, r := range first {
		if r.Result != Survived {
			continue
		}
		v := cmp.Or(verdicts[r.ID], unread)
		if kindOf(v) == "open" && last[i].Result != Survived {
			v = "test: " + last[i].Test[strings.LastIndexByte(last[i].Test, '.')+1:] + " (" + last[i].Result + ")"
		}
		fmt.Fprintf(&b, "| `%s` | %d | %s | %s | %s |\n", r.ID, r.Line, cell(r.Was), cell(r.Is), v)
	}
	return b.String()
}

// cell makes code of a text, in a cell of a table.
func cell(text string) string {
	if text == "" {
		return "left out"
	}
	return "`" + strings.NewReplacer("|", "\\|", "`", "'").Replace(text) + "`"
}

func scoreTable(first, last []Result, verdicts map[string]string) string {
	var b strings.Builder
	b.WriteString("| area | drawn | not reached | killed by a failure | by time | survived | of these equivalent | score | of those not equivalent |\n")
	b.WriteString("|---|---|---|---|---|---|---|---|---|\n")
	for _, when := range []struct {
		name    string
		results []Result
	}{{"before", first}, {"after", last}} {
		for _, area := range slices.Concat(Areas, []Area{{}}) {
			var tally Tally
			for _, r := range when.results {
				if area.Name == "" || r.Area == area.Name {
					tally.add(r, kindOf(verdicts[r.ID]) == "equivalent")
				}
			}
			fmt.Fprintf(&b, "| %s, %s | %s |\n", cmp.Or(area.Name, "**all**"), when.name, tally)
		}
	}
	return b.String()
}
