package mutation

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
)

// maxRounds bounds how often a package is checked again without the mutants that had errors: an error can
// hide others, but not many layers of them.
const maxRounds = 12

// drop type-checks a package with all its mutants at once and drops those that have errors, until none has.
// It returns how many it dropped. A mutant that type-checks as part of a schema type-checks as a change of
// the source, except for variables, imports and labels that nothing uses any more.
func (s *source) drop(p *sourcePackage) (dropped int, err error) {
	for range maxRounds {
		n, err := s.dropOnce(p)
		if err != nil || n == 0 {
			return dropped, err
		}
		dropped += n
	}
	return dropped, fmt.Errorf("package %s with its mutants does not type-check after %d rounds", p.folder, maxRounds)
}

func (s *source) dropOnce(p *sourcePackage) (int, error) {
	schemas := map[*ast.File]*schema{}
	var parsed []*ast.File
	for _, f := range p.files {
		for _, pl := range f.places {
			for i, a := range pl.mutants {
				a.number = i // any will do
			}
		}
		sch := f.render(s)
		if sch == nil {
			parsed = append(parsed, f.ast)
			continue
		}
		tree, err := parser.ParseFile(s.fset, f.name, sch.out.Bytes(), parser.SkipObjectResolution)
		if err != nil {
			return 0, fmt.Errorf("the schema of %s: %w", f.name, err)
		}
		schemas[tree] = sch
		parsed = append(parsed, tree)
	}
	wrong := map[*alternative]bool{}
	var lost error
	check := types.Config{Importer: s.imports, Error: func(err error) {
		e := err.(types.Error)
		for tree, sch := range schemas {
			if tree.FileStart <= e.Pos && e.Pos < tree.FileEnd {
				pl, a := sch.at(int(e.Pos - tree.FileStart))
				switch {
				case a != nil:
					wrong[a] = true
					return
				case pl != nil:
					for _, a := range pl.mutants {
						wrong[a] = true
					}
					return
				}
			}
		}
		if !onLine(schemas, s.fset.Position(e.Pos), wrong) {
			lost = err
		}
	}}
	check.Check(module+"/"+p.folder, s.fset, parsed, nil) // the errors went to check.Error
	if lost != nil && len(wrong) == 0 {
		return 0, fmt.Errorf("package %s with its mutants, outside all of them: %w", p.folder, lost)
	}
	for _, f := range p.files {
		f.remove(wrong)
	}
	return len(wrong), nil
}

// onLine makes all mutants on a line wrong: one of them changed the type of what is around it.
func onLine(schemas map[*ast.File]*schema, at token.Position, wrong map[*alternative]bool) bool {
	found := false
	for _, sch := range schemas {
		for _, pl := range sch.file.places {
			for _, a := range pl.mutants {
				if a.mutant.File == at.Filename && a.mutant.Line == at.Line {
					wrong[a], found = true, true
				}
			}
		}
	}
	return found
}

// remove removes mutants, and places without any.
func (f *sourceFile) remove(wrong map[*alternative]bool) {
	places := f.places[:0]
	for _, p := range f.places {
		kept := p.mutants[:0]
		for _, a := range p.mutants {
			if !wrong[a] {
				kept = append(kept, a)
			}
		}
		if p.mutants = kept; len(kept) > 0 {
			places = append(places, p)
		}
	}
	f.places = places
}
