package structure

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestLinks: a link in a document that leads to a file or a heading of the repository leads to one that
// exists.
func TestLinks(t *testing.T) {
	inRoot(t)
	link := regexp.MustCompile(`\]\(([^)\s]+)\)|<img src="([^"]+)"`)
	err := filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && d.Name() == "testdata" {
			return errOrSkip(err)
		}
		if !strings.HasSuffix(file, ".md") {
			return nil
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			target, heading, _ := strings.Cut(m[1]+m[2], "#")
			if strings.Contains(target, "://") {
				continue
			}
			if target == "" {
				if !anchors(string(text))[heading] {
					t.Errorf("%s: no heading #%s", file, heading)
				}
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(file), target)); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func errOrSkip(err error) error {
	if err != nil {
		return err
	}
	return fs.SkipDir
}

// anchors are the headings of a document in the form in which links name them.
func anchors(text string) map[string]bool {
	all := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(text, -1) {
		name := regexp.MustCompile(`[^a-z0-9 -]`).ReplaceAllString(strings.ToLower(m[1]), "")
		all[strings.ReplaceAll(name, " ", "-")] = true
	}
	return all
}
