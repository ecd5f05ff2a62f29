package planted_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Oracles are judged, too: for each there is a bug that only it finds. The oracles of sim/core have names
// (sim/core/property.go), and can be left out: with the bug the seeds below fail, and name the oracle;
// without the oracle they pass. Those of sim are known by the words of their violations.

// oracle is an oracle and a bug that it finds.
type oracle struct {
	name string // of a property of sim/core, or words of a violation in sim
	what string // of sim: what it checks
	bug  string
	args string // of sim/core: the seeds in which only this oracle finds the bug
}

var coreOracles = []oracle{}

var simOracles = []oracle{}

// TestEveryOracleHasABug: the tables have each property of sim/core and words that are in sim, and the bugs
// exist.
func TestEveryOracleHasABug(t *testing.T) {
	known := map[string]*bug{}
	for _, b := range pointers(bugs) {
		known[b.name] = b
	}
	text, err := source("sim/core/property.go")
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	for _, m := range regexp.MustCompile(`Property = "([^"]+)"`).FindAllStringSubmatch(text, -1) {
		named[m[1]] = true
	}
	for _, o := range coreOracles {
		if !named[o.name] || known[o.bug] == nil {
			t.Errorf("oracle %q, bug %q: one of them does not exist", o.name, o.bug)
		}
		delete(named, o.name)
	}
	for name := range named {
		t.Errorf("no bug is found only by the oracle %q of sim/core", name)
	}
	files, err := filepath.Glob(filepath.Join(root, "sim", "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	all := ""
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all += string(data)
	}
	for _, o := range simOracles {
		b := known[o.bug]
		if b == nil || !strings.Contains(all, o.name) {
			t.Errorf("oracle %q, bug %q: one of them does not exist", o.name, o.bug)
		} else if b.says != o.name {
			t.Errorf("bug %q: its failure must say %q, have %q", o.bug, o.name, b.says)
		}
	}
}

// TestOnlyItsOracleFinds runs sim/core with each of these bugs, with the oracle and without it.
func TestOnlyItsOracleFinds(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: builds sim/core with all bugs")
	}
	p := newPrograms(t)
	for _, o := range coreOracles {
		b := pointers(bugs)[indexOf(t, o.bug)]
		with := judge{in: "sim/core", test: "TestSeeds", args: o.args, says: ": " + o.name + ": "}
		v, err := p.ask(t, b, with)
		if err != nil || !v.found {
			t.Errorf("%s of sim/core %s does not find %q: %v", o.name, o.args, o.bug, err)
			continue
		}
		without := judge{in: "sim/core", test: "TestSeeds", args: o.args + " -without=" + strings.ReplaceAll(o.name, " ", "_")}
		if v, err = p.ask(t, b, without); err != nil || v.found {
			t.Errorf("%s %s: %q is found without %q, too: %s %v", "sim/core", o.args, o.bug, o.name, v.detail, err)
		}
	}
}

func indexOf(t *testing.T, name string) int {
	t.Helper()
	for i := range bugs {
		if bugs[i].name == name {
			return i
		}
	}
	t.Fatalf("there is no bug %q", name)
	return 0
}

// oracleTable is the table of docs/internals/planted-bugs.md.
func oracleTable() string {
	var out strings.Builder
	out.WriteString("| level | oracle | bug that only it finds |\n|---|---|---|\n")
	for _, o := range coreOracles {
		fmt.Fprintf(&out, "| `sim/core` | %s | `%s`, %s |\n", o.name, o.bug, o.args)
	}
	for _, o := range simOracles {
		fmt.Fprintf(&out, "| `sim` | %s: “%s” | `%s` |\n", o.what, o.name, o.bug)
	}
	return out.String()
}
