package mutation

import (
	"encoding/json"
	"errors"
	"fmt"
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
)

const module = "github.com/millrace/millrace"

// siteImport is the name under which generated code imports package site.
const siteImport = "mutationSite"

// source is the source of the packages that are mutated, with its types.
type source struct {
	root     string // absolute
	fset     *token.FileSet
	packages []*sourcePackage
	exports  map[string]string // the compiled form of each package, by import path
	imports  types.Importer
}

type sourcePackage struct {
	folder string // from the root
	files  []*sourceFile
	types  *types.Package
	info   *types.Info
}

type sourceFile struct {
	name   string // from the root
	text   []byte
	ast    *ast.File
	places []*place // that have mutants, in the order of the text; an outer one before those within it
}

// load reads and type-checks packages. It lets the go command build what they import, so its first run
// takes a minute.
func load(root string, folders []string) (*source, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	s := &source{root: root, fset: token.NewFileSet(), exports: map[string]string{}}
	args := []string{"list", "-export", "-deps", "-json=ImportPath,Export,GoFiles", "./internal/mutation/site"}
	for _, f := range folders {
		args = append(args, "./"+f)
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		return nil, fmt.Errorf("go list: %w", err)
	}
	files := map[string][]string{}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			ImportPath, Export string
			GoFiles            []string
		}
		if err := d.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			return nil, err
		}
		s.exports[p.ImportPath] = p.Export
		files[p.ImportPath] = p.GoFiles
	}
	s.imports = importer.ForCompiler(s.fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(s.exports[path]) })
	for _, folder := range folders {
		p, err := s.loadPackage(folder, files[module+"/"+folder])
		if err != nil {
			return nil, err
		}
		s.packages = append(s.packages, p)
	}
	return s, nil
}

func (s *source) loadPackage(folder string, names []string) (*sourcePackage, error) {
	p := &sourcePackage{folder: folder, info: &types.Info{
		Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{},
	}}
	var parsed []*ast.File
	for _, name := range names {
		f := &sourceFile{name: folder + "/" + name}
		var err error
		if f.text, err = os.ReadFile(filepath.Join(s.root, f.name)); err != nil {
			return nil, err
		}
		if f.ast, err = parser.ParseFile(s.fset, f.name, f.text, parser.ParseComments|parser.SkipObjectResolution); err != nil {
			return nil, err
		}
		p.files = append(p.files, f)
		parsed = append(parsed, f.ast)
	}
	var err error
	p.types, err = (&types.Config{Importer: s.imports}).Check(module+"/"+folder, s.fset, parsed, p.info)
	return p, err
}

// text returns the source of a node.
func (s *source) text(f *sourceFile, n ast.Node) string {
	lo, hi := s.span(n)
	return string(f.text[lo:hi])
}

// span returns the range [lo, hi) of a node in its file, in bytes.
func (s *source) span(n ast.Node) (lo, hi int) {
	return s.fset.Position(n.Pos()).Offset, s.fset.Position(n.End()).Offset
}

// nameIn returns how a file writes a type, or false if it cannot: a package is not imported there.
func (p *sourcePackage) nameIn(f *sourceFile, t types.Type) (string, bool) {
	if b, ok := t.(*types.Basic); ok && b.Info()&types.IsUntyped != 0 {
		t = types.Default(t)
	}
	sayable := true
	text := types.TypeString(t, func(other *types.Package) string {
		if other == p.types {
			return ""
		}
		for _, imp := range f.ast.Imports {
			if strings.Trim(imp.Path.Value, `"`) == other.Path() {
				if imp.Name != nil {
					return imp.Name.Name
				}
				return other.Name()
			}
		}
		sayable = false
		return other.Name()
	})
	return text, sayable && !strings.Contains(text, "untyped")
}
