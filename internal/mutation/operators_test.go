//go:build linux

package mutation

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"slices"
	"strings"
	"testing"
)

// twoPackages are what the examples import.
type twoPackages struct{}

func (twoPackages) Import(path string) (*types.Package, error) {
	text, ok := map[string]string{
		"errors":                           "package errors; func New(string) error { return nil }",
		module + "/internal/mutation/site": "package site; func On(int) bool { return false }",
	}[path]
	if !ok {
		return nil, fmt.Errorf("no package %s", path)
	}
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, path, text, 0)
	if err != nil {
		return nil, err
	}
	return (&types.Config{}).Check(path, fset, []*ast.File{f}, nil)
}

// sourceOf makes the source of one file, which may import errors.
func sourceOf(t *testing.T, text string) *source {
	t.Helper()
	s := &source{fset: token.NewFileSet()}
	s.imports = twoPackages{}
	f := &sourceFile{name: "raft/example.go", text: []byte(text)}
	var err error
	if f.ast, err = parser.ParseFile(s.fset, f.name, text, parser.ParseComments|parser.SkipObjectResolution); err != nil {
		t.Fatal(err)
	}
	p := &sourcePackage{folder: "raft", files: []*sourceFile{f}, info: &types.Info{
		Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{},
	}}
	if p.types, err = (&types.Config{Importer: s.imports}).Check("raft", s.fset, []*ast.File{f.ast}, p.info); err != nil {
		t.Fatal(err)
	}
	s.packages = []*sourcePackage{p}
	s.candidates(p)
	return s
}

// TestOperators shows what each operator does, and what is left alone.
func TestOperators(t *testing.T) {
	for _, c := range []struct {
		name, body string
		want       []string // the mutants, as "operator: was -> is"
	}{
		{"a condition that compares", `if a < b { f() }`, []string{
			"negate: a < b -> !(a < b)", "boundary: a < b -> a <= b", "statement: f() -> "}},
		{"equality is negated once", `if a == b { f() }`, []string{"equal: a == b -> a != b", "statement: f() -> "}},
		{"a chain", `x = ok && a == b && ok`, []string{
			"statement: x = ok && a == b && ok -> ", "connect: ok && a == b && ok -> (ok && a == b) || (ok)",
			"operand: ok && a == b && ok -> a == b && ok", "operand: ok && a == b && ok -> ok && ok",
			"operand: ok && a == b && ok -> ok && a == b", "connect: ok && a == b -> (ok) || (a == b)", "equal: a == b -> a != b"}},
		{"constants as a whole", `a = 1<<10 + 3`, []string{"statement: a = 1<<10 + 3 -> ", "constant: 1<<10 + 3 -> (1<<10 + 3 + 1)"}},
		{"true and false", `x = true`, []string{"statement: x = true -> ", "constant: true -> false"}},
		{"the name of a kind is none", `k = second`, []string{"statement: k = second -> "}},
		{"a bound with a name is one", `a = bound`, []string{"statement: a = bound -> ", "constant: bound -> (bound + 1)"}},
		{"signs", `a += b - a`, []string{"statement: a += b - a -> ", "sign: a += b - a -> a -= b - a", "sign: b - a -> b + a"}},
		{"steps of a loop stay", `for ; ; a++ { b-- }`, []string{"statement: b-- -> ", "sign: b-- -> b++"}},
		{"a capacity is no behaviour", `s = make([]int, a, 7)`, []string{"statement: s = make([]int, a, 7) -> "}},
		{"an assertion is none", `if a > b { panic("a > b") }; invariant(a > b)`, nil},
		{"a body of two", `if ok { f(); f() }`, []string{"negate: ok -> !(ok)", "body: if ok { ... } -> ", "statement: f() -> ", "statement: f() -> "}},
		{"a declaration stays", `c := a; _ = c`, nil},
		{"an early exit", `for { if ok { break } }; for ok { return }`, []string{
			"negate: ok -> !(ok)", "exit: break -> ", "negate: ok -> !(ok)", "exit: return -> "}},
		{"recover works in the function that is deferred", `defer func() { if recover() != nil { f() } }()`, []string{
			`statement: defer func() { if recover() != nil { f() } }() -> `, "statement: f() -> "}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := describe(sourceOf(t, example(c.body)))
			if !slices.Equal(got, c.want) {
				t.Errorf("have\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

// example is a file with a function of this body, and names for it.
func example(body string) string {
	return `package raft

type kind int

const (
	first kind = iota
	second
)

const bound = 5

func invariant(bool) {}

func f() {}

func example(a, b int, ok, x bool, k kind, s []int) {
` + body + "\n}\n"
}

func describe(s *source) []string {
	var all []string
	for _, a := range s.all() {
		all = append(all, fmt.Sprintf("%s: %s -> %s", a.mutant.Operator, a.mutant.Was, a.mutant.Is))
	}
	return all
}

// TestReturns: errors become nil, and a return that must be there stays.
func TestReturns(t *testing.T) {
	got := describe(sourceOf(t, `package raft

import "errors"

func last(n int) (int, error) {
	if n > 0 {
		return n, nil
	}
	switch n {
	case 0:
		return n, errors.New("zero")
	default:
		return n, nil
	}
}

func early(n string) error {
	switch n {
	case "zero":
		return errors.New(n)
	}
	return nil
}
`))
	want := []string{
		"negate: n > 0 -> !(n > 0)", "boundary: n > 0 -> n >= 0", "constant: 0 -> (0 + 1)", "exit: return n, nil -> ",
		"constant: 0 -> (0 + 1)", `nil-error: errors.New("zero") -> nil`,
		"exit: return errors.New(n) -> ", "nil-error: errors.New(n) -> nil",
	}
	if !slices.Equal(got, want) {
		t.Errorf("have\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestNamesSurviveChangesElsewhere: lines that are added or changed elsewhere leave the name of a mutant
// and its place in a draw as they are.
func TestNamesSurviveChangesElsewhere(t *testing.T) {
	before := sourceOf(t, example(`if a < b { f() }`)).all()
	after := sourceOf(t, example("a = 3\n\n\tif ok { f() }\n if a < b { f() }")).all()
	names := ids(after)
	for _, a := range before {
		if a.mutant.Operator == opStatement {
			continue // the call stands on the line of the condition, and so does another one now
		}
		if !slices.Contains(names, a.mutant.ID) {
			t.Errorf("%s has another name now: %s", a.mutant.ID, names)
		}
	}
	behind := strings.Replace(example(`if a < b { f() }`), "func example", "func other(a, b int) {\n\tif a < b { f() }\n}\n\nfunc example", 1)
	others := ids(sourceOf(t, behind).all())
	for _, a := range before {
		if !slices.Contains(others, a.mutant.ID) {
			t.Errorf("%s has another name behind a function with the same line: %s", a.mutant.ID, others)
		}
	}
	if changed := sourceOf(t, example(`if a < b+1 { f() }`)).all(); changed[0].mutant.ID == before[0].mutant.ID {
		t.Errorf("the line of %s has changed, and it has the same name", changed[0].mutant.ID)
	}
}

// TestWhatDoesNotTypeCheckIsDropped: the other mutants stay, and are one program that type-checks.
func TestWhatDoesNotTypeCheckIsDropped(t *testing.T) {
	s := sourceOf(t, example(`var array [3]int; a = array[2]; var small uint8 = 255; _ = small; if a < b { f() }`))
	all := len(s.all())
	dropped, err := s.drop(s.packages[0])
	if err != nil {
		t.Fatal(err)
	}
	if want := 2; dropped != want { // the length of an array, and 256 as a byte
		t.Errorf("dropped %d of %d mutants, want %d; left are\n%s", dropped, all, want, strings.Join(describe(s), "\n"))
	}
	if again, err := s.drop(s.packages[0]); again != 0 || err != nil {
		t.Errorf("the second time dropped %d: %v", again, err)
	}
}

// TestSchemaKeepsLines: what a test prints about a line is true of the source.
func TestSchemaKeepsLines(t *testing.T) {
	s := sourceOf(t, example("if a < b &&\n\t\tok { // both\n\t\tf()\n\t}\n\ta += b // a comment\n"))
	if _, err := s.drop(s.packages[0]); err != nil {
		t.Fatal(err)
	}
	s.number(s.all())
	f := s.packages[0].files[0]
	text := f.render(s).out.String()
	if have, want := strings.Count(text, "\n"), strings.Count(string(f.text), "\n"); have != want {
		t.Errorf("the schema has %d lines, want %d:\n%s", have, want, text)
	}
	for i := range s.all() {
		if n := strings.Count(text, fmt.Sprintf("On(%d)", i)); n != 1 {
			t.Errorf("mutant %d is in the schema %d times, want once:\n%s", i, n, text)
		}
	}
}
