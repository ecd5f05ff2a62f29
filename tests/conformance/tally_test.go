package conformance

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
)

// tally counts the golden cases of a file, or of all.
type tally struct {
	passed    int // the same as upstream's, log lines apart
	failed    int
	divergent int // different on purpose, and equal to the output that we have written down
	strict    int // the same byte by byte; reported, not required
}

func (s *tally) add(other tally) {
	s.passed += other.passed
	s.failed += other.failed
	s.divergent += other.divergent
	s.strict += other.strict
}

// count adds the verdict on one case.
func (s *tally) count(verdict error, strict bool) {
	switch {
	case verdict == nil:
		s.passed++
	case errors.Is(verdict, errDivergent):
		s.divergent++
	default:
		s.failed++
	}
	if strict {
		s.strict++
	}
}

func (s tally) cases() int { return s.passed + s.failed + s.divergent }

func (s tally) String() string {
	return fmt.Sprintf("%4d cases  %4d passed  %4d failed  %4d divergent  %4d equal to the byte", s.cases(), s.passed, s.failed, s.divergent, s.strict)
}

// total counts all cases that were run. Tests of golden cases are not parallel.
var total tally

func TestMain(m *testing.M) {
	code := m.Run()
	if err := stopChild37(); err != nil {
		fmt.Println("conformance: etcdraft37:", err)
		code = 1
	}
	if total.cases() > 0 {
		fmt.Printf("conformance: %d passed, %d failed\n", total.passed, total.failed)
		fmt.Printf("conformance: %d more differ on purpose (docs/divergence.md); %d of all are equal to the byte\n", total.divergent, total.strict)
	}
	os.Exit(code)
}

// report prints the line of a file in the table.
func report(file string, of tally) { fmt.Printf("%-56s %v\n", file, of) }

// logLevels are the first words of the lines that upstream's environment writes for its nodes' logger.
var logLevels = map[string]bool{"DEBUG": true, "INFO": true, "WARN": true, "ERROR": true, "FATAL": true, "PANIC": true}

// semantic returns an output without its log lines: what the nodes did, not what they reported about it. If
// nothing is left it returns what the environment prints for no output.
func semantic(output string) string {
	var kept strings.Builder
	for line := range strings.Lines(output) {
		line = strings.TrimRight(line, " \n")
		if level, _, _ := strings.Cut(strings.TrimLeft(line, " "), " "); !logLevels[level] {
			kept.WriteString(line + "\n")
		}
	}
	if kept.Len() == 0 {
		return "ok\n"
	}
	return kept.String()
}

func TestSemantic(t *testing.T) {
	for _, c := range []struct{ output, want string }{
		{"", "ok\n"},
		{"ok", "ok\n"},
		{"INFO 1 became leader at term 1\n", "ok\n"},
		{"> 1 handling Ready\n  DEBUG nothing\n  Ready MustSync=true:\n  ERROR\n", "> 1 handling Ready\n  Ready MustSync=true:\n"},
		{"1/4 EntryNormal \"INFO\"", "1/4 EntryNormal \"INFO\"\n"},
		{"INFORMATION", "INFORMATION\n"},
	} {
		if have := semantic(c.output); have != c.want {
			t.Errorf("%q: have %q, want %q", c.output, have, c.want)
		}
	}
}
