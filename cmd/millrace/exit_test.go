package main

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/bench"
	"github.com/millrace/millrace/cmd/internal/lab/compare"
	"github.com/millrace/millrace/cmd/internal/lab/experiment"
	"github.com/millrace/millrace/cmd/internal/lab/labtest"
	"github.com/millrace/millrace/cmd/internal/lab/logs"
	"github.com/millrace/millrace/cmd/internal/lab/remote"
	"github.com/millrace/millrace/cmd/internal/simulate"
)

// verbs are all commands that do something, with arguments that make each succeed in a moment. LOG is a whole
// log, SNAPSHOTS and OBJECTS a host's directory with whole snapshots and objects, HOST that of a stopped
// host, ARCHIVE one of its archives, MEMBER where a member of a lab serves loads, SERVED where a load serves
// its results, NEW a directory that does not exist, RESULT one of sim, RUN one of lab, FLIGHT a recording.
// SERVICE is the directory of a stopped member of the service, PKI one with a CA and member 9, SURVIVOR that
// of one host of three. PLAN is the id of a plan that was not begun. A host runs in the directory one.
var verbs = map[string]string{
	"millrace version":            "",
	"millrace bench":              "--dir . --pipelines basic --clients 1 --duration 20ms --warmup 1ms --quiet",
	"millrace bench wal":          "--dir . --logs millrace --appenders 1 --groups 1 --duration 1ms --warmup 1ms --keep-mib 1 --recover-mib 0 --quiet",
	"millrace bench peers":        "--dir . --peers millrace --clients 1 --nodes 1 --duration 300ms --warmup 1ms --runs 1 --no-strace --quiet",
	"millrace wal verify":         "LOG",
	"millrace wal stat":           "LOG",
	"millrace wal dump":           "LOG",
	"millrace wal diff":           "LOG LOG",
	"millrace wal repair":         "LOG",
	"millrace":                    "",
	"millrace lab list":           "",
	"millrace lab run":            "b0 --glance --dir . --quiet",
	"millrace lab measure":        "--dir . --clients 1 --duration 20ms --min-warmup 0s --max-warmup 20ms --probe 0s --quiet",
	"millrace lab member":         "--dir . --id 1 --members 127.0.0.1:0 --loads 127.0.0.1:0 --probe 0s --for 1ms",
	"millrace lab load":           "--dir . --members MEMBER --clients 1 --duration 20ms --min-warmup 0s --max-warmup 20ms --round-trips 0s --quiet",
	"millrace lab collect":        "--from SERVED --out collected --keep",
	"millrace lab certificates":   "--dir NEW",
	"millrace lab sweep":          "--dir . --start 200 --max-rate 300 --duration 100ms --min-warmup 0s --max-warmup 20ms --probe 0s --quiet",
	"millrace wal":                "",
	"millrace snapshot":           "",
	"millrace snapshot inspect":   "SNAPSHOTS",
	"millrace snapshot verify":    "SNAPSHOTS",
	"millrace objects":            "",
	"millrace objects list":       "OBJECTS",
	"millrace objects verify":     "OBJECTS",
	"millrace objects scrub":      "one",
	"millrace snapshot save":      "HOST saved",
	"millrace snapshot restore":   "ARCHIVE restored --id 4 --members 4=127.0.0.1:7004",
	"millrace members":            "",
	"millrace members list":       "one",
	"millrace members plan":       "one learner 2",
	"millrace members execute":    "one --yes learner 3",
	"millrace members cancel":     "one PLAN",
	"millrace members address":    "one 9=127.0.0.1:7009",
	"millrace members token":      "one",
	"millrace members accept-key": "one 2", // no host was refused for its key here, so it cannot succeed
	"millrace members skip":       "one 4", // says what it would do
	"millrace members upgrade":    "one 1", // the programs here can do version 0 only, so it cannot succeed
	"millrace members rescue":     "SURVIVOR",
	"millrace lab":                "",
	"millrace lab report":         "RUN",
	"millrace lab plot":           "RUN",
	"millrace lab compare":        "RUN RUN",
	"millrace sim":                "--profile core --seeds 1:3 --length 50 --quiet",
	"millrace sim merge":          "RESULT",
	"millrace flight":             "one",
	"millrace sim replay":         "FLIGHT --quiet",
	"millrace cert":               "",
	"millrace cert ca":            "--dir made",
	"millrace cert member":        "--dir PKI --id 1",
	"millrace cert renew":         "--dir PKI --id 9",
	"millrace cert inspect":       "PKI/ca.pem",
	"millrace bench serve":        "--systems millrace --loads put --members 1 --clients 1 --rounds 1 --duration 50ms --warmup 10ms --quiet",
	"millrace serve":              "--print-config",
	"millrace serve log":          "SERVICE",
	"millrace lab-client":         "", // as log-child
	"millrace log-child":          "", // its input has no request, so it cannot succeed here
	"millrace peer-child":         "", // the same
}

// commands returns the command paths of cmd and of all commands below it.
func commands(cmd *cobra.Command) map[string]*cobra.Command {
	all := map[string]*cobra.Command{cmd.CommandPath(): cmd}
	for _, below := range cmd.Commands() {
		for path, c := range commands(below) {
			all[path] = c
		}
	}
	return all
}

// status runs a command line and returns its exit status.
func status(t *testing.T, ctx context.Context, args ...string) int {
	t.Helper()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	return run(ctx, args, app{stdout: null, stderr: null, targets: bench.Registry{bench.BareName: opens(good), "basic": opens(good)}})
}

// Every verb that the binary has gives the same status for the same reason.
func TestExitStatusesOfEveryVerb(t *testing.T) {
	if testing.Short() {
		t.Skip("it runs each verb four times")
	}
	log := t.TempDir()
	writeLog(t, log, 1, 3, 10)
	taken := t.TempDir()
	writeSnapshots(t, taken, 7)
	writeObjects(t, taken, 7)
	stopped, archive := writeHost(t)
	pki := t.TempDir()
	makePKI(t, pki, 9)
	survivor, recording := writeSurvivor(t), writeFlight(t)
	result := filepath.Join(t.TempDir(), "result.json")
	if have := status(t, t.Context(), "sim", "--profile", "core", "--seeds", "1:3", "--quiet", "--soak", result); have != exitOK {
		t.Fatalf("sim: status %d", have)
	}
	labRun := filepath.Join(t.TempDir(), "run")
	labtest.WriteArchive(t, labRun, labtest.Shape{Seed: 1, Recipe: "b0", Pipelines: []string{"async"}, Rates: []float64{1000, 2000}, Repeats: 1, Seconds: 1})
	labMember, served := startLabMember(t), serveResults(t, labRun)
	service, _ := writeService(t)
	t.Chdir(t.TempDir())
	addrs := runMembers(t, 2, 3)
	_, planned, _ := say(t, t.Context(), "plan", "one", "add", "2="+addrs[2], "add", "3="+addrs[3])
	plan := planIn(t, planned)
	for path := range commands(newRoot(app{})) {
		if verb := strings.TrimPrefix(path, "millrace bench "); movedBenches[verb] != "" {
			continue // it only says where it went
		}
		args, known := verbs[path]
		if !known {
			t.Errorf("%s: this test does not know how to make it succeed", path)
			continue
		}
		words := strings.Fields(path)[1:]
		with := func(more string) []string {
			return append(append([]string{}, words...), strings.Fields(strings.NewReplacer("LOG", log, "SNAPSHOTS", taken, "OBJECTS", taken, "HOST", stopped, "ARCHIVE", archive, "PKI", pki, "SURVIVOR", survivor, "FLIGHT", recording, "PLAN", plan, "RESULT", result, "RUN", labRun, "SERVED", served, "MEMBER", labMember, "SERVICE", service, "NEW", filepath.Join(t.TempDir(), "new")).Replace(more))...)
		}
		answersInput := path == "millrace log-child" || path == "millrace peer-child" || path == "millrace lab-client"
		if !answersInput {
			want := exitOK
			if path == "millrace members accept-key" || path == "millrace members upgrade" {
				want = exitFailed
			}
			if have := status(t, t.Context(), with(args)...); have != want {
				t.Errorf("%s %s: status %d, want %d", path, args, have, want)
			}
		}
		if have := status(t, t.Context(), with("--nonsense")...); have != exitUsage {
			t.Errorf("%s --nonsense: status %d, want %d", path, have, exitUsage)
		}
		if have := status(t, t.Context(), with("one two three")...); have != exitUsage && path != "millrace cert inspect" && path != "millrace members rescue" && path != "millrace sim merge" && path != "millrace lab report" {
			t.Errorf("%s one two three: status %d, want %d", path, have, exitUsage)
		}
		interrupted, cancel := context.WithCancelCause(t.Context())
		cancel(errInterrupted)
		want := exitInterrupted
		if args == "" {
			want = exitOK // help and version print, and are done
		}
		if have := status(t, interrupted, with(args)...); have != want && !answersInput {
			t.Errorf("%s %s, interrupted: status %d, want %d", path, args, have, want)
		}
	}
}

func TestExitStatusesOfFailures(t *testing.T) {
	t.Chdir(t.TempDir())
	base := []string{"bench", "--dir", ".", "--pipelines", "basic", "--clients", "1", "--duration", "20ms", "--warmup", "1ms", "--quiet"}
	for _, tc := range []struct {
		name string
		args []string
		want int
	}{
		{"no such directory", []string{"bench", "--pipelines", "basic", "--dir", "/does/not/exist"}, exitCannot},
		{"no such directory", []string{"bench", "wal", "--mechanisms", "--dir", "/does/not/exist", "--quiet"}, exitCannot},
		{"no such directory", []string{"lab", "run", "flush", "--glance", "--dir", "/does/not/exist", "--quiet"}, exitCannot},
		{"no such log", []string{"wal", "verify", "/does/not/exist"}, exitCannot},
		{"no such snapshot", []string{"snapshot", "verify", "/does/not/exist"}, exitCannot},
		{"no such directory", []string{"objects", "list", "/does/not/exist"}, exitCannot},
		{"no host", []string{"objects", "verify", "."}, exitCannot},
		{"no id", []string{"objects", "verify", ".", "--object", "7"}, exitUsage},
		{"no such certificate", []string{"cert", "inspect", "/does/not/exist"}, exitCannot},
		{"no CA", []string{"cert", "member", "--dir", ".", "--id", "1"}, exitCannot},
		{"no key", []string{"cert", "renew", "--dir", ".", "--id", "1"}, exitCannot},
		{"no id", []string{"cert", "member", "--dir", "."}, exitUsage},
		{"no directory", []string{"cert", "ca"}, exitUsage},
		{"out of bounds", []string{"cert", "ca", "--dir", ".", "--days", "0"}, exitUsage},
		{"no file", []string{"cert", "inspect"}, exitUsage},
		{"no snapshot", []string{"snapshot", "inspect", "."}, exitCannot},
		{"out of bounds", []string{"bench", "--runs", "0"}, exitUsage},
		{"out of bounds", []string{"bench", "wal", "--runs", "0"}, exitUsage},
		{"a verb that moved", []string{"bench", "flush", "--runs", "3"}, exitUsage},
		{"out of bounds", []string{"wal", "dump", "--limit", "-1", "."}, exitUsage},
		{"unknown verb", []string{"bnech"}, exitUsage},
		{"unknown verb", []string{"wal", "inspect"}, exitUsage},
		{"help of an unknown verb", []string{"help", "bnech"}, exitUsage},
		{"help of an unknown verb", []string{"help", "bench", "all"}, exitUsage},
		{"help of a verb", []string{"help", "bench", "wal"}, exitOK},
		{"unknown log", []string{"log-child", "bbolt"}, exitUsage},
	} {
		if have := status(t, t.Context(), tc.args...); have != tc.want {
			t.Errorf("%s: %v: status %d, want %d", tc.name, tc.args, have, tc.want)
		}
	}
	if have, _, _ := runBench(t, t.Context(), opens(doubles), base[1:]...); have != exitFailed {
		t.Errorf("a cluster that doubles writes: status %d, want %d", have, exitFailed)
	}
}

func TestTheNumberOfArguments(t *testing.T) {
	for line, want := range map[string]string{
		"wal verify":     "want one directory, have none (see millrace wal verify --help)",
		"wal repair a b": "want one directory, have 2 (see millrace wal repair --help)",
		"wal diff a":     "want two directories, have 1 (see millrace wal diff --help)",
	} {
		root := newRoot(app{})
		root.SetArgs(strings.Fields(line))
		if err := root.Execute(); err == nil || sentence(err) != want {
			t.Errorf("%s: %v, want %s", line, err, want)
		}
	}
}

func TestVersionIsAFlagToo(t *testing.T) {
	var verb, flag strings.Builder
	for args, out := range map[string]*strings.Builder{"version": &verb, "--version": &flag} {
		root := newRoot(app{stdout: out})
		root.SetArgs([]string{args})
		if err := root.Execute(); err != nil {
			t.Error(err)
		}
	}
	if verb.String() != flag.String() || !strings.HasPrefix(flag.String(), "millrace ") {
		t.Errorf("--version prints %q, version %q", flag.String(), verb.String())
	}
}

// The help of every verb shows its statuses, the root's all of them, and the document the same table.
func TestExitStatusesAreDocumented(t *testing.T) {
	document, err := os.ReadFile(filepath.Join("..", "..", "docs", "operate", "exit-statuses.md"))
	if err != nil {
		t.Fatal(err)
	}
	root := newRoot(app{})
	for _, e := range exitMeanings {
		if row := "| " + strconv.Itoa(e.status) + " | " + e.meaning + " |"; !strings.Contains(string(document), row) {
			t.Errorf("docs/operate/exit-statuses.md lacks the row %q", row)
		}
		if !strings.Contains(root.Long, e.meaning) {
			t.Errorf("the help of millrace lacks status %d", e.status)
		}
	}
	for path, cmd := range commands(root) {
		if strings.Contains(path, " bench") || strings.Contains(path, " wal") || strings.Contains(path, " snapshot") || strings.Contains(path, " objects") {
			if !strings.Contains(cmd.Long, exitHelp(exitUsage)[len("Exit status\n"):]) {
				t.Errorf("the help of %s lacks its exit statuses", path)
			}
		}
	}
}

// Every field of a plan has a flag on its verb, or a reason to have none; and no flag is named for a field
// that is gone.
func TestEveryFieldHasAFlag(t *testing.T) {
	without := map[string]string{
		"Targets":     "what this binary can measure",
		"Missing":     "what it cannot",
		"Components":  "their fields have flags",
		"Credentials": "they are read from Certificates", "Say": "where progress goes",
	}
	all := commands(newRoot(app{}))
	used := map[string]bool{}
	for verb, plan := range map[string]any{
		"millrace bench": bench.Plan{}, "millrace bench wal": logs.Plan{}, "millrace bench wal --mechanisms": logs.MechanismPlan{}, "millrace sim": simulate.Plan{}, "millrace lab compare": compare.Options{}, "millrace lab measure": experiment.Plan{}, "millrace lab member": remote.MemberPlan{}, "millrace lab load": remote.ResultServing{}, "millrace lab collect": remote.Collecting{},
	} {
		cmd := all[strings.TrimSuffix(verb, " --mechanisms")]
		var fields []string
		switch {
		case strings.HasPrefix(verb, "millrace bench"):
			fields = []string{"Out"}
		case verb == "millrace lab measure":
			fields = []string{"Out", "Resume"} // of experiment.Options
		}
		for _, f := range reflect.VisibleFields(reflect.TypeOf(plan)) {
			fields = append(fields, f.Name)
		}
		for _, field := range fields {
			used[field] = true
			if without[field] == "" && cmd.Flags().Lookup(flagOf[field]) == nil {
				t.Errorf("%s has no flag for the field %s: flagOf says %q", verb, field, flagOf[field])
			}
		}
	}
	for field := range flagOf {
		if !used[field] {
			t.Errorf("flagOf has a flag for %s, and no plan has such a field", field)
		}
	}
}

func TestSentencesNameFlags(t *testing.T) {
	for want, err := range map[string]error{
		"--nodes: 0 is not between 1 and 9":                  lab.Invalid("Hosts", "0 is not between %d and %d", 1, 9),
		"point 3: --dir: the disk is full":                   fmt.Errorf("point 3: %w", lab.Cannot("Dir", "the disk is full")),
		"--keep-mib: 0 MiB is too little; cannot clean up x": errors.Join(lab.Invalid("KeepBytes", "0 MiB is too little"), errors.New("cannot clean up x")),
		"Nameless: is refused":                               lab.Invalid("Nameless", "is refused"),
		"no; make x: not new; and y":                         errors.Join(fmt.Errorf("millrace: no"), fmt.Errorf("make x: %w", errors.New("millrace: not new")), errors.New("millrace: and y")), // run prints the name
	} {
		if have := sentence(err); have != want {
			t.Errorf("%q, want %q", have, want)
		}
	}
}

// The lab names fields, and never flags, except those of strace.
func TestTheLabKnowsNoFlags(t *testing.T) {
	flag := regexp.MustCompile(`(^|[\s(])--[a-z]`)
	read := 0
	err := filepath.WalkDir(filepath.Join("..", "internal", "lab"), func(path string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() && d.Name() == "regression" {
			return fs.SkipDir // it runs git and go, whose flags are in it
		}
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		read++
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if text, ok := n.(*ast.BasicLit); ok && text.Kind == token.STRING && flag.MatchString(strings.Trim(text.Value, "\"`")) && text.Value != `"--seccomp-bpf"` {
				t.Errorf("%s names a flag: %s", path, text.Value)
			}
			return true
		})
		return nil
	})
	if err != nil || read < 30 {
		t.Errorf("%d files read, %v", read, err)
	}
}
