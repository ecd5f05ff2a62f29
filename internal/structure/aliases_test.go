package structure

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestAliasesShowWhatTheyHave: go doc shows nothing of what an alias stands for. So the comment of each alias
// of package millrace has a line for each field and each method of its type: how the compiler knows it, and
// what it is, in words. A line that the type does not have any more fails, too.
func TestAliasesShowWhatTheyHave(t *testing.T) {
	inRoot(t)
	f := parseFace(t)
	for _, a := range f.aliases {
		for _, wrong := range compareMembers(shownMembers(a.doc), f.declarations(a.of)) {
			t.Errorf("%s: the comment of %s %s", f.files.Position(a.at), a.name, wrong)
		}
	}
	if len(f.aliases) < 30 {
		t.Errorf("%d aliases were found", len(f.aliases))
	}
}

// TestStaleAliasCommentsAreFound: each way in which such a comment can be wrong.
func TestStaleAliasCommentsAreFound(t *testing.T) {
	real := []string{"Index uint64", "func String() string"}
	for _, tc := range []struct{ name, doc, want string }{
		{"right", "T is one.\n\n\tIndex  uint64   // the entry of the log\n\tfunc String() string // a text for people\n", ""},
		{"a field is missing", "T is one.\n\n\tfunc String() string // a text for people\n", `does not show "Index uint64"`},
		{"another type", "T is one.\n\n\tIndex int // the entry of the log\n\tfunc String() string // a text for people\n", `does not show "Index uint64"; shows "Index int", which`},
		{"a method is gone", "T is one.\n\n\tIndex uint64 // the entry of the log\n\tfunc String() string // a text for people\n\tfunc Gone() // does a thing\n", `shows "func Gone()", which`},
		{"no words", "T is one.\n\n\tIndex uint64\n\tfunc String() string // text\n", `does not say what "Index uint64" is; does not say what "func String() string" is`},
	} {
		if have := strings.Join(compareMembers(shownMembers(tc.doc), real), "; "); have == "" != (tc.want == "") || !strings.Contains(have, tc.want) {
			t.Errorf("%s: %q, want %q", tc.name, have, tc.want)
		}
	}
}

// alias is an exported alias of a named type.
type alias struct {
	name, doc string
	at        token.Pos
	of        *types.Named
}

// face is package millrace with its exported aliases.
type face struct {
	files   *token.FileSet
	aliases []alias
	names   map[string]string // of types of other packages, here: host.Leader is Leader
}

func parseFace(t *testing.T) *face {
	t.Helper()
	f := &face{files: token.NewFileSet(), names: map[string]string{}}
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var parsed []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(f.files, name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		parsed = append(parsed, file)
	}
	config := types.Config{Importer: importer.ForCompiler(f.files, "source", nil)}
	pkg, err := config.Check("github.com/millrace/millrace", f.files, parsed, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range parsed {
		for _, d := range file.Decls {
			if group, ok := d.(*ast.GenDecl); ok && group.Tok == token.TYPE {
				for _, s := range group.Specs {
					f.add(pkg, group, s.(*ast.TypeSpec))
				}
			}
		}
	}
	return f
}

// add adds a type if it is an exported alias of a type of another package.
func (f *face) add(pkg *types.Package, group *ast.GenDecl, spec *ast.TypeSpec) {
	of, ok := types.Unalias(pkg.Scope().Lookup(spec.Name.Name).Type()).(*types.Named)
	if !spec.Assign.IsValid() || !spec.Name.IsExported() || !ok {
		return
	}
	doc := spec.Doc
	if doc == nil {
		doc = group.Doc
	}
	f.aliases = append(f.aliases, alias{spec.Name.Name, doc.Text(), spec.Pos(), of})
	f.names[of.Obj().Pkg().Name()+"."+of.Obj().Name()] = spec.Name.Name
	f.names[types.ExprString(spec.Type)] = spec.Name.Name
}

var qualified = regexp.MustCompile(`\b[a-z]\w*\.[A-Z]\w*`)

// declarations are the exported fields and methods of a type. Types that the face passes on have its names.
func (f *face) declarations(of *types.Named) (all []string) {
	text := func(t types.Type) string {
		whole := types.TypeString(t, (*types.Package).Name)
		return qualified.ReplaceAllStringFunc(whole, func(name string) string {
			if here := f.names[name]; here != "" {
				return here
			}
			return name
		})
	}
	method := func(m *types.Func) {
		if m.Exported() {
			all = append(all, "func "+m.Name()+strings.TrimPrefix(text(m.Type()), "func"))
		}
	}
	switch u := of.Underlying().(type) {
	case *types.Struct:
		for v := range u.Fields() {
			if v.Exported() {
				all = append(all, v.Name()+" "+text(v.Type()))
			}
		}
	case *types.Interface:
		for m := range u.Methods() {
			method(m)
		}
	}
	for m := range of.Methods() {
		method(m)
	}
	return all
}

// shownMembers are the lines of the code in a comment: each declaration with its words.
func shownMembers(doc string) map[string]string {
	shown := map[string]string{}
	for line := range strings.Lines(doc) {
		if line[0] == '\t' {
			declaration, words, _ := strings.Cut(line, "//")
			shown[strings.Join(strings.Fields(declaration), " ")] = strings.TrimSpace(words)
		}
	}
	return shown
}

// compareMembers says what is wrong with the lines of a comment.
func compareMembers(shown map[string]string, real []string) (wrong []string) {
	for _, declaration := range real {
		switch words, ok := shown[declaration]; {
		case !ok:
			wrong = append(wrong, `does not show "`+declaration+`"`)
		case len(strings.Fields(words)) < 2:
			wrong = append(wrong, `does not say what "`+declaration+`" is`)
		}
	}
	var stale []string
	for declaration := range shown {
		if !slices.Contains(real, declaration) {
			stale = append(stale, `shows "`+declaration+`", which its type does not have`)
		}
	}
	slices.Sort(stale)
	return append(wrong, stale...)
}
