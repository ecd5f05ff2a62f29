package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// The player is a program made from testdata/player and from upstream's own test environment, rafttest, which
// is read where the go command keeps the module, with its import paths rewritten to ours. It is built in a
// temporary module, so that nothing of upstream enters the repository, and from the versions in
// tests/conformance/go.mod, so that it needs no network. Rejected: an environment of our own, which would
// judge us by our own reading of what the commands mean.

// leftOut are the files of rafttest that are left out, and why.
var leftOut = map[string]string{
	"doc.go":             "nothing but a comment",
	"node_bench_test.go": "measures",
}

// rewriteImports rewrites upstream's import paths to ours. The names in the packages are the same. Only Node
// is in another package here, which rafttest has to import under another name, because it has a node of its
// own.
var (
	rewriteImports = strings.NewReplacer(
		`"go.etcd.io/raft/v3"`, `"github.com/millrace/millrace/raft"`,
		`"go.etcd.io/raft/v3/`, `"github.com/millrace/millrace/raft/`,
	)
	rewriteNode = strings.NewReplacer(
		`"go.etcd.io/raft/v3"`, `"github.com/millrace/millrace/raft"; raftnode "github.com/millrace/millrace/raft/etcdnode"`,
		`"go.etcd.io/raft/v3/`, `"github.com/millrace/millrace/raft/`,
		"raft.StartNode(", "raftnode.StartNode(",
		"raft.RestartNode(", "raftnode.RestartNode(",
		"raft.Node\n", "raftnode.Node\n",
	)
)

func rewritten(file, content string) string {
	if file == "node.go" {
		return rewriteNode.Replace(content)
	}
	return rewriteImports.Replace(content)
}

// aScriptTakesAtMost ends a script that does not end: one whose core always has another Ready. Usually a
// script takes milliseconds.
const aScriptTakesAtMost = 10 * time.Second

// buildPlayer compiles the player and returns its path; the error is the compiler's.
func buildPlayer(t *testing.T) (string, error) {
	t.Helper()
	return compileRewritten(t, ".")
}

// compileRewritten compiles the tests of a package of the temporary module and returns the program's path.
func compileRewritten(t *testing.T, pkg string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	copyRewritten(t, filepath.Join(upstream(t), "rafttest"), filepath.Join(dir, "rafttest"))
	copyRewritten(t, "testdata/player", dir)
	writePlayerModule(t, dir)

	build := exec.Command("go", "test", "-c", "-trimpath", "-o", "player", pkg)
	build.Dir = dir
	build.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS="+os.Getenv("GOFLAGS")+" -mod=readonly", "PWD="+dir)
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("upstream's environment does not compile against our packages: %w\n%s", err, out)
	}
	return filepath.Join(dir, "player"), nil
}

// copyRewritten copies the Go files of a directory, rewritten, without upstream's files that are left out.
func copyRewritten(t *testing.T, from, to string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(from, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(to, 0o777); err != nil {
		t.Fatal(err)
	}
	theirs := strings.HasPrefix(from, upstream(t))
	for _, file := range files {
		name := filepath.Base(file)
		if _, out := leftOut[name]; theirs && out {
			continue
		}
		if err := os.WriteFile(filepath.Join(to, name), []byte(rewritten(name, read(t, file))), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

// writePlayerModule gives the temporary module the versions of tests/conformance, under another name.
func writePlayerModule(t *testing.T, dir string) {
	t.Helper()
	repository, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	module := strings.NewReplacer(
		"module github.com/millrace/millrace/tests/conformance\n", "module interaction\n",
		"=> ../../\n", fmt.Sprintf("=> %q\n", repository),
	).Replace(read(t, "go.mod"))
	for name, content := range map[string]string{"go.mod": module, "go.sum": read(t, "go.sum")} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

// output is what a case printed, or why it ended without output.
type output struct {
	text string
	died error
}

// outputs are the outputs of a script's cases, in order. If the program ended early there are fewer outputs
// than cases.
type outputs struct {
	texts []string
	died  error // why the case after the last of texts ended
}

func (o *outputs) next() output {
	if len(o.texts) > 0 {
		text := o.texts[0]
		o.texts = o.texts[1:]
		return output{text: text}
	}
	died := o.died
	if o.died = errNotPlayed; died == nil {
		died = errNotPlayed
	}
	return output{died: died}
}

var errNotPlayed = errors.New("not played: a case before it ended the program")

// playOurs runs a script on our core.
func playOurs(t *testing.T, player, script string) *outputs {
	t.Helper()
	results := filepath.Join(t.TempDir(), "results")
	ctx, cancel := context.WithTimeout(t.Context(), aScriptTakesAtMost)
	defer cancel()
	run := exec.CommandContext(ctx, player, "-test.run", "TestPlay", "-script", script, "-results", results)
	run.Env = append(os.Environ(), "DATADRIVEN_QUIET_LOG=true")
	said, err := run.CombinedOutput()
	if ctx.Err() != nil {
		err = fmt.Errorf("not done after %v", aScriptTakesAtMost)
	} else if err != nil {
		err = fmt.Errorf("%w: %s", err, lastWords(said))
	}
	return &outputs{texts: readResults(t, results), died: err}
}

// readResults reads the results that were written before the end, which may have come in the middle of a
// line.
func readResults(t *testing.T, file string) []string {
	t.Helper()
	var texts []string
	decoder := json.NewDecoder(strings.NewReader(read(t, file)))
	for {
		var text string
		switch err := decoder.Decode(&text); {
		case err == nil:
			texts = append(texts, withNewline(text))
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			return texts
		default:
			t.Fatalf("%s, line %d: %v", file, len(texts)+1, err)
		}
	}
}

var deathReport = regexp.MustCompile(`(?m)^(panic|fatal error): .*$`)

// lastWords returns the panic in the output of a test binary. Without a panic the environment gave up, and
// lastWords returns everything that it printed.
func lastWords(said []byte) string {
	if words := deathReport.Find(said); words != nil {
		said = words
	}
	return string(bytes.TrimSpace(said))
}

// withNewline ends an output as the golden files do.
func withNewline(output string) string {
	if output != "" && !strings.HasSuffix(output, "\n") {
		return output + "\n"
	}
	return output
}

func read(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// If a program ends early, the first case that it did not finish fails; the cases after it were not played.
func TestOutputsOfAProgramThatEndsEarly(t *testing.T) {
	file := filepath.Join(t.TempDir(), "results")
	if err := os.WriteFile(file, []byte("\"one\"\n\"two\\n\"\n\"thr"), 0o666); err != nil {
		t.Fatal(err)
	}
	died := errors.New(lastWords([]byte("  some.go:12: during line 7\npanic: nil map [recovered]\n\tpanic: nil map\n\ngoroutine 1\n")))
	played := outputs{texts: readResults(t, file), died: died}
	for _, want := range []output{{text: "one\n"}, {text: "two\n"}, {died: died}, {died: errNotPlayed}, {died: errNotPlayed}} {
		if have := played.next(); have != want {
			t.Errorf("have %v, want %v", have, want)
		}
	}
	if have, want := died.Error(), "panic: nil map [recovered]"; have != want {
		t.Errorf("last words: have %q, want %q", have, want)
	}
}
