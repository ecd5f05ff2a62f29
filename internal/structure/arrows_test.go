package structure

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
	"slices"
	"strings"
	"testing"
)

// maxArrowsUp bounds the arrows of package host that run up in its best order of files. It only falls.
const maxArrowsUp = 0

// An arrow runs from a file to another of its package that declares what the first uses. Where calls go down,
// the files have an order in which each arrow runs down. The table shows, for each package of the runtime,
// how many arrows run up in the best order that a search finds:
//
//	go test ./internal/structure -run TestArrowsOfTheRuntime -v
func TestArrowsOfTheRuntime(t *testing.T) {
	inRoot(t)
	exported := exportedParts(t)
	t.Logf("%-26s %5s %6s %5s %4s", "package", "files", "lines", "down", "up")
	for _, part := range exported.own {
		files, lines, arrows := exported.arrows(t, part)
		order := bestOrder(files, arrows)
		down, up := countArrows(order, arrows)
		t.Logf("%-26s %5d %6d %5d %4d", part.ImportPath[len(module)+1:], len(files), lines, down, up)
		if part.ImportPath == module+"/host" && up > maxArrowsUp {
			t.Errorf("%d arrows of package host run up, and %d did: calls go down", up, maxArrowsUp)
		}
		if part.ImportPath == module+"/host" {
			for _, line := range upward(order, arrows) {
				t.Log(line)
			}
		}
	}
	if len(exported.own) < 10 {
		t.Errorf("only %d packages were looked at", len(exported.own))
	}
}

// The best order of a chain has no arrow up, that of a circle has one.
func TestBestOrder(t *testing.T) {
	chain := map[arrow][]string{{"a", "b"}: {"B"}, {"b", "c"}: {"C"}, {"a", "c"}: {"C"}}
	if order := bestOrder([]string{"c", "b", "a"}, chain); !slices.Equal(order, []string{"a", "b", "c"}) {
		t.Errorf("%q", order)
	}
	chain[arrow{"c", "a"}] = []string{"A"}
	if down, up := countArrows(bestOrder([]string{"c", "b", "a"}, chain), chain); down != 3 || up != 1 {
		t.Errorf("%d down, %d up", down, up)
	}
}

// arrow says that one file uses what another declares.
type arrow struct{ from, to string }

// exports are the packages of the runtime, and where the compiler has put what it knows of each dependency.
type exports struct {
	own  []exportedPackage
	file map[string]string
}

type exportedPackage struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
}

func exportedParts(t *testing.T) exports {
	t.Helper()
	out, err := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles", "./host/...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	found := exports{file: map[string]string{}}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p exportedPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return found
		} else if err != nil {
			t.Fatal(err)
		}
		found.file[p.ImportPath] = p.Export
		if strings.HasPrefix(p.ImportPath, module+"/host") {
			found.own = append(found.own, p)
		}
	}
}

// arrows checks the types of a package, and returns its files, their lines and the arrows between them.
func (e exports) arrows(t *testing.T, p exportedPackage) (names []string, lines int, found map[arrow][]string) {
	t.Helper()
	set := token.NewFileSet()
	var files []*ast.File
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(set, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files, names, lines = append(files, f), append(names, name), lines+set.File(f.Pos()).LineCount()
	}
	info := types.Info{Uses: map[*ast.Ident]types.Object{}}
	lookup := func(path string) (io.ReadCloser, error) {
		if e.file[path] == "" {
			return nil, fmt.Errorf("package %s is not listed", path)
		}
		return os.Open(e.file[path])
	}
	c := types.Config{Importer: importer.ForCompiler(set, "gc", lookup)}
	if _, err := c.Check(p.ImportPath, set, files, &info); err != nil {
		t.Fatal(err)
	}
	found = map[arrow][]string{}
	for use, object := range info.Uses {
		if object.Pkg() == nil || object.Pkg().Path() != p.ImportPath {
			continue
		}
		from, to := filepath.Base(set.Position(use.Pos()).Filename), filepath.Base(set.Position(object.Pos()).Filename)
		if between := (arrow{from, to}); from != to && !slices.Contains(found[between], object.Name()) {
			found[between] = append(found[between], object.Name())
		}
	}
	return names, lines, found
}

// bestOrder is greedyOrder, in which then each file moves to where the fewest arrows run up, until none
// moves.
func bestOrder(files []string, arrows map[arrow][]string) []string {
	order := greedyOrder(files, arrows)
	for moves := true; moves; {
		moves = false
		for _, file := range slices.Clone(order) {
			from := slices.Index(order, file)
			if to := bestPlace(order, from, arrows); to != from {
				order, moves = slices.Insert(slices.Delete(order, from, from+1), to, file), true
			}
		}
	}
	return order
}

// bestPlace returns where a file has the fewest arrows up; it stays if no place is better.
func bestPlace(order []string, from int, arrows map[arrow][]string) (best int) {
	file, least := order[from], 0
	best = from
	for _, step := range []int{-1, 1} {
		more := 0 // arrows up than where it is
		for i := from + step; i >= 0 && i < len(order); i += step {
			if arrows[arrow{file, order[i]}] != nil {
				more += step
			}
			if arrows[arrow{order[i], file}] != nil {
				more -= step
			}
			if more < least {
				best, least = i, more
			}
		}
	}
	return best
}

// greedyOrder puts files without arrows in first and files without arrows out last. Of the others, the one
// with the most arrows out and the fewest in comes next. (Eades, Lin and Smyth 1993: a fast heuristic for
// the feedback arc set.)
func greedyOrder(files []string, arrows map[arrow][]string) []string {
	left, first, last := slices.Sorted(slices.Values(files)), []string(nil), []string(nil)
	for len(left) > 0 {
		in, out := map[string]int{}, map[string]int{}
		for a := range arrows {
			if slices.Contains(left, a.from) && slices.Contains(left, a.to) {
				out[a.from]++
				in[a.to]++
			}
		}
		next := slices.IndexFunc(left, func(f string) bool { return out[f] == 0 })
		if next >= 0 {
			last = append(last, left[next])
		} else {
			next = 0
			for i, f := range left {
				if in[f] == 0 {
					next = i
					break
				}
				if out[f]-in[f] > out[left[next]]-in[left[next]] {
					next = i
				}
			}
			first = append(first, left[next])
		}
		left = slices.Delete(left, next, next+1)
	}
	slices.Reverse(last)
	return append(first, last...)
}

// upward names each arrow that runs up in order, and what it uses.
func upward(order []string, arrows map[arrow][]string) (lines []string) {
	for a, names := range arrows {
		if slices.Index(order, a.from) > slices.Index(order, a.to) {
			slices.Sort(names)
			lines = append(lines, fmt.Sprintf("up: %s uses of %s: %s", a.from, a.to, strings.Join(names, ", ")))
		}
	}
	slices.Sort(lines)
	return lines
}

func countArrows(order []string, arrows map[arrow][]string) (down, up int) {
	at := map[string]int{}
	for i, f := range order {
		at[f] = i
	}
	for a := range arrows {
		if at[a.from] < at[a.to] {
			down++
		} else {
			up++
		}
	}
	return down, up
}
