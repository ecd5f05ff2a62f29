package structure

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPropertiesAreListed: each property of package sim/property has a row in docs/traceability.md, and the
// files that the row names check it.
func TestPropertiesAreListed(t *testing.T) {
	inRoot(t)
	declared, err := os.ReadFile("sim/property/property.go")
	if err != nil {
		t.Fatal(err)
	}
	table, err := os.ReadFile("docs/traceability.md")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`(?m)^\t(\w+) +Name = "([a-z-]+)"`).FindAllStringSubmatch(string(declared), -1)
	if len(names) < 20 {
		t.Errorf("package property has %d properties; it has more", len(names))
	}
	for _, m := range names {
		constant, name := m[1], m[2]
		row := regexp.MustCompile(`(?m)^\| ` + name + ` \|.*\|$`).FindString(string(table))
		if row == "" {
			t.Errorf("docs/traceability.md has no row for the property %s", name)
			continue
		}
		files := regexp.MustCompile("`(sim/[^`]+)`").FindAllStringSubmatch(row, -1)
		if len(files) == 0 {
			t.Errorf("the row of the property %s names no file", name)
		}
		for _, f := range files {
			text, err := os.ReadFile(filepath.FromSlash(f[1]))
			if err != nil {
				t.Error(err)
			} else if !strings.Contains(string(text), "property."+constant) && constant != "Scenario" {
				t.Errorf("%s is said to check %s, and does not name property.%s", f[1], name, constant)
			}
		}
	}
}
