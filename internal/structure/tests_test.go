package structure

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestNamedTestsExist: a test, benchmark or fuzz target that a comment of a Go file names exists, in any
// module of the repository.
func TestNamedTestsExist(t *testing.T) {
	inRoot(t)
	name := regexp.MustCompile(`\b(?:Test|Benchmark|Fuzz)[A-Z]\w+`)
	declared := map[string]bool{}
	named := map[string]string{} // a test, and a place that names it
	err := filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && (d.Name() == "testdata" || d.Name() == ".git") {
			return errOrSkip(err)
		}
		if !strings.HasSuffix(file, ".go") {
			return nil
		}
		files := token.NewFileSet()
		f, err := parser.ParseFile(files, file, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok {
				declared[fn.Name.Name] = true
			}
		}
		for _, group := range f.Comments {
			for _, c := range group.List {
				for _, test := range name.FindAllString(c.Text, -1) {
					named[test] = files.Position(c.Pos()).String()
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(named) < 50 {
		t.Errorf("comments name %d tests; they name more", len(named))
	}
	for test, place := range named {
		if !declared[test] {
			t.Errorf("%s: no test is called %s", place, test)
		}
	}
}
