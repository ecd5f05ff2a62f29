package structure

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The layers of Millrace. Imports point down: of our packages, a package may import exactly what its line
// names. This is a statement of policy; ARCHITECTURE.md explains it. Do not change this table to make a build
// pass.
//
// After the bar, a line names the modules of others that the package may import. "*" is anything exported.
const layers = `
internal/planted                                                                                              |
internal/repetition                                                                                           |
internal/lock                                                                                                 |
internal/timelimit                                                                                            |
internal/goroutine                                                                                            |
internal/crcjoin                                                                                              |
internal/golden                                                                                               |
internal/arena         internal/lock                                                                          |
internal/completion    internal/lock                                                                          |
internal/structure                                                                                            |
internal/mutation/site                                                                                        |
internal/mutation      internal/mutation/site                                                                 |
raft/raftpb                                                                                                   |
raft/quorum                                                                                                   |
raft/tracker           raft/raftpb raft/quorum                                                                |
raft/confchange        raft/raftpb raft/quorum raft/tracker                                                   |
raft                   raft/raftpb raft/quorum raft/tracker raft/confchange                                   |
raft/etcdnode          raft raft/raftpb                                                                       |
env                                                                                                           | golang.org/x/sys
vfs                                                                                                           | golang.org/x/sys
vfs/crashfs            vfs                                                                                    |
wal/record             internal/crcjoin                                                                       |
wal                    raft/raftpb vfs env wal/record internal/lock internal/crcjoin internal/arena                                           |
wal/inspect            raft/raftpb vfs wal wal/record                                                         |
snapshot               raft/raftpb vfs                                                                        |
object                                                                                                        |
object/files           object snapshot vfs                                                                    |
transport              raft/raftpb env internal/crcjoin                                                       |
transport/cert                                                                                                |
transport/tcp          raft/raftpb env vfs transport transport/cert internal/repetition                        | golang.org/x/sys
transport/loopback     raft/raftpb env transport                                                              |
transport/transporttest raft/raftpb transport internal/crcjoin                                                |
host/pipeline          raft/raftpb raft                                                                       |
host/flight            raft raft/raftpb internal/lock                                                         |
host/session           raft/raftpb                                                                            |
host/event             raft/raftpb wal object transport transport/tcp                                        |
host/diagnosis         host/event                                                                             |
host/internal/turn                                                                                            |
host/internal/budget                                                                                          |
host/admin             internal/repetition raft/raftpb                                                        |
host/membership        raft/quorum raft/raftpb raft/tracker raft/confchange transport                         |
host/outcome           host/diagnosis host/membership raft/raftpb wal                                         |
host/statemachine      host/outcome host/session object raft/raftpb                                          |
host/internal/containment env host/statemachine raft |
host/batches                                                                                                  |
host/internal/reports  env host/event host/internal/containment internal/lock                                 |
host/internal/pulse    internal/lock                                                                          |
host/internal/sched    host/internal/turn env internal/lock                                                   |
host/internal/outbox   raft/raftpb transport host/internal/sched                                                   |
host/internal/identity snapshot transport vfs wal host/membership internal/lock                               |
host/internal/control  transport                                                                             |
host/internal/entry    raft raft/raftpb host/membership transport snapshot |
host/internal/workqueue host/internal/budget host/internal/outbox raft raft/raftpb internal/lock              |
host/internal/appendlane env host/internal/budget host/internal/entry host/internal/outbox host/internal/sched host/internal/workqueue raft raft/raftpb wal internal/lock|
host/internal/bulk     host/event host/internal/control raft snapshot transport internal/lock internal/repetition                 |
host/internal/feed     env host/statemachine host/internal/entry internal/lock |
host/internal/divergence host/event host/session host/internal/control host/internal/entry raft/quorum internal/lock      |
host/internal/storage  env internal/repetition raft raft/raftpb vfs wal internal/lock                         |
host/internal/apply    env vfs raft/raftpb object host/event host/membership host/outcome host/session host/statemachine host/internal/containment host/internal/divergence host/internal/entry host/internal/feed host/internal/identity host/internal/sched host/internal/storage host/internal/workqueue internal/lock internal/arena internal/goroutine|
host/internal/members  host/event host/outcome host/membership host/internal/control host/internal/entry host/internal/identity raft/quorum raft/raftpb transport wal internal/lock|
host/internal/founding host/diagnosis host/internal/entry host/internal/turn raft raft/raftpb transport |
host/internal/plans    host/membership host/internal/control host/internal/entry host/internal/identity host/internal/turn raft raft/raftpb raft/tracker transport internal/lock|
host/internal/reads    internal/completion internal/timelimit host/internal/budget host/internal/control host/internal/sched internal/lock host/outcome |
host/internal/proposals host/batches raft raft/raftpb transport host/session host/outcome host/statemachine host/internal/budget host/internal/control host/internal/sched host/internal/turn internal/lock internal/completion|
host/internal/objects  host/event host/outcome host/session host/membership host/internal/bulk host/internal/control host/internal/entry host/internal/turn object object/files raft snapshot vfs internal/lock|
host/internal/snapshots env raft raft/raftpb snapshot transport vfs host/event host/statemachine internal/repetition host/internal/bulk host/internal/containment host/internal/control host/internal/entry host/internal/identity host/internal/sched internal/lock|
host/internal/versions host/internal/control host/membership host/statemachine internal/lock                   |
host/internal/examination host/diagnosis host/event host/membership host/internal/appendlane host/internal/divergence host/internal/identity raft raft/quorum raft/raftpb raft/tracker snapshot vfs internal/lock|
host/internal/leadership host/membership host/internal/control host/internal/entry host/internal/examination host/internal/turn raft raft/raftpb raft/tracker internal/lock |
host/internal/placement env host/membership host/internal/control host/internal/sched raft raft/tracker internal/lock|
host/internal/peers    host/outcome host/internal/control host/internal/entry host/internal/examination host/internal/identity raft transport internal/lock|
host                   internal/completion raft/raftpb raft raft/tracker env vfs wal snapshot object object/files transport transport/cert transport/tcp host/flight host/pipeline host/session host/event host/diagnosis host/outcome host/statemachine host/admin host/batches host/membership internal/repetition internal/crcjoin host/internal/* internal/lock internal/arena|
.                      internal/completion internal/timelimit host host/diagnosis host/event host/session object object/files host/outcome host/statemachine |
timers                                                                                                        |
internal/counting      .                                                                                      |
internal/stopwatch     vfs                                                                                    |
internal/scratch       vfs                                                                                    | golang.org/x/sys
ops                    . host host/batches host/diagnosis host/outcome transport                                           | github.com/prometheus/client_golang go.yaml.in/yaml/v3
smtest                 .                                                                                      |
millracetest           . host host/event env transport/loopback vfs vfs/crashfs                                          |
host/rescue            host host/internal/entry host/internal/identity host/membership env raft/raftpb snapshot transport vfs wal |
host/logtest           host raft/raftpb wal                                                                   |
sim/batches                                                                                                   |
sim/coverage                                                                                                  |
sim/shrink                                                                                                    |
sim/history                                                                                                   |
sim/property                                                                                                  |
sim/core               raft raft/raftpb raft/tracker sim/coverage sim/property                                |
sim                    . sim/coverage sim/property host host/batches host/rescue host/diagnosis host/event host/flight raft raft/raftpb env vfs vfs/crashfs wal snapshot object object/files transport host/pipeline host/session sim/batches host/outcome host/statemachine internal/lock internal/crcjoin|
cmd/internal/lab                vfs                                                                           | golang.org/x/sys
cmd/internal/lab/load           cmd/internal/lab wal internal/lock                                            | github.com/HdrHistogram/hdrhistogram-go golang.org/x/sys
cmd/internal/lab/archive        cmd/internal/lab vfs                                                          | github.com/HdrHistogram/hdrhistogram-go golang.org/x/perf
cmd/internal/lab/report         cmd/internal/lab cmd/internal/lab/load cmd/internal/lab/archive               | golang.org/x/term gonum.org/v1/plot
cmd/internal/lab/labtest        cmd/internal/lab cmd/internal/lab/load cmd/internal/lab/archive cmd/internal/lab/report | github.com/HdrHistogram/hdrhistogram-go github.com/google/go-cmp
cmd/internal/regression/workload host transport/tcp vfs host/outcome host/statemachine |
cmd/internal/lab/report/page    cmd/internal/lab/archive cmd/internal/lab/report                              | github.com/HdrHistogram/hdrhistogram-go gonum.org/v1/plot
cmd/internal/lab/compare        cmd/internal/lab cmd/internal/lab/archive cmd/internal/lab/report cmd/internal/lab/report/page | golang.org/x/perf
cmd/internal/service            | github.com/HdrHistogram/hdrhistogram-go go.etcd.io/etcd/client/v3 go.uber.org/zap golang.org/x/sys google.golang.org/grpc
cmd/internal/profile           |
cmd/internal/lab/bench          cmd/internal/lab cmd/internal/lab/load cmd/internal/profile cmd/internal/lab/report cmd/internal/lab/report/page . host host/pipeline transport/tcp vfs wal host/outcome host/statemachine |
cmd/internal/lab/batches        cmd/internal/lab cmd/internal/lab/report cmd/internal/lab/report/page sim sim/batches host/batches |
cmd/lab/peer                    cmd/internal/lab cmd/internal/lab/load cmd/internal/lab/report                |
cmd/internal/lab/peers          cmd/internal/lab cmd/internal/lab/load cmd/internal/lab/report cmd/lab/peer   |
cmd/internal/lab/logs/child     cmd/internal/lab cmd/internal/lab/load cmd/internal/lab/report env raft/raftpb vfs wal |
cmd/internal/lab/logs           cmd/internal/lab cmd/internal/lab/load cmd/internal/lab/report cmd/internal/lab/report/page cmd/internal/lab/logs/child vfs | golang.org/x/sys
cmd/lab/peerlog                 cmd/internal/lab/logs/child                                                   |
cmd/internal/lab/rig            cmd/internal/lab cmd/internal/lab/load cmd/internal/lab/bench env host host/pipeline host/session raft/raftpb transport transport/cert transport/loopback transport/tcp vfs vfs/crashfs wal host/outcome host/statemachine | golang.org/x/sys
cmd/internal/lab/experiment     cmd/internal/lab cmd/internal/lab/load cmd/internal/lab/archive cmd/internal/lab/report cmd/internal/lab/rig host/pipeline vfs wal | github.com/HdrHistogram/hdrhistogram-go golang.org/x/sys
cmd/internal/regression         cmd/internal/lab/archive cmd/internal/lab/report cmd/internal/lab/compare cmd/internal/lab/experiment |
cmd/lab/component               cmd/internal/lab/load cmd/internal/lab/rig cmd/internal/lab/experiment        |
cmd/lab/component/componenttest cmd/internal/lab/load cmd/internal/lab/archive cmd/internal/lab/report cmd/internal/lab/labtest cmd/internal/lab/rig cmd/internal/lab/experiment cmd/lab/component host/pipeline |
cmd/internal/lab/remote         cmd/internal/lab cmd/internal/lab/load cmd/internal/lab/archive cmd/internal/lab/rig cmd/internal/lab/experiment host host/session transport/cert host/outcome | github.com/HdrHistogram/hdrhistogram-go
cmd/internal/lab/recipe         cmd/internal/lab cmd/internal/lab/load cmd/internal/lab/archive cmd/internal/lab/report cmd/internal/lab/bench cmd/internal/lab/batches cmd/internal/lab/rig cmd/internal/lab/experiment cmd/internal/lab/remote . host host/event host/pipeline raft transport/tcp vfs wal host/outcome host/statemachine |
cmd/internal/simulate           cmd/internal/lab cmd/internal/lab/report sim sim/core sim/coverage sim/shrink | golang.org/x/term
cmd/millrace           *                                                                                      | github.com/spf13/cobra github.com/spf13/pflag golang.org/x/term golang.org/x/sys
`

// pure packages do not touch the machine: no clock, disk, network, goroutine tool or ambient random source.
var pure = []string{"raft", "raft/raftpb", "raft/quorum", "raft/tracker", "raft/confchange", "sim/batches", "host/pipeline", "host/session", "host/membership", "object"}

var ambient = []string{"time", "os", "net", "math/rand", "math/rand/v2", "crypto/rand", "sync/atomic", "log", "log/slog", "runtime"}

// spans of time are values: a pure package may have them, but no clock.
var spans = []string{"Duration", "Nanosecond", "Microsecond", "Millisecond", "Second", "Minute", "Hour"}

const module = "github.com/millrace/millrace"

func TestImportsPointDown(t *testing.T) {
	inRoot(t)
	allowed, order := parseLayers(t)
	for dir, files := range goFiles(t) {
		may, known := allowed[dir]
		if !known {
			t.Errorf("package %s has no line in the table of layers", dir)
			continue
		}
		for _, file := range files {
			for _, imported := range importsOf(t, file) {
				own, isOwn := ownPackage(imported)
				switch {
				case isOwn && (may.own["*"] || may.own[path.Dir(own)+"/*"]):
				case isOwn && !may.own[own]:
					t.Errorf("%s imports %s, which its layer does not allow", file, own)
				case isOwn && order[own] > order[dir]:
					t.Errorf("%s imports %s, which lies above it", file, own)
				case !isOwn && strings.Contains(strings.Split(imported, "/")[0], ".") && !may.allowsModule(imported):
					t.Errorf("%s imports %s, a module that its line in the table of layers does not name", file, imported)
				case imported == "time" && onlySpans(t, file):
				case slices.Contains(pure, dir) && slices.Contains(ambient, imported):
					t.Errorf("%s imports %q, but %s is pure: it takes clock, disk and chance as arguments", file, imported, dir)
				}
			}
		}
	}
}

// maxLabPackages bounds the rooms of the lab: a reader keeps so many in mind.
const maxLabPackages = 16

// The lab has few rooms: what is measured in a new way is a recipe, not a package.
func TestTheLabHasFewPackages(t *testing.T) {
	inRoot(t)
	var rooms []string
	for dir := range goFiles(t) {
		if dir == "cmd/internal/lab" || strings.HasPrefix(dir, "cmd/internal/lab/") {
			rooms = append(rooms, dir)
		}
	}
	slices.Sort(rooms)
	t.Logf("%d packages: %q", len(rooms), rooms)
	if len(rooms) > maxLabPackages || len(rooms) == 0 {
		t.Errorf("the lab has %d packages, want at most %d: %q", len(rooms), maxLabPackages, rooms)
	}
}

// onlySpans reports whether a file uses only spans of package time.
func onlySpans(t *testing.T, file string) bool {
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	only := true
	ast.Inspect(f, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok && x.Name == "time" && !slices.Contains(spans, s.Sel.Name) {
				only = false
			}
		}
		return true
	})
	return only
}

// TestArchitectureNamesEveryPackage keeps the map complete.
func TestArchitectureNamesEveryPackage(t *testing.T) {
	inRoot(t)
	text, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	for dir := range goFiles(t) {
		if dir != "." && !strings.Contains(string(text), "`"+dir+"`") {
			t.Errorf("ARCHITECTURE.md does not name package `%s`", dir)
		}
	}
}

// TestMapNamesPackages: the map of ARCHITECTURE.md names no package that is gone.
func TestMapNamesPackages(t *testing.T) {
	inRoot(t)
	text, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "\n## The map\n")
	table, _, _ = strings.Cut(table, "\n## ")
	packages, named := goFiles(t), 0
	for _, row := range regexp.MustCompile("(?m)^\\|[^|]*\\| (`[^|]*) \\|").FindAllStringSubmatch(table, -1) {
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[1], -1) {
			named++
			if dir := m[1]; packages[dir] == nil && dir != "millrace" {
				t.Errorf("ARCHITECTURE.md has a row for package `%s`, and there is none", dir)
			}
		}
	}
	if named < 50 {
		t.Errorf("the map names %d packages; it has more", named)
	}
}

// TestArchitectureNamesTheFilesOfTheWay: every file that ARCHITECTURE.md names exists.
func TestArchitectureNamesTheFilesOfTheWay(t *testing.T) {
	inRoot(t)
	text, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for _, word := range strings.FieldsFunc(string(text), func(r rune) bool { return strings.ContainsRune(" \t\n`(),;:│", r) }) {
		if strings.HasSuffix(word, ".go") && !strings.Contains(word, "*") {
			named++
			if _, err := os.Stat(word); err != nil {
				t.Errorf("ARCHITECTURE.md names %s: %v", word, err)
			}
		}
	}
	if named < 10 {
		t.Errorf("ARCHITECTURE.md names %d files; the way of a proposal has more", named)
	}
}

// TestDocumentsNameWhatIsThere: the tables that lead from the thesis and from other libraries to the code
// name files and tests that exist.
func TestDocumentsNameWhatIsThere(t *testing.T) {
	inRoot(t)
	tests := testNames(t)
	for _, document := range []string{"docs/traceability.md", "docs/divergence.md"} {
		text, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		named := 0
		for _, m := range regexp.MustCompile("`([^` *]+)`").FindAllStringSubmatch(string(text), -1) {
			switch name := m[1]; {
			case strings.HasSuffix(name, ".txt") || strings.HasSuffix(name, ".go"):
				if _, err := os.Stat(name); err != nil {
					t.Errorf("%s names %s: %v", document, name, err)
				}
				named++
			case regexp.MustCompile(`^(Test|Fuzz|Benchmark)[A-Z]`).MatchString(name):
				if !tests[name] {
					t.Errorf("%s names %s, and no such test exists", document, name)
				}
				named++
			}
		}
		if named < 10 {
			t.Errorf("%s names %d files and tests; it has more", document, named)
		}
	}
}

// testNames are the tests of every module in the repository.
func testNames(t *testing.T) map[string]bool {
	names := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`)
	err := filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(file, "_test.go") {
			return err
		}
		text, err := os.ReadFile(file)
		for _, m := range declared.FindAllStringSubmatch(string(text), -1) {
			names[m[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

type layer struct {
	own     map[string]bool
	modules []string
}

func (l layer) allowsModule(imported string) bool {
	return slices.ContainsFunc(l.modules, func(m string) bool { return imported == m || strings.HasPrefix(imported, m+"/") })
}

func parseLayers(t *testing.T) (map[string]layer, map[string]int) {
	allowed, order := map[string]layer{}, map[string]int{}
	for line := range strings.Lines(strings.TrimSpace(layers)) {
		own, modules, ok := strings.Cut(line, "|")
		fields := strings.Fields(own)
		if !ok || len(fields) == 0 {
			t.Fatalf("bad line in the table of layers: %q", line)
		}
		l := layer{own: map[string]bool{}, modules: strings.Fields(modules)}
		for _, f := range fields[1:] {
			l.own[f] = true
		}
		allowed[fields[0]], order[fields[0]] = l, len(order)
	}
	return allowed, order
}

func ownPackage(imported string) (string, bool) {
	if imported == module {
		return ".", true
	}
	return strings.CutPrefix(imported, module+"/")
}

// modules are the modules that the table of layers covers. Others, and modules nested in them, are left out.
var modules = []string{".", "cmd", "ops"}

// goFiles returns the files of each package, without tests.
func goFiles(t *testing.T) map[string][]string {
	found := map[string][]string{}
	err := filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && file != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || isModule(file) && !slices.Contains(modules, file)):
			return fs.SkipDir
		case strings.HasSuffix(file, ".go") && !strings.HasSuffix(file, "_test.go"):
			dir := path.Dir(filepath.ToSlash(file))
			found[dir] = append(found[dir], file)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func isModule(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}

func importsOf(t *testing.T, file string) []string {
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, spec := range f.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, p)
	}
	return paths
}
