package conformance

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// Deliberate differences. For a script of upstream's, testdata/divergent holds the cases whose output differs
// here on purpose, each with its expected output:
//
//	# divergence: Request for votes in asynchronous mode
//
//	case line=81
//	stabilize 1
//	----
//	our output, without log lines
//
//	before line=97
//	process-append-thread 3
//	----
//	our output
//
// The lines of upstream's file identify its cases. The command is repeated so that a reader sees what
// differs, and so that another version of the file is noticed. A "before" adds a command of our own to the
// script if upstream's order relies on what differs, so that the rest of the story is still told. The first
// lines of a file name the rows of docs/divergence.md that explain its cases. A case that is registered and
// does not differ is an error, and so is a case that differs and is not registered: the list is neither
// longer nor shorter than the truth.
//
// This command finds the cases for each existing file; to begin a file, write down its reasons:
//
//	go test -run Interaction -rewrite-divergent

var rewriteDivergent = flag.Bool("rewrite-divergent", false, "take our output for what testdata/divergent is to say")

// divergence is the content of a file of testdata/divergent.
type divergence struct {
	exists    bool
	header    string            // its comments
	cases     map[int]ownCase   // by line of upstream's file
	additions map[int][]ownCase // before a line of upstream's file
}

type ownCase struct{ command, output string }

// readDivergence reads a file of testdata/divergent. A script without such a file differs nowhere.
func readDivergence(t *testing.T, file string) *divergence {
	t.Helper()
	d := &divergence{cases: map[int]ownCase{}, additions: map[int][]ownCase{}}
	content, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return d
	}
	if err != nil {
		t.Fatal(err)
	}
	d.exists, d.header = true, header(string(content))
	datadriven.RunTest(t, file, func(t *testing.T, c *datadriven.TestData) string {
		var line int
		c.ScanArgs(t, "line", &line)
		own := ownCase{command: c.Input, output: c.Expected}
		switch c.Cmd {
		case "case":
			d.cases[line] = own
		case "before":
			d.additions[line] = append(d.additions[line], own)
		default:
			c.Fatalf(t, "unknown command; want case or before")
		}
		return c.Expected
	})
	return d
}

// header returns the comments at the beginning of a file.
func header(content string) (comments string) {
	for line := range strings.Lines(content) {
		if !strings.HasPrefix(line, "#") {
			break
		}
		comments += line
	}
	return comments
}

const reasonPrefix = "# divergence: "

// checkReasons requires that a file names its reasons, and that each reason is explained to our users.
func (d *divergence) checkReasons(t *testing.T, file string) {
	t.Helper()
	var reasons int
	for line := range strings.Lines(d.header) {
		reason, ok := strings.CutPrefix(line, reasonPrefix)
		if !ok {
			continue
		}
		reasons++
		if reason = strings.TrimSpace(reason); !isDivergenceRow(t, reason) {
			t.Errorf("%s: docs/divergence.md has no row %q", file, reason)
		}
	}
	if d.exists && reasons == 0 {
		t.Errorf("%s names no reason; want a line %q before the first case, and that row in docs/divergence.md", file, reasonPrefix+"...")
	}
}

// isDivergenceRow reports whether a row of the table in docs/divergence.md has that first cell.
func isDivergenceRow(t *testing.T, what string) bool {
	t.Helper()
	for line := range strings.Lines(read(t, "../../docs/divergence.md")) {
		if strings.HasPrefix(line, "| "+what+" |") {
			return true
		}
	}
	return false
}

// errDivergent is the verdict on a case that differs on purpose.
var errDivergent = errors.New("differs on purpose")

// judge compares a case's output with upstream's, and with ours if it is registered to differ. nil means that
// the case passed.
func (d *divergence) judge(c scriptCase, have output) error {
	own, registered := d.cases[c.line]
	same := semantic(have.text) == semantic(c.want)
	switch {
	case have.died != nil:
		return have.died
	case registered && own.command != c.command:
		return fmt.Errorf("testdata/divergent has another command at this line: %s", own.command)
	case registered && same:
		return errors.New("does not differ from upstream's, but is registered in testdata/divergent")
	case registered && semantic(have.text) != semantic(own.output):
		return fmt.Errorf("differs from upstream's and from our own:\n%s", own.output)
	case registered:
		return errDivergent
	case !same:
		return errors.New("differs, and is not registered in testdata/divergent")
	}
	return nil
}

// register adds a case that differs, and removes one that does not, if the file already exists.
func (d *divergence) register(c scriptCase, have output) {
	delete(d.cases, c.line)
	if d.exists && have.died == nil && semantic(have.text) != semantic(c.want) {
		d.cases[c.line] = ownCase{command: c.command, output: semantic(have.text)}
	}
}

// write writes the file, in the order of upstream's script.
func (d *divergence) write(t *testing.T, file string) {
	t.Helper()
	out := d.header
	lines := slices.AppendSeq(slices.Collect(maps.Keys(d.cases)), maps.Keys(d.additions))
	slices.Sort(lines)
	for _, line := range slices.Compact(lines) {
		for _, own := range d.additions[line] {
			out += fmt.Sprintf("\nbefore line=%d\n%s", line, own)
		}
		if own, ok := d.cases[line]; ok {
			out += fmt.Sprintf("\ncase line=%d\n%s", line, own)
		}
	}
	if err := os.WriteFile(file, []byte(out), 0o666); err != nil {
		t.Fatal(err)
	}
}

func (c ownCase) String() string {
	if strings.Contains(c.output, "\n\n") { // a blank line would end the output; the long form has another end
		return fmt.Sprintf("%s\n----\n----\n%s----\n----\n", c.command, c.output)
	}
	return fmt.Sprintf("%s\n----\n%s", c.command, c.output)
}

func TestDivergenceIsReadAsItIsWritten(t *testing.T) {
	want := divergence{
		exists:    true,
		header:    reasonPrefix + "Randomness\n# and more\n",
		cases:     map[int]ownCase{7: {"campaign 1", "ok\n"}, 12: {"stabilize", "one\n\ntwo\n"}},
		additions: map[int][]ownCase{7: {{"propose-conf-change 1\nv1 v2", "ok\n"}, {"tick-election 1", "ok\n"}}},
	}
	file := filepath.Join(t.TempDir(), "script.txt")
	want.write(t, file)
	have := readDivergence(t, file)
	if fmt.Sprint(*have) != fmt.Sprint(want) {
		t.Errorf("have %v, want %v", *have, want)
	}
}

func TestJudge(t *testing.T) {
	theirs := scriptCase{line: 3, command: "stabilize", want: "INFO 1 became leader\ntwo\n"}
	registered := func(command, output string) map[int]ownCase { return map[int]ownCase{3: {command, output}} }
	for _, c := range []struct {
		what string
		own  map[int]ownCase
		have string
		died error
		want string
	}{
		{"log lines do not count", nil, "two\n", nil, ""},
		{"an unintended difference", nil, "three\n", nil, "is not registered"},
		{"a difference on purpose", registered("stabilize", "three\n"), "DEBUG 1\nthree\n", nil, errDivergent.Error()},
		{"a difference on purpose, but not that one", registered("stabilize", "three\n"), "four\n", nil, "and from our own"},
		{"a difference that is gone", registered("stabilize", "three\n"), "two\n", nil, "does not differ"},
		{"another version of the script", registered("campaign 1", "three\n"), "three\n", nil, "another command"},
		{"a panic", registered("stabilize", "three\n"), "", errors.New("panic: nil map"), "nil map"},
	} {
		have := (&divergence{cases: c.own}).judge(theirs, output{c.have, c.died})
		if c.want == "" && have != nil || c.want != "" && (have == nil || !strings.Contains(have.Error(), c.want)) {
			t.Errorf("%s: have %v, want %q", c.what, have, c.want)
		}
	}
}
