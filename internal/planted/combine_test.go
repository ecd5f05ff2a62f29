package planted_test

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// To build the judges once for each bug takes an hour. So the bugs are combined into one overlay: a function
// that bugs edit begins with a copy of its body for each of them, which runs if the environment names the
// bug:
//
//	func (r *raft) committable() (held uint64, more bool) {
//		if plantedNow == "count_old_terms" {
//			… the body with the edit
//		}
//		… the body
//	}
//
// A bug with an edit outside of a function's body, of a constant say, has an overlay of its own.

// variable is the environment variable that names the bug in a program with the combined overlay.
const variable = "MILLRACE_PLANTED"

// switchFile is the file that the overlay adds to each package that it edits.
const switchFile = "planted_now.go"

// overlay is a set of files that replace, or are added to, those of the repository: by their path from the
// root.
type overlay map[string]string

// write writes the files, and the list of them that "go test -overlay" reads. It returns the path of the
// list.
func (o overlay) write(dir string) (list string, err error) {
	replace := map[string]string{}
	for file, text := range o {
		original, err := filepath.Abs(filepath.Join(root, file))
		if err != nil {
			return "", err
		}
		edited := filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(edited, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[original] = edited
	}
	data, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	list = filepath.Join(dir, "overlay.json")
	return list, os.WriteFile(list, data, 0o600)
}

// combine returns the overlay with all bugs that can share one, and the names of the others.
func combine(bugs []*bug) (all overlay, alone map[string]bool, err error) {
	all, alone = overlay{}, map[string]bool{}
	files := map[string]*functions{}
	for _, b := range bugs {
		var copies []*editedBody
		for _, name := range b.files() {
			f := files[name]
			if f == nil {
				if f, err = parseFunctions(name); err != nil {
					return nil, nil, err
				}
				files[name] = f
			}
			bodies, err := f.edited(b)
			if err != nil {
				return nil, nil, fmt.Errorf("bug %q: %w", b.name, err)
			}
			if bodies == nil {
				alone[b.name] = true
			}
			copies = append(copies, bodies...)
		}
		if !alone[b.name] {
			for _, c := range copies {
				c.in.bodies = append(c.in.bodies, c)
			}
		}
	}
	for name, f := range files {
		if text, changed := f.combined(); changed {
			all[name] = text
			all[path.Join(path.Dir(name), switchFile)] = fmt.Sprintf("package %s\n\nimport \"os\"\n\nvar plantedNow = os.Getenv(%q)\n", f.pkg, variable)
		}
	}
	return all, alone, nil
}

// functions are the functions of a file.
type functions struct {
	file, text, pkg string
	list            []*function
}

// function is the body of a function: what stands between its braces.
type function struct {
	lo, hi  int
	results bool
	bodies  []*editedBody
}

// editedBody is the body of a function with the edits of a bug.
type editedBody struct {
	in        *function
	bug, text string
}

func parseFunctions(file string) (*functions, error) {
	text, err := source(file)
	if err != nil {
		return nil, err
	}
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, file, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	f := &functions{file: file, text: text, pkg: tree.Name.Name}
	for _, d := range tree.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
			at := func(p token.Pos) int { return fset.Position(p).Offset }
			f.list = append(f.list, &function{lo: at(fn.Body.Lbrace) + 1, hi: at(fn.Body.Rbrace), results: fn.Type.Results != nil})
		}
	}
	return f, nil
}

// change is an edit without what its two texts have in common at their ends.
type change struct {
	lo, hi int
	text   string
}

func (f *functions) change(e edit) (change, error) {
	if _, err := e.apply(f.text); err != nil {
		return change{}, err
	}
	before, after := 0, 0
	for before < min(len(e.old), len(e.new)) && e.old[before] == e.new[before] {
		before++
	}
	for after < min(len(e.old), len(e.new))-before && e.old[len(e.old)-1-after] == e.new[len(e.new)-1-after] {
		after++
	}
	at := strings.Index(f.text, e.old)
	return change{at + before, at + len(e.old) - after, e.new[before : len(e.new)-after]}, nil
}

// edited returns the functions of the file that a bug edits, or nil if it edits something else.
func (f *functions) edited(b *bug) (bodies []*editedBody, err error) {
	changes := map[*function][]change{}
	for _, e := range b.edits {
		if e.file != f.file {
			continue
		}
		c, err := f.change(e)
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(f.list, func(fn *function) bool { return fn.lo <= c.lo && c.hi <= fn.hi })
		if i < 0 {
			return nil, nil
		}
		changes[f.list[i]] = append(changes[f.list[i]], c)
	}
	for fn, list := range changes {
		slices.SortFunc(list, func(a, b change) int { return a.lo - b.lo })
		text, at := "", fn.lo
		for _, c := range list {
			if c.lo < at {
				return nil, fmt.Errorf("two edits of %s overlap", f.file)
			}
			text, at = text+f.text[at:c.lo]+c.text, c.hi
		}
		bodies = append(bodies, &editedBody{fn, b.name, text + f.text[at:fn.hi]})
	}
	return bodies, nil
}

// combined returns the file with the edited bodies of all its functions.
func (f *functions) combined() (text string, changed bool) {
	var out strings.Builder
	at := 0
	for _, fn := range f.list {
		out.WriteString(f.text[at:fn.lo])
		at = fn.lo
		for _, c := range fn.bodies {
			fmt.Fprintf(&out, "\nif plantedNow == %q {%s\n", c.bug, c.text)
			if !fn.results {
				out.WriteString("return\n")
			}
			out.WriteString("}\n")
			changed = true
		}
	}
	out.WriteString(f.text[at:])
	return out.String(), changed
}
