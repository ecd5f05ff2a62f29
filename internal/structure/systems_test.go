package structure

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

var systems = flag.Bool("systems", false, "check the types of all packages and tests for all systems (TestTypesOnEverySystem)")

// theSystems are those for which everything must build, tests included. CI builds and vets linux/amd64.
var theSystems = []string{
	"linux/386", "linux/arm", "linux/arm64", "darwin/amd64", "darwin/arm64", "windows/amd64", "freebsd/amd64",
}

// Every package and every test of the workspace has right types on every system. go build takes 49 seconds of
// processor for one system, and go vet 45 more, because both compile packages again for it. Here everything
// is read from source, and of the standard library only declarations: 22 seconds for all.
func TestTypesOnEverySystem(t *testing.T) {
	if !*systems {
		t.Skip("it takes twenty seconds of processor: -systems runs it")
	}
	inRoot(t)
	files := &sourceFiles{set: token.NewFileSet(), parsed: map[string]*ast.File{}}
	for _, system := range theSystems {
		list := listSystem(t, system, "work")
		t.Run(strings.ReplaceAll(system, "/", " "), func(t *testing.T) {
			t.Parallel()
			if n := files.check(t, system, list); n < 100 {
				t.Errorf("only %d packages and tests were looked at", n)
			}
		})
	}
}

// A mistake that only other systems have is found.
func TestTypesOfAnotherSystemAreChecked(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":            "module example\n\ngo 1.26\n",
		"a.go":              "package example\n\nconst large = 1 << 40\n",
		"a_386_test.go":     "package example\n\nimport \"testing\"\n\nfunc TestA(t *testing.T) { _ = int(large) }\n",
		"a_windows_test.go": "package example_test\n\nimport \"testing\"\n\nfunc TestA(t *testing.T) { t.None() }\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	t.Setenv("GOWORK", "off")
	for system, want := range map[string]string{"linux/386": "overflows int", "windows/amd64": "t.None undefined", "darwin/arm64": ""} {
		files := &sourceFiles{set: token.NewFileSet(), parsed: map[string]*ast.File{}}
		var found reports
		files.check(&found, system, listSystem(t, system, "./..."))
		if text := strings.Join(found, "\n"); text == "" != (want == "") || !strings.Contains(text, want) {
			t.Errorf("%s: found %q, want %q", system, text, want)
		}
	}
}

type reports []string

func (r *reports) Errorf(format string, args ...any) { *r = append(*r, fmt.Sprintf(format, args...)) }

// listedPackage is what "go list" says of a package, or of one as its tests see it.
type listedPackage struct {
	ImportPath, Dir, Name, ForTest string
	Standard                       bool
	GoFiles                        []string
	ImportMap                      map[string]string
}

// listSystem lists the packages of a pattern with their tests and dependencies, each after its dependencies.
func listSystem(t *testing.T, system, pattern string) (all []listedPackage) {
	t.Helper()
	goos, goarch, _ := strings.Cut(system, "/")
	c := exec.Command("go", "list", "-deps", "-test", "-json=ImportPath,Dir,Name,ForTest,Standard,GoFiles,ImportMap", pattern)
	c.Env = append(os.Environ(), "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED=0")
	out, err := c.Output()
	if err != nil {
		t.Fatalf("go list for %s: %v", system, err)
	}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listedPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

// sourceFiles parses each file once, for all systems.
type sourceFiles struct {
	set    *token.FileSet
	mu     sync.Mutex
	parsed map[string]*ast.File
}

func (s *sourceFiles) file(path string) (*ast.File, error) {
	s.mu.Lock()
	f := s.parsed[path]
	s.mu.Unlock()
	if f != nil {
		return f, nil
	}
	f, err := parser.ParseFile(s.set, path, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.parsed[path] = f
	s.mu.Unlock()
	return f, nil
}

// imports gives a package those that it imports.
type imports func(path string) (*types.Package, error)

func (i imports) Import(path string) (*types.Package, error) { return i(path) }

// check checks the types of listed packages for a system. It returns how many of them are not of the standard
// library.
func (s *sourceFiles) check(t interface{ Errorf(string, ...any) }, system string, list []listedPackage) (own int) {
	_, goarch, _ := strings.Cut(system, "/")
	done := map[string]*types.Package{"unsafe": types.Unsafe}
	for _, p := range list {
		if p.ImportPath == "unsafe" || strings.HasSuffix(p.ImportPath, ".test") {
			continue // the main package of a test is generated
		}
		var files []*ast.File
		for _, name := range p.GoFiles {
			f, err := s.file(filepath.Join(p.Dir, name))
			if err != nil {
				t.Errorf("%s: %v", system, err)
				return own
			}
			files = append(files, f)
		}
		c := types.Config{
			Importer: imports(func(path string) (*types.Package, error) {
				if mapped := p.ImportMap[path]; mapped != "" {
					path = mapped
				}
				if found := done[path]; found != nil {
					return found, nil
				}
				return nil, fmt.Errorf("%s is not listed before it is imported", path)
			}),
			Sizes:            types.SizesFor("gc", goarch),
			IgnoreFuncBodies: p.Standard,
			FakeImportC:      true,
			Error: func(err error) {
				if !p.Standard {
					t.Errorf("%s: %v", system, err)
				}
			},
		}
		path, _, _ := strings.Cut(p.ImportPath, " ")
		done[p.ImportPath], _ = c.Check(path, s.set, files, nil)
		if !p.Standard {
			own++
		}
	}
	return own
}
