package structure

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"strings"
	"testing"
)

// TestAliasesShowWhatTheyHave: go doc shows nothing of what an alias stands for. So the comment of each alias
// of package millrace names the fields and the methods of its type, one a line.
func TestAliasesShowWhatTheyHave(t *testing.T) {
	inRoot(t)
	files := token.NewFileSet()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var parsed []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(files, name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		parsed = append(parsed, f)
	}
	config := types.Config{Importer: importer.ForCompiler(files, "source", nil)}
	pkg, err := config.Check("github.com/millrace/millrace", files, parsed, nil)
	if err != nil {
		t.Fatal(err)
	}
	aliases := 0
	for _, f := range parsed {
		for _, d := range f.Decls {
			group, ok := d.(*ast.GenDecl)
			if !ok || group.Tok != token.TYPE {
				continue
			}
			for _, s := range group.Specs {
				spec := s.(*ast.TypeSpec)
				named, ok := types.Unalias(pkg.Scope().Lookup(spec.Name.Name).Type()).(*types.Named)
				if !spec.Assign.IsValid() || !spec.Name.IsExported() || !ok {
					continue
				}
				aliases++
				shown := map[string]bool{}
				doc := spec.Doc
				if doc == nil {
					doc = group.Doc
				}
				for line := range strings.Lines(doc.Text()) {
					if words := strings.FieldsFunc(strings.TrimPrefix(line, "\tfunc "), func(r rune) bool { return strings.ContainsRune("\t\n (", r) }); line[0] == '\t' && len(words) > 0 {
						shown[words[0]] = true
					}
				}
				for _, name := range exportedMembers(named) {
					if !shown[name] {
						t.Errorf("%s: the comment of %s does not show %s", files.Position(spec.Pos()), spec.Name.Name, name)
					}
				}
			}
		}
	}
	if aliases < 30 {
		t.Errorf("%d aliases were found", aliases)
	}
}

// exportedMembers returns the names of the fields and methods of a type.
func exportedMembers(named *types.Named) (names []string) {
	add := func(o types.Object) {
		if o.Exported() {
			names = append(names, o.Name())
		}
	}
	switch u := named.Underlying().(type) {
	case *types.Struct:
		for i := range u.NumFields() {
			add(u.Field(i))
		}
	case *types.Interface:
		for i := range u.NumMethods() {
			add(u.Method(i))
		}
	}
	for i := range named.NumMethods() {
		add(named.Method(i))
	}
	return names
}
