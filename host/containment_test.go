package host

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/host/internal/storage"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/raft/raftpb"
)

// A turn that follows nil stops its group, and no other one: the clients are answered, the log has the stack,
// and the group can be opened again.
func TestPanicOfATurnStopsTheGroup(t *testing.T) {
	var text strings.Builder
	l := openTestHost(t, 3, WithLogger(slog.New(slog.NewTextHandler(&text, nil))))
	other := l.open(theGroup+1, &commands{})
	l.lead()
	p := l.submit("x")
	l.manual.runIdle()
	l.group.core.node.RawNode = nil
	l.deliver(raftpb.Message{Type: raftpb.MsgHeartbeatResp, Term: 1})

	var panicked *panicked
	if err := l.group.Err(); !errors.As(err, &panicked) || !strings.Contains(err.Error(), "nil pointer") {
		t.Fatalf("the group: %v", err)
	}
	if !strings.Contains(string(panicked.stack), "raft.(*RawNode).") {
		t.Errorf("the stack does not say where: %s", panicked.stack)
	}
	if _, err := poll(t, p); !errors.Is(err, outcome.ErrIndeterminate) {
		t.Errorf("the client: %v", err)
	}
	if !strings.Contains(text.String(), "stack=") {
		t.Errorf("the log has no stack: %s", text.String())
	}
	if err := other.Err(); err != nil {
		t.Errorf("another group: %v", err)
	}
	l.leadGroup(other)
}

// A duty is a part of its turn: a panic in it stops its group, and not the host.
func TestPanicOfADutyStopsTheGroup(t *testing.T) {
	l := openTestHost(t, 3)
	l.env.env.Duties.Called = func(string) { panic("a bug") }
	l.deliver(raftpb.Message{Type: raftpb.MsgHeartbeat, Term: 1})
	if err := l.group.Err(); err == nil || !strings.Contains(err.Error(), "a bug") {
		t.Errorf("the group: %v", err)
	}
}

// A panic in the middle of what groups share goes on, and ends the process.
func TestPanicUnderALockGoesOn(t *testing.T) {
	l := openTestHostWith(t, 3, func(c *Config) { c.LogCacheBytes = -1 })
	l.lead()
	l.storage.readers = storage.StartReaders(l.others(), func(string, env.Worker) env.Task { return nil }, nil)
	l.group.writes.storage.Begin((*storageGroup)(l.group), l.storage.readers)
	defer func() {
		if p := fmt.Sprint(recover()); !strings.Contains(p, "host/internal/storage.(*Readers).ask may have left what groups share half-done") {
			t.Errorf("the turn: %v", p)
		}
	}()
	l.addStranger()
	t.Error("nothing was read")
}

// The lists of what takes a lock are complete, and name nothing else.
func TestLockersAreListed(t *testing.T) {
	files := token.NewFileSet()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	parts, err := filepath.Glob("internal/*/*.go")
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
				t.Errorf("%s takes a lock, and containment.go does not list it", name)
			}
		}
	}
	for _, list := range []map[string]bool{lockers, lockingFunctions} {
		for name := range list {
			if !found[name] {
				t.Errorf("containment.go lists %s, which takes no lock", name)
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
		"github.com/millrace/millrace/raft.(*raft).sendAppend":                   true,
		"github.com/millrace/millrace/raft/tracker.(*Progress).MaybeUpdate":      true,
		"github.com/millrace/millrace/host.(*Group).commitMembers":               true,
		"github.com/millrace/millrace/host.(*Group).stepInputs.func1":            true,
		"github.com/millrace/millrace/host.(*Group).setRoster":                   false,
		"github.com/millrace/millrace/host.(*Group).setRefuses.func1":            false,
		"github.com/millrace/millrace/host.(*steps).Apply":                       false,
		"github.com/millrace/millrace/host/internal/storage.(*Storage).Term":     true,
		"github.com/millrace/millrace/host.(*backlog[...]).take":                 false,
		"github.com/millrace/millrace/host.(*ring[...]).pop":                     true,
		"github.com/millrace/millrace/host/internal/pulse.(*Sender).Set":         false,
		"github.com/millrace/millrace/host/internal/pulse.DecodeRecord":          true,
		"github.com/millrace/millrace/host/internal/identity.Enter":              false,
		"github.com/millrace/millrace/host/internal/turn.(*Table[...]).Step":     true,
		"github.com/millrace/millrace/host.dueIn":                                true,
		"github.com/millrace/millrace/host.location.addr":                        true,
		"github.com/millrace/millrace/host/flight.(*Node).Step":                  true,
		"github.com/millrace/millrace/host/flight.(*Recorder).begin":             false,
		"github.com/millrace/millrace/host/session.(*Table).Apply":               false,
		"github.com/millrace/millrace/wal.(*Group).Term":                         false,
		"example.com/machine.(*Bank).Apply":                                      false,
		"main.(*bank).Apply":                                                     false,
		"slices.IndexFunc[...]":                                                  true,
		"runtime.sigpanic":                                                       true,
		"log/slog.(*Logger).Warn":                                                true,
		"github.com/millrace/millrace/host.(*Group).fail.(*logWriter).Handle-fm": true,
	} {
		if is := isContained(function); is != want {
			t.Errorf("%s: contained %t", function, is)
		}
	}
}
