package mutation

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// A schema holds many mutants of a file at once. The place of a mutant becomes, all on the lines that it had:
//
//	an expression    func() T { if On(1) { return a <= b }; return a < b }()
//	a statement      if On(2) { x -= y } else { x += y }
//	a body           { if !On(3) { ... } }
//
// What is not alive is evaluated as the source says, so the schema without a mutant behaves like the
// source; but it allocates and inlines otherwise, so a test that counts either may fail and is then no
// judge.

// schema is the text of a file with mutants, under construction.
type schema struct {
	file  *sourceFile
	out   bytes.Buffer
	spans []*placeSpan
}

// placeSpan says where the generated text has a place.
type placeSpan struct {
	place  *place
	lo, hi int
}

// render writes a file with those of its mutants that have a number. It returns nil if there are none.
func (f *sourceFile) render(src *source) *schema {
	var places []*place
	for _, p := range f.places {
		if len(p.live()) > 0 {
			places = append(places, p)
		}
	}
	if len(places) == 0 {
		return nil
	}
	s := &schema{file: f}
	name := src.fset.Position(f.ast.Name.End()).Offset
	s.out.Write(f.text[:name])
	fmt.Fprintf(&s.out, "; import %s %q", siteImport, module+"/internal/mutation/site")
	s.copy(name, len(f.text), places)
	return s
}

// live returns the mutants of a place that have a number.
func (p *place) live() []*alternative {
	var live []*alternative
	for _, a := range p.mutants {
		if a.number >= 0 {
			live = append(live, a)
		}
	}
	return live
}

// copy writes [lo, hi) of the source, with its places, the outer ones first.
func (s *schema) copy(lo, hi int, places []*place) {
	for len(places) > 0 {
		p := places[0]
		inner := 1
		for inner < len(places) && places[inner].hi <= p.hi {
			inner++
		}
		s.out.Write(s.file.text[lo:p.lo])
		span := &placeSpan{place: p, lo: s.out.Len()}
		s.spans = append(s.spans, span)
		s.putPlace(p, places[1:inner])
		span.hi = s.out.Len()
		lo, places = p.hi, places[inner:]
	}
	s.out.Write(s.file.text[lo:hi])
}

func (s *schema) putPlace(p *place, within []*place) {
	switch p.kind {
	case placeExpression:
		fmt.Fprintf(&s.out, "func() %s { ", p.typ)
		for _, a := range p.live() {
			fmt.Fprintf(&s.out, "if %s.On(%d) { return ", siteImport, a.number)
			s.alternative(a)
			s.out.WriteString(" }; ")
		}
		s.out.WriteString("return ")
		s.copy(p.lo, p.hi, within)
		s.out.WriteString(" }()")
	case placeStatement:
		for _, a := range p.live() {
			fmt.Fprintf(&s.out, "if %s.On(%d) { ", siteImport, a.number)
			s.alternative(a)
			s.out.WriteString(" } else ")
		}
		s.out.WriteString("{ ")
		s.copy(p.lo, p.hi, within)
		s.out.WriteString(" }")
	case placeBody:
		a := p.live()[0]
		fmt.Fprintf(&s.out, " if !%s.On(%d) { ", siteImport, a.number)
		s.copy(p.lo, p.hi, within)
		s.out.WriteString(" }")
	}
}

// alternative writes a mutant, and notes where.
func (s *schema) alternative(a *alternative) {
	a.lo = s.out.Len()
	s.out.WriteString(strings.ReplaceAll(a.text, "\n", " "))
	a.hi = s.out.Len()
}

// at returns the innermost place, and the mutant in it if there is one, that has an offset of the generated
// text.
func (s *schema) at(offset int) (*place, *alternative) {
	var found *placeSpan
	for _, span := range s.spans {
		if span.lo <= offset && offset < span.hi && (found == nil || span.hi-span.lo <= found.hi-found.lo) {
			found = span
		}
	}
	if found == nil {
		return nil, nil
	}
	for _, a := range found.place.live() {
		if a.lo <= offset && offset < a.hi {
			return found.place, a
		}
	}
	return found.place, nil
}

// number gives the mutants numbers in the schema, and none to all others.
func (s *source) number(draw []*alternative) {
	for _, a := range s.all() {
		a.number = -1
	}
	for i, a := range draw {
		a.number = i
	}
}

// all returns every mutant, in the order of packages, files and text.
func (s *source) all() []*alternative {
	var all []*alternative
	for _, p := range s.packages {
		for _, f := range p.files {
			for _, pl := range f.places {
				all = append(all, pl.mutants...)
			}
		}
	}
	return all
}

// overlay writes the schemas of all files that have one into a directory, and the list of them that
// "go test -overlay" reads. It returns the path of the list.
func (s *source) overlay(dir string) (string, error) {
	replace := map[string]string{}
	for _, p := range s.packages {
		for _, f := range p.files {
			sch := f.render(s)
			if sch == nil {
				continue
			}
			path := filepath.Join(dir, strings.ReplaceAll(f.name, "/", "_"))
			if err := os.WriteFile(path, sch.out.Bytes(), 0o600); err != nil {
				return "", err
			}
			replace[filepath.Join(s.root, f.name)] = path
		}
	}
	list, err := json.MarshalIndent(map[string]any{"Replace": replace}, "", "  ")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, list, 0o600)
}
