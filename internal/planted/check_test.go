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
	"path/filepath"
	"strings"
	"testing"
)

// checker type-checks a package with some of its files replaced. That takes a tenth of a second; a build
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
		c.files[c.dir+"/"+name] = f
	}
	exports := map[string]string{}
	for line := range strings.Lines(goList(t, "{{.ImportPath}} {{.Export}}", "-export", "-deps", pkg)) {
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

// concerns reports whether one of the replaced files belongs to the package.
func (c *checker) concerns(replaced map[string]string) bool {
	for path := range replaced {
		if c.files[path] != nil {
			return true
		}
	}
	return false
}

// check reports whether the package compiles with some of its files replaced.
func (c *checker) check(replaced map[string]string) error {
	if !c.concerns(replaced) {
		return nil
	}
	var files []*ast.File
	for path, f := range c.files {
		if text, ok := replaced[path]; ok {
			edited, err := parser.ParseFile(c.fset, path, text, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			f = edited
		}
		files = append(files, f)
	}
	_, err := (&types.Config{Importer: c.from}).Check(c.dir, c.fset, files, nil)
	return err
}
