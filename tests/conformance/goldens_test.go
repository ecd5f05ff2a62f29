package conformance

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// suite is one of upstream's directories of golden files. A file is a story: its cases share what begin
// returns.
type suite struct {
	dir   string
	cases int // as counted in v3.6.0: a missing file must not count as one that passes
	begin func() player
}

// player runs one case and returns its output.
type player func(t *testing.T, d *datadriven.TestData) string

var suites = []suite{
	{"quorum/testdata", 127, quorumCases},
	{"confchange/testdata", 58, confChangeCases},
}

func TestUpstreamGoldens(t *testing.T) {
	for _, s := range suites {
		files, err := filepath.Glob(filepath.Join(upstream(t), s.dir, "*.txt"))
		if err != nil {
			t.Fatal(err)
		}
		var ofSuite tally
		for _, file := range files {
			ofFile := play(t, file, s.begin())
			report(filepath.Join(s.dir, filepath.Base(file)), ofFile)
			ofSuite.add(ofFile)
		}
		if have := ofSuite.cases(); have != s.cases {
			t.Errorf("%s: have %d cases, want %d", s.dir, have, s.cases)
		}
		total.add(ofSuite)
	}
}

// play runs every case of a file, even after a difference, at which datadriven would stop: it tells
// datadriven that each output was the expected one, and reports the differences at the end of the file.
func play(t *testing.T, file string, player player) tally {
	var result tally
	var differences []string
	datadriven.RunTest(t, file, func(t *testing.T, d *datadriven.TestData) string {
		have := withNewline(player(t, d))
		if have == d.Expected {
			result.passed++
			result.strict++
		} else {
			result.failed++
			differences = append(differences, fmt.Sprintf("%s: %s\n%s\nhave\n%s\nwant\n%s", d.Pos, d.Cmd, d.Input, have, d.Expected))
		}
		return d.Expected
	})
	for _, difference := range differences {
		t.Error(difference)
	}
	return result
}

// upstream returns the directory in which the go command keeps the module.
func upstream(t *testing.T) string {
	t.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "go.etcd.io/raft/v3").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(dir))
}
