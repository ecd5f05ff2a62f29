//go:build unix

package site

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestSwitch runs this program again with mutant 2 alive: only that one is on, and what was asked is noted
// even though the program is killed.
func TestSwitch(t *testing.T) {
	if _, ok := os.LookupEnv(Alive); ok {
		if !On(2) || On(0) {
			os.Exit(1)
		}
		p, _ := os.FindProcess(os.Getpid())
		p.Kill()
		select {}
	}
	if On(0) {
		t.Error("a mutant is alive without the variable")
	}
	notes := filepath.Join(t.TempDir(), "reached")
	if err := os.WriteFile(notes, make([]byte, 4*3), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestSwitch$")
	cmd.Env = append(os.Environ(), Alive+"=2", Reached+"="+notes)
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(err.Error(), "killed") {
		t.Fatalf("the program ended with %v, want killed: %s", err, out)
	}
	b, err := os.ReadFile(notes)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []uint32{1, 0, 0} { // the one that is alive is not noted: On need not look further
		if have := binary.NativeEndian.Uint32(b[4*i:]); have != want {
			t.Errorf("mutant %d is noted as %d, want %d", i, have, want)
		}
	}
}

// TestWrongSwitchStopsTheProgram: a run that cannot be what was asked for judges nothing.
func TestWrongSwitchStopsTheProgram(t *testing.T) {
	for name, env := range map[string]string{"no number": Alive + "=two", "no file": Reached + "=" + filepath.Join(t.TempDir(), "none")} {
		cmd := exec.Command(os.Args[0], "-test.run=^NoTest$")
		cmd.Env = append(os.Environ(), env)
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "mutation: ") {
			t.Errorf("%s: ended with %v: %s", name, err, out)
		}
	}
}
