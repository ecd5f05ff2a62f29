package mutation

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"go/ast"
	"sort"
	"strings"
)

// A Mutant is one small change of the source.
type Mutant struct {
	// ID names the mutant: file, operator, the hash of its function's name and the text of its line, and its
	// number among mutants that are otherwise the same. A change of another function leaves it as it is.
	ID       string
	Area     string
	File     string // from the root of the module
	Line     int
	Operator string
	Was, Is  string // the text, and what it becomes; empty if it is removed
}

// The operators.
const (
	opNegate    = "negate"    // a condition is negated
	opBoundary  = "boundary"  // < and <=, > and >= are exchanged
	opEqual     = "equal"     // == and != are exchanged
	opConnect   = "connect"   // && and || are exchanged
	opOperand   = "operand"   // an operand of && or || is left out
	opConstant  = "constant"  // n becomes n+1, true false
	opSign      = "sign"      // + and -, += and -=, ++ and -- are exchanged
	opNilError  = "nil-error" // a returned error is nil
	opStatement = "statement" // an assignment, or a call without a result, is left out
	opExit      = "exit"      // an early return, a break or a continue is left out
	opBody      = "body"      // the body of an if is left out
)

// place is a part of a file that has mutants: an expression, a statement, or the body of an if.
type place struct {
	kind    placeKind
	within  string // the name of its function
	lo, hi  int    // [lo, hi) in bytes of the file; of a body, what is between its braces
	typ     string // of an expression, as this file writes it
	mutants []*alternative
}

type placeKind int

const (
	placeStatement placeKind = iota
	placeBody
	placeExpression
)

// alternative is a mutant within its place.
type alternative struct {
	mutant Mutant
	text   string // in the place of the source; empty if the source is left out
	number int    // in the schema; -1 if it is not part of it
	lo, hi int    // where the schema has it: [lo, hi) in bytes of the generated file
}

// addMutant adds a mutant of [lo, hi), unless it cannot be written on one line: comments and statements end
// with their line.
func (f *sourceFile) addMutant(kind placeKind, lo, hi int, typ string, m Mutant, text string) {
	if strings.Contains(text, "\n") && (strings.Contains(text, "//") || strings.Contains(text, "func(")) {
		return
	}
	for _, p := range f.places {
		if p.kind == kind && p.lo == lo && p.hi == hi {
			p.mutants = append(p.mutants, &alternative{mutant: m, text: text})
			return
		}
	}
	f.places = append(f.places, &place{kind: kind, lo: lo, hi: hi, typ: typ, mutants: []*alternative{{mutant: m, text: text}}})
}

// sortPlaces puts outer places before those within them, and gives each mutant its name.
func (f *sourceFile) sortPlaces() {
	sort.SliceStable(f.places, func(i, j int) bool {
		a, b := f.places[i], f.places[j]
		switch {
		case a.lo != b.lo:
			return a.lo < b.lo
		case a.hi != b.hi:
			return a.hi > b.hi
		}
		return a.kind < b.kind
	})
	lines := strings.Split(string(f.text), "\n")
	seen := map[string]int{}
	for _, p := range f.places {
		for _, a := range p.mutants {
			line := strings.TrimSpace(lines[a.mutant.Line-1])
			sum := sha256.Sum256([]byte(p.within + "\n" + line))
			stem := fmt.Sprintf("%s:%s:%s", f.name, a.mutant.Operator, hex.EncodeToString(sum[:4]))
			a.mutant.ID = fmt.Sprintf("%s:%d", stem, seen[stem])
			seen[stem]++
		}
	}
}

// newMutant describes a change of node n.
func (w *walk) newMutant(operator string, n ast.Node, is string) Mutant {
	m := Mutant{
		File: w.file.name, Line: w.src.fset.Position(n.Pos()).Line,
		Operator: operator, Was: shorten(w.src.text(w.file, n)), Is: shorten(is),
	}
	if a := AreaOf(w.pkg.folder); a != nil {
		m.Area = a.Name
	}
	return m
}

// shorten makes one line of a text, of at most 100 bytes.
func shorten(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > 100 {
		text = text[:97] + "..."
	}
	return text
}
