package planted_test

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// checker type-checks a package with some of its files replaced. That takes some tenths of a second; a build
// takes some seconds.
type checker struct {
	fset  *token.FileSet
	dir   string
	files map[string]*ast.File // of the package as it is, by the path from the root
	from  types.Importer
}

func newChecker(t *testing.T, pkg string) *checker {
	t.Helper()
	c := &checker{fset: token.NewFileSet(), dir: strings.TrimPrefix(pkg, "./"), files: map[string]*ast.File{}}
	for _, name := range strings.Fields(goList(t, "{{range .GoFiles}}{{.}} {{end}}", pkg)) {
		f, err := parser.ParseFile(c.fset, filepath.Join(root, c.dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		c.files[path.Join(c.dir, name)] = f
	}
	exports := map[string]string{}
	// switchFile imports os, and the package itself may not.
	for line := range strings.Lines(goList(t, "{{.ImportPath}} {{.Export}}", "-export", "-deps", pkg, "os")) {
		if path, file, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			exports[path] = file
		}
	}
	c.from = importer.ForCompiler(c.fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	return c
}

func goList(t *testing.T, format string, args ...string) string {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-f", format}, args...)...)
	cmd.Dir, cmd.Stderr = root, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// check reports whether the package compiles with some of its files replaced, and others added.
func (c *checker) check(o overlay) error {
	var files []*ast.File
	add := func(path, text string) error {
		f, err := parser.ParseFile(c.fset, path, text, parser.SkipObjectResolution)
		files = append(files, f)
		return err
	}
	for path, f := range c.files {
		if _, replaced := o[path]; !replaced {
			files = append(files, f)
		}
	}
	for file, text := range o {
		if path.Dir(file) == c.dir {
			if err := add(file, text); err != nil {
				return err
			}
		}
	}
	_, err := (&types.Config{Importer: c.from}).Check(c.dir, c.fset, files, nil)
	return err
}

// TestEachApplies: every edit applies, exactly once, and the result compiles. The bugs that share an overlay
// are compiled together, and one by one only if that fails.
func TestEachApplies(t *testing.T) {
	for _, b := range pointers(bugs) {
		if _, err := b.texts(); err != nil {
			t.Errorf("bug %q does not apply: %v", b.name, err)
		}
	}
	if t.Failed() {
		return
	}
	all, alone, err := combine(pointers(bugs))
	if err != nil {
		t.Fatal(err)
	}
	checkers := map[string]*checker{}
	check := func(o overlay, dir string) error {
		if checkers[dir] == nil {
			checkers[dir] = newChecker(t, "./"+dir)
		}
		return checkers[dir].check(o)
	}
	failed, named := map[string]bool{}, map[string]bool{}
	for file := range all {
		if dir := path.Dir(file); path.Base(file) == switchFile && check(all, dir) != nil {
			failed[dir] = true
		}
	}
	for _, b := range pointers(bugs) {
		for _, file := range b.files() {
			dir := path.Dir(file)
			if !alone[b.name] && !failed[dir] {
				continue
			}
			texts, err := b.texts()
			if err != nil {
				t.Fatal(err)
			}
			if err := check(texts, dir); err != nil {
				t.Errorf("bug %q does not compile: %v", b.name, err)
				named[dir] = true
			}
		}
	}
	for dir := range failed {
		if named[dir] {
			continue
		}
		t.Errorf("each bug of ./%s compiles, and all together do not: %v", dir, check(all, dir))
	}
}
