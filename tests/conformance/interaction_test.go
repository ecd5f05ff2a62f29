package conformance

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"go.etcd.io/raft/v3/rafttest"
)

// Upstream's interaction scripts: whole clusters, command by command. A program built from upstream's own
// environment and our core plays them (player_test.go), and the cases are judged here. A case passes if its
// output is upstream's, log lines apart. If it differs on purpose it counts as divergent, provided that its
// output is the one that we have written down (divergent_test.go).

const interactionScripts, interactionCases = 28, 558 // as counted in v3.6.0

func TestInteraction(t *testing.T) {
	files := scripts(t)
	player, err := buildPlayer(t)
	if err != nil {
		total.failed += interactionCases
		t.Fatal(err)
	}
	for _, file := range files {
		name := filepath.Base(file)
		t.Run(name, func(t *testing.T) {
			ofFile := tally{failed: len(readScript(t, file))} // until the cases are judged
			defer func() {
				report("testdata/"+name, ofFile)
				total.add(ofFile)
			}()
			ofFile = interact(t, player, file, filepath.Join("testdata/divergent", name))
		})
	}
}

// scripts returns upstream's files. A missing file must not count as one that passes.
func scripts(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(upstream(t), "testdata", "*.txt"))
	if err != nil {
		t.Fatal(err)
	}
	cases := 0
	for _, file := range files {
		cases += len(readScript(t, file))
	}
	if len(files) != interactionScripts || cases != interactionCases {
		t.Errorf("have %d scripts with %d cases, want %d with %d", len(files), cases, interactionScripts, interactionCases)
	}
	return files
}

// interact plays a script of upstream's and judges each of its cases.
func interact(t *testing.T, player, file, ownFile string) tally {
	own := readDivergence(t, ownFile)
	outputs := playOurs(t, player, withAdditions(t, file, own))
	var result tally
	notPlayed := 0
	for _, c := range readScript(t, file) {
		for i := range own.additions[c.line] {
			interactAddition(t, c.line, &own.additions[c.line][i], outputs.next())
		}
		have := outputs.next()
		if *rewriteDivergent {
			own.register(c, have)
		}
		verdict := own.judge(c, have)
		result.count(verdict, have.died == nil && have.text == c.want)
		switch {
		case verdict == nil || errors.Is(verdict, errDivergent):
		case errors.Is(verdict, errNotPlayed):
			notPlayed++
		default:
			t.Errorf("line %d: %s\n%v\nhave\n%s\nwant\n%s", c.line, c.command, verdict, have.text, c.want)
		}
	}
	if notPlayed > 0 {
		t.Errorf("%d cases after it were not played", notPlayed)
	}
	if *rewriteDivergent && own.exists {
		own.write(t, ownFile)
	}
	own.checkReasons(t, ownFile)
	return result
}

// interactAddition judges a command of our own. It is not a case of upstream's, and does not count as one.
func interactAddition(t *testing.T, line int, addition *ownCase, have output) {
	t.Helper()
	if *rewriteDivergent && have.died == nil {
		addition.output = semantic(have.text)
	}
	if have.died != nil || semantic(have.text) != semantic(addition.output) {
		t.Errorf("before line %d: %s\n%v\nhave\n%s\nwant\n%s", line, addition.command, have.died, have.text, addition.output)
	}
}

// scriptCase is one case of upstream's.
type scriptCase struct {
	line    int // of its command, in upstream's file
	command string
	want    string
}

func readScript(t *testing.T, file string) []scriptCase {
	t.Helper()
	var cases []scriptCase
	datadriven.RunTest(t, file, func(t *testing.T, d *datadriven.TestData) string {
		line, err := strconv.Atoi(d.Pos[strings.LastIndexByte(d.Pos, ':')+1:])
		if err != nil {
			t.Fatal(err)
		}
		cases = append(cases, scriptCase{line: line, command: strings.TrimSpace(d.FullCmd() + "\n" + d.Input), want: d.Expected})
		return d.Expected
	})
	return cases
}

// withAdditions writes upstream's script, with our own commands added, to a file.
func withAdditions(t *testing.T, file string, own *divergence) string {
	t.Helper()
	if len(own.additions) == 0 {
		return file
	}
	var script strings.Builder
	number := 0
	for line := range strings.Lines(read(t, file)) {
		number++
		for _, addition := range own.additions[number] {
			fmt.Fprintf(&script, "%s\n----\n\n", addition.command)
		}
		script.WriteString(line)
	}
	played := filepath.Join(t.TempDir(), filepath.Base(file))
	if err := os.WriteFile(played, []byte(script.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	return played
}

// TestUpstreamPlaysItsOwnCases shows that the environment, the versions that we pin and the hook for election
// timeouts are those that the cases were written with: on upstream's core every output is equal, byte by
// byte.
func TestUpstreamPlaysItsOwnCases(t *testing.T) {
	for _, file := range scripts(t) {
		env := rafttest.NewInteractionEnv(&rafttest.InteractionOpts{SetRandomizedElectionTimeout: setTheirElectionTimeout})
		datadriven.RunTest(t, file, func(t *testing.T, d *datadriven.TestData) string {
			return env.Handle(t, *d)
		})
	}
}
