package mutation

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// programs are the test programs of the judges of one area, built with its schema.
type programs struct {
	root    string
	dir     string             // with the programs
	mutants []*alternative     // by number
	judges  map[string]*Judge  // by package
	tests   map[string][]*test // by package
	only    *regexp.Regexp     // tests whose names match; nil: all
	rapid   map[string]bool    // packages whose tests use the library rapid, which leaves files of failures behind
}

// test is a top-level test of a judge: what is run by itself.
type test struct {
	judge   *Judge
	name    string
	seconds float64 // that it took alone, on unchanged code
	cost    float64 // of these, what counts in the budget
	reaches map[string]bool
	kills   int  // mutants that it has killed
	failed  bool // on the unchanged code in the schema; then it is no judge
}

func (t *test) String() string { return t.judge.Package + "." + t.name }

// args returns the arguments of the test's program.
func (t *test) args() []string { return t.judge.argsOf(t.name) }

func (j *Judge) argsOf(name string) []string {
	if a, ok := j.Args[name]; ok {
		return a
	}
	return j.Args[""]
}

// program returns the file name of the test program of a package. The last elements of our folders differ.
func (p *programs) program(pkg string) string { return filepath.Join(p.dir, path.Base(pkg)+".test") }

// build builds the programs of some judges with the mutants that are drawn.
func (p *population) build(ctx context.Context, dir string, drawn []*alternative, judges []*Judge) (*programs, error) {
	p.source.number(drawn)
	overlay, err := p.source.overlay(dir)
	if err != nil {
		return nil, err
	}
	b := &programs{root: p.source.root, dir: dir, mutants: drawn, judges: map[string]*Judge{}, tests: map[string][]*test{}, rapid: map[string]bool{}}
	args := []string{"test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", overlay, "-o", dir + "/"}
	for _, j := range judges {
		args = append(args, "./"+j.Package)
		b.judges[j.Package] = j
		if b.rapid[j.Package], err = imports(filepath.Join(b.root, j.Package), "pgregory.net/rapid"); err != nil {
			return nil, err
		}
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = b.root
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build %d mutants of %s: %w\n%s", len(drawn), p.area.Name, err, out)
	}
	return b, nil
}

// imports reports whether a test of a folder imports a package.
func imports(folder, pkg string) (bool, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		return false, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil || strings.Contains(string(text), strconv.Quote(pkg)) {
			return err == nil, err
		}
	}
	return false, nil
}

// list asks a program for its tests: tests, examples, and fuzz targets with their seeds.
func (b *programs) list(ctx context.Context, j *Judge) error {
	skip, run := regexp.MustCompile(j.Skip), regexp.MustCompile(j.Run)
	cmd := exec.CommandContext(ctx, b.program(j.Package), "-test.list", ".")
	cmd.Dir = filepath.Join(b.root, j.Package)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("list the tests of %s: %w", j.Package, err)
	}
	for _, name := range strings.Fields(string(out)) {
		if strings.HasPrefix(name, "Benchmark") || j.Skip != "" && skip.MatchString(name) || !run.MatchString(name) || b.only != nil && !b.only.MatchString(name) {
			continue
		}
		b.tests[j.Package] = append(b.tests[j.Package], &test{judge: j, name: name})
	}
	return nil
}

// allJudges returns the judges of an area.
func (a *Area) allJudges() []*Judge {
	var all []*Judge
	for i := range a.Judges {
		all = append(all, &a.Judges[i])
	}
	return all
}
