package structure

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// parts are the floors of the runtime, the lowest first. A part may import the parts on lower floors. An
// arrow names the exceptions: a part on the same floor that it may import.
const parts = `
words     turn control budget entry containment
voices    reports
queues    sched outbox workqueue                      workqueue→outbox outbox→sched
lanes     identity storage appendlane divergence feed
machine   apply
services  proposals reads members bulk pulse examination peers  proposals→members peers→examination
duties    founding plans leadership placement snapshots objects objects→snapshots
`

// The runtime is built of parts (host/internal/…), and package host is the wiring. No part knows the wiring,
// the face or a judge, neither do its tests: each part is tested without a cluster.
func TestPartsKnowNoHost(t *testing.T) {
	inRoot(t)
	for part, files := range partFiles(t) {
		tests := 0
		for _, file := range files {
			for _, imported := range importsOf(t, file) {
				own, isOwn := ownPackage(imported)
				switch {
				case !isOwn:
				case own == "host" || own == "." || own == "sim" || own == "millracetest" || strings.HasPrefix(own, "sim/"):
					t.Errorf("%s imports %s: a part knows no host, and what is above it", file, own)
				}
			}
			if strings.HasSuffix(file, "_test.go") {
				tests++
			}
		}
		if tests == 0 {
			t.Errorf("host/internal/%s has no tests of its own", part)
		}
	}
}

// Imports between parts go down, floor by floor.
func TestPartsImportDown(t *testing.T) {
	inRoot(t)
	floor, beside := map[string]int{}, map[string]bool{}
	for i, line := range strings.Split(strings.TrimSpace(parts), "\n") {
		for _, part := range strings.Fields(line)[1:] {
			if strings.Contains(part, "→") {
				beside[part] = true
			} else {
				floor[part] = i + 1
			}
		}
	}
	for part, files := range partFiles(t) {
		if floor[part] == 0 {
			t.Errorf("host/internal/%s is on no floor", part)
		}
		for _, file := range files {
			for _, imported := range importsOf(t, file) {
				own, _ := ownPackage(imported)
				other, isPart := strings.CutPrefix(own, "host/internal/")
				if isPart && other != part && floor[other] >= floor[part] && !beside[part+"→"+other] {
					t.Errorf("%s imports %s, a part that is not below it", file, own)
				}
			}
		}
	}
}

// No part has a type that stands for the whole: a Host, or an owner by another name.
func TestPartsNameNoHost(t *testing.T) {
	inRoot(t)
	for _, files := range partFiles(t) {
		for _, file := range files {
			f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range f.Decls {
				g, isType := d.(*ast.GenDecl)
				if !isType || g.Tok != token.TYPE {
					continue
				}
				for _, s := range g.Specs {
					if name := s.(*ast.TypeSpec).Name.Name; slices.Contains([]string{"Host", "host", "group"}, name) {
						t.Errorf("%s has the type %s: a part gets what it needs, and not its owner", file, name)
					}
				}
			}
		}
	}
}

// partFiles returns the files of each part, those of tests too.
func partFiles(t *testing.T) map[string][]string {
	files := map[string][]string{}
	names, err := filepath.Glob("host/internal/*/*.go")
	if err != nil || len(names) == 0 {
		t.Fatal("no parts: ", err)
	}
	for _, name := range names {
		part := filepath.Base(filepath.Dir(name))
		files[part] = append(files[part], filepath.ToSlash(name))
	}
	return files
}

// A host and a group are compositions of few parts: who looks for a field looks for its part first.
func TestHostAndGroupAreCompositions(t *testing.T) {
	inRoot(t)
	const most = 14
	for _, name := range []string{"Host", "Group"} {
		const file = "host/host.go"
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		o := f.Scope.Lookup(name)
		if o == nil {
			t.Errorf("%s has no %s", file, name)
			continue
		}
		fields := 0
		for _, field := range o.Decl.(*ast.TypeSpec).Type.(*ast.StructType).Fields.List {
			fields += max(len(field.Names), 1)
		}
		if fields > most {
			t.Errorf("%s has %d fields, more than %d: give a new one to the part that owns it", name, fields, most)
		}
	}
}
