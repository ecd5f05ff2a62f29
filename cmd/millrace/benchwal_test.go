package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/labtest"
	"github.com/millrace/millrace/cmd/internal/lab/logs/child"
)

// verb runs a verb below bench, in a directory outside of the source tree.
func verb(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	return runBench(t, t.Context(), opens(good), args...)
}

// Our log and the raw file are measured in processes of their own, on the real disk. The table names the
// others as missing.
func TestBenchWALWithoutTheSourceTree(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	args := []string{"wal", "--dir", ".", "--appenders", "1,8", "--groups", "1,4", "--duration", "50ms", "--warmup", "10ms", "--keep-mib", "1", "--recover-mib", "4", "--quiet", "--out", out}
	status, stdout, stderr := verb(t, args...)
	if status != exitOK || stderr != "" {
		t.Fatalf("status %d, stderr %q", status, stderr)
	}
	for _, want := range []string{
		"1 appender, 1 group", "8 appenders, 4 groups", "raw file", "millrace", "open a log of 4 MiB", "÷ best other",
		"NOT MEASURED: etcd-wal: it is built from Millrace's source tree, and the current directory is not in it; give --source",
		"NOT MEASURED: bbolt: ",
	} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in\n%s", want, stdout)
		}
	}
	for _, name := range []string{"results.json", "throughput.svg"} {
		if info, err := os.Stat(filepath.Join(out, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	status, _, stderr = verb(t, args...)
	if strings.Contains(stdout, "aims") {
		t.Errorf("the aims of our log are no matter of its users:\n%s", stdout)
	}
	checkRefused(t, status, stderr, exitCannot, "results.json is already there")
}

func TestBenchWALPrintsJSON(t *testing.T) {
	var rows []child.Result
	for length := range labtest.Lengths(20 * time.Millisecond) {
		_, stdout, _ := verb(t, "wal", "--dir", ".", "--quick", "--logs", "millrace", "--appenders", "2", "--groups", "1", "--duration", length.String(), "--recover-mib", "0", "--quiet", "--json")
		if err := json.Unmarshal([]byte(stdout), &rows); err != nil || len(rows) != 2 || rows[1].Pipeline != child.OwnLogName {
			t.Fatalf("%+v, %v", rows, err)
		}
		if rows[1].Fsyncs > 0 {
			return
		}
	}
	t.Errorf("nothing was written: %+v", rows)
}

// One sentence says that a module of the tree cannot be built, and another that there is no tree.
func TestBenchWALSaysWhyALogIsMissing(t *testing.T) {
	tree := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module github.com/millrace/millrace\n", "cmd/go.mod": "module x\n",
		logPrograms + "/boltdb/go.mod": "module x\n", logPrograms + "/boltdb/main.go": "package main; func main() { nonsense() }\n",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(tree, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(tree, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"wal", "--dir", ".", "--logs", "etcd-wal,bbolt", "--appenders", "1", "--groups", "1", "--duration", "1ms", "--warmup", "0s", "--recover-mib", "0", "--source"}
	for source, wants := range map[string][]string{
		tree:            {"etcd-wal: the source tree has no program in " + filepath.Join(tree, logPrograms, "etcdwal"), "bbolt: go build in " + filepath.Join(tree, logPrograms, "boltdb") + " failed (exit status 1): ./main.go:1:29: undefined: nonsense"},
		"/no/such/tree": {"etcd-wal: --source: /no/such/tree is not Millrace's source tree"},
	} {
		_, stdout, _ := verb(t, append(args, source)...)
		for _, want := range wants {
			if !strings.Contains(stdout, "NOT MEASURED: "+want) {
				t.Errorf("no %q in\n%s", want, stdout)
			}
		}
	}
}

func TestBenchMechanisms(t *testing.T) {
	status, stdout, stderr := verb(t, "wal", "--mechanisms", "--dir", ".", "--duration", "1ms", "--quiet")
	if strings.Contains(stderr, "on Linux only") {
		t.Skip(stderr)
	}
	if status != exitOK || !strings.Contains(stdout, "direct, zeroed, overlapped") || stderr != "" {
		t.Errorf("status %d, stderr %q, stdout\n%s", status, stderr, stdout)
	}
}

func TestBenchVerbsRefuse(t *testing.T) {
	for _, tc := range []struct {
		args   string
		status int
		want   string
	}{
		{"wal extra", exitUsage, `unknown command "extra"`},
		{"wal --appenders 0", exitUsage, "--appenders: 0 is not between"},
		{"wal --groups x", exitUsage, `--groups: "x" in "x" cannot be read`},
		{"wal --logs bolt", exitUsage, `--logs: "bolt" is not known; choose from`},
		{"wal --keep-mib 0", exitUsage, "--keep-mib: 0 MiB is not between"},
		{"wal --mechanisms --duration 0s", exitUsage, "--duration: 0s is not between"},
		{"wal --dir /does/not/exist --logs millrace", exitCannot, "--dir: cannot use /does/not/exist"},
	} {
		t.Run(tc.args, func(t *testing.T) {
			status, stdout, stderr := verb(t, append(strings.Fields(tc.args), "--quiet")...)
			checkRefused(t, status, stderr, tc.status, tc.want)
			if stdout != "" {
				t.Errorf("stdout %q", stdout)
			}
		})
	}
}

func TestLogChildRefusesOtherLogs(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if status := run(t.Context(), []string{logChildVerb, "bbolt"}, app{stderr: null}); status != exitUsage {
		t.Errorf("status %d", status)
	}
}
