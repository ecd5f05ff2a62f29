package structure

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A definition is a row of a table in docs/glossary.md: the word, its meaning, its home in the code, and
// words that are not used for it.
type definition struct {
	word, meaning, home string
	line                int
}

var definitionRow = regexp.MustCompile(`^\| \*([^*|]+)\* \|([^|]+)\|([^|]*)\|([^|]*)\|$`)

// TestGlossary: each word is defined once, in order, with a home that exists.
func TestGlossary(t *testing.T) {
	inRoot(t)
	text, err := os.ReadFile("docs/glossary.md")
	if err != nil {
		t.Fatal(err)
	}
	defined := map[string]int{}
	last := definition{}
	for i, line := range strings.Split(string(text), "\n") {
		if strings.HasPrefix(line, "## ") {
			last = definition{}
		}
		if !strings.HasPrefix(line, "| *") {
			continue
		}
		m := definitionRow.FindStringSubmatch(line)
		if m == nil {
			t.Errorf("docs/glossary.md:%d: want | *word* | meaning | `home` | not |, have %s", i+1, line)
			continue
		}
		d := definition{word: m[1], meaning: strings.TrimSpace(m[2]), home: strings.Trim(m[3], " `"), line: i + 1}
		if before, twice := defined[d.word]; twice {
			t.Errorf("docs/glossary.md:%d: %s is defined on line %d already", d.line, d.word, before)
		}
		defined[d.word] = d.line
		if last.word > d.word {
			t.Errorf("docs/glossary.md:%d: %s comes after %s; a table is in alphabetical order", d.line, d.word, last.word)
		}
		if d.home != "–" {
			if _, err := os.Stat(d.home); err != nil {
				t.Errorf("docs/glossary.md:%d: the home of %s: %v", d.line, d.word, err)
			}
		}
		if strings.Contains(m[4], "`"+d.word+"`") {
			t.Errorf("docs/glossary.md:%d: %s is not used for itself", d.line, d.word)
		}
		last = d
	}
	if len(defined) < 50 {
		t.Errorf("docs/glossary.md defines %d words; it has more", len(defined))
	}
	definedElsewhere(t, defined)
}

// definedElsewhere finds rows of the same form in other documents.
func definedElsewhere(t *testing.T, defined map[string]int) {
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md"} {
		documents, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, document := range documents {
			text, err := os.ReadFile(document)
			if err != nil {
				t.Fatal(err)
			}
			for i, line := range strings.Split(string(text), "\n") {
				word, _, _ := strings.Cut(strings.TrimPrefix(line, "| *"), "*")
				if before, twice := defined[word]; twice && document != "docs/glossary.md" && strings.HasPrefix(line, "| *") {
					t.Errorf("%s:%d: %s is defined in docs/glossary.md:%d", document, i+1, word, before)
				}
			}
		}
	}
}
