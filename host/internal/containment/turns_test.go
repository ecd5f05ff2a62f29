package containment

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The lists of what takes a lock are complete, and name nothing else.
func TestLockersAreListed(t *testing.T) {
	files := token.NewFileSet()
	names, err := filepath.Glob("../../*.go")
	if err != nil {
		t.Fatal(err)
	}
	parts, err := filepath.Glob("../*/*.go")
	if err != nil || len(parts) == 0 {
		t.Fatal("no parts", err)
	}
	names = append(names, parts...)
	found := map[string]bool{}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(files, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			function, is := d.(*ast.FuncDecl)
			if !is || function.Body == nil || !takesLock(function.Body) {
				continue
			}
			part := ""
			if f.Name.Name != "host" {
				part = f.Name.Name + "."
			}
			receiver := receiverType(function)
			name := part + strings.TrimPrefix(receiver+"."+function.Name.Name, ".")
			receiver = part + receiver
			if found[receiver], found[name] = true, true; !lockers[receiver] && !lockingFunctions[name] {
				t.Errorf("%s takes a lock, and turns.go does not list it", name)
			}
		}
	}
	for _, list := range []map[string]bool{lockers, lockingFunctions} {
		for name := range list {
			if !found[name] {
				t.Errorf("turns.go lists %s, which takes no lock", name)
			}
		}
	}
}

func takesLock(body *ast.BlockStmt) (takes bool) {
	ast.Inspect(body, func(n ast.Node) bool {
		if call, is := n.(*ast.CallExpr); is {
			if s, is := call.Fun.(*ast.SelectorExpr); is && slices.Contains([]string{"Lock", "RLock", "TryLock", "lock"}, s.Sel.Name) {
				takes = true
			}
		}
		return true
	})
	return takes
}

func receiverType(function *ast.FuncDecl) string {
	if function.Recv == nil {
		return ""
	}
	of := function.Recv.List[0].Type
	if pointer, is := of.(*ast.StarExpr); is {
		of = pointer.X
	}
	if generic, is := of.(*ast.IndexExpr); is {
		of = generic.X
	}
	return of.(*ast.Ident).Name
}

func TestContained(t *testing.T) {
	for function, want := range map[string]bool{
		"github.com/millrace/millrace/raft.(*raft).sendAppend":                          true,
		"github.com/millrace/millrace/raft/tracker.(*Progress).MaybeUpdate":             true,
		"github.com/millrace/millrace/host.(*Group).commitMembers":                      true,
		"github.com/millrace/millrace/host/internal/members.(*Commits).Commit":          true,
		"github.com/millrace/millrace/host.(*Group).stepInputs.func1":                   true,
		"github.com/millrace/millrace/host/internal/members.(*Rosters).Set":             false,
		"github.com/millrace/millrace/host/internal/members.(*Group).SetExcluded.func1": false,
		"github.com/millrace/millrace/host/internal/apply.(*Queue).ApplyAll":            false,
		"github.com/millrace/millrace/host/internal/storage.(*Storage).Term":            true,
		"github.com/millrace/millrace/host/internal/reports.(*backlog[...]).take":       false,
		"github.com/millrace/millrace/host.(*ring[...]).pop":                            true,
		"github.com/millrace/millrace/host/internal/pulse.(*Sender).Set":                false,
		"github.com/millrace/millrace/host/internal/pulse.DecodeRecord":                 true,
		"github.com/millrace/millrace/host/internal/identity.Enter":                     false,
		"github.com/millrace/millrace/host/internal/turn.(*Table[...]).Step":            true,
		"github.com/millrace/millrace/host.dueIn":                                       true,
		"github.com/millrace/millrace/host.location.addr":                               true,
		"github.com/millrace/millrace/host/flight.(*Node).Step":                         true,
		"github.com/millrace/millrace/host/flight.(*Recorder).begin":                    false,
		"github.com/millrace/millrace/host/session.(*Table).Apply":                      false,
		"github.com/millrace/millrace/wal.(*Group).Term":                                false,
		"example.com/machine.(*Bank).Apply":                                             false,
		"main.(*bank).Apply":                                                            false,
		"slices.IndexFunc[...]":                                                         true,
		"runtime.sigpanic":                                                              true,
		"log/slog.(*Logger).Warn":                                                       true,
		"github.com/millrace/millrace/host.(*Group).fail.(*Writer).Handle-fm":           true,
	} {
		if is := isContained(function); is != want {
			t.Errorf("%s: contained %t", function, is)
		}
	}
}
