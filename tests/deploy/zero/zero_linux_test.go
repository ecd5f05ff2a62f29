package zero

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const page = "../../../docs/howto/three-machines.md"

// commands are those of the page: its blocks of sh. Each block is announced by a line of output.
func commands(t *testing.T) (script string, blocks int) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for i, block := range strings.Split(string(text), "```sh\n")[1:] {
		code, _, closed := strings.Cut(block, "```\n")
		if !closed {
			t.Fatalf("block %d of %s has no end", i+1, page)
		}
		script += fmt.Sprintf("echo '=== block %d'\n%s\n", i+1, code)
		blocks++
	}
	return script, blocks
}

// Every command of the page succeeds, and the answers are those that it promises.
func TestEveryCommandOfThePage(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("namespaces and mounts need root")
	}
	if out, err := exec.Command("unshare", "--mount", "--net", "--pid", "--fork", "ip", "link", "add", "wire", "type", "bridge").CombinedOutput(); err != nil {
		t.Skipf("this machine makes no namespaces with a network: %v %s", err, out)
	}
	script, blocks := commands(t)
	standIns, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	checkout := filepath.Join(standIns, "../../../..")
	dir := t.TempDir()
	list := exec.Command("git", "ls-files", "-z")
	list.Dir = checkout
	files, err := list.Output()
	if err != nil {
		t.Skipf("the files of the checkout are not known: git ls-files: %v", err)
	}
	write := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "--propagation", "private", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", filepath.Join(standIns, "machines"))
	cmd.Env = append(os.Environ(), "ZERO="+t.TempDir(), "ZERO_STANDINS="+standIns, "ZERO_CHECKOUT="+checkout, "ZERO_FILES="+write("files", files), "ZERO_COMMANDS="+write("commands", []byte(script)), "GOWORK=", "GOFLAGS=", "GOPROXY=off")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	answers := strings.Split(string(out), "=== block ")[1:]
	if len(answers) != blocks || blocks < 11 {
		t.Fatalf("%d of %d blocks have run:\n%s", len(answers), blocks, out)
	}
	for block, want := range map[int][]string{
		5:  {"hello"},
		6:  {"not healthy: member unreachable (host 3)", "host 1: healthy"},
		7:  {"whole"},
		9:  {"millrace_groups_unhealthy"},
		11: {"two of three", "1 more voters may fail"},
	} {
		for _, w := range want {
			if answer := answers[block-1]; !strings.Contains(answer, w) {
				t.Errorf("block %d does not say %q:\n%s", block, w, answer)
			}
		}
	}
	t.Logf("%s", out)
}
