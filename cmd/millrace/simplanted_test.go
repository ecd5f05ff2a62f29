package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestSimFindsAndShrinks builds the program with a mistake in the core: members vote for candidates whose
// logs lack what they have. sim must find it, make it smaller, and print commands that show the same
// failure.
func TestSimFindsAndShrinks(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds another program")
	}
	program := buildSpoilt(t, "raft/candidate.go", "return !free || !r.log.isUpToDate(v.last)", "return !free")
	out, status := runProgram(t, program, "sim", "--profile", "core", "--seeds", "1:400", "--workers", "1", "--shrink", "20s", "--quiet")
	if status != exitFailed {
		t.Fatalf("status %d\n%s", status, out)
	}
	failed := regexp.MustCompile(`FAILED: seed (\d+) of core.*?: (.*)\n`).FindStringSubmatch(out)
	replays := regexp.MustCompile(`(?m)^  millrace (sim .* --events)$`).FindAllStringSubmatch(out, -1)
	counts := regexp.MustCompile(`made smaller in .*, from (\d+) injections? to (\d+)`).FindStringSubmatch(out)
	if failed == nil || len(replays) != 2 || counts == nil {
		t.Fatalf("the report lacks a failure, two replays, or how much smaller it is:\n%.5000s", out)
	}
	t.Logf("seed %s: %s; %s", failed[1], failed[2], counts[0])
	before, _ := strconv.Atoi(counts[1])
	if after, err := strconv.Atoi(counts[2]); err != nil || after >= before {
		t.Errorf("it has not become smaller: %s", counts[0])
	}
	for i, replay := range replays {
		shown, status := runProgram(t, program, strings.Fields(replay[1])...)
		if status != exitFailed || !strings.Contains(shown, "FAILED: seed "+failed[1]+" of core") || strings.Count(shown, "\n") < 100 {
			t.Errorf("replay %d, %s: status %d\n%.2000s", i, replay[1], status, shown)
		}
	}
}

// buildSpoilt builds the program with one text of one file of the library replaced. The text must be there
// once.
func buildSpoilt(t *testing.T, file, text, by string) (program string) {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(source), text); n != 1 {
		t.Fatalf("%s has %q %d times, want once", file, text, n)
	}
	dir := t.TempDir()
	spoilt, overlay := filepath.Join(dir, "spoilt.go"), filepath.Join(dir, "overlay.json")
	list, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(root, file): spoilt}})
	if err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string]string{spoilt: strings.Replace(string(source), text, by, 1), overlay: string(list)} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	program = filepath.Join(dir, "millrace")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-overlay", overlay, "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// runProgram runs a program and returns what it prints, and its exit status.
func runProgram(t *testing.T, program string, args ...string) (text string, status int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	out, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}
