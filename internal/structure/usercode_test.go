package structure

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// userCode says of each place where a package takes a function of its user what a panic in it costs: "row"
// and the name of a row of a test that breaks it, "test" and a test, "part" for what replaces a part of the
// host, whose panic ends the process as ours does, "caller" for what runs in the goroutine of the call and
// leaves nothing behind, or "ours" for what users call and do not make. A type stands for all of its methods.
var userCode = map[string]string{
	"millrace.Codec.Append":                  "row Append", // and of Machine.Results: row AppendResult
	"millrace.Codec.Decode":                  "row Decode", // and row DecodeResult
	"millrace.SizedCodec.LeastBytes":         "row LeastBytes",
	"millrace.SureCodec.Sure":                "row Sure",
	"millrace.CopyingCodec.DecodeCopies":     "test TestABorrowerThatPanics",
	"millrace.StateMachine.Apply":            "row Apply",
	"millrace.StateMachine.Snapshot":         "row Snapshot",
	"millrace.StateMachine.Restore":          "row Restore",
	"millrace.DurableStateMachine.Applied":   "row Applied",
	"millrace.DurableStateMachine.Sync":      "row Sync",
	"millrace.ObjectUser.UseObjects":         "row UseObjects",
	"millrace.Machine.Digest(f)":             "row Digest",
	"millrace.Timers":                        "test TestTimersThatPanic",
	"millrace.Config.Resolve":                "test TestResolve",
	"millrace.Node.View(f)":                  "row View",
	"millrace.Node.ViewExclusive(f)":         "row ViewExclusive",
	"millrace.Node.Export(w)":                "row Write",
	"millrace.Node.Upload(r)":                "row Read",
	"millrace.NewSink(f)":                    "test TestSinkThatPanics",
	"host.NewSink(f)":                        "test TestSinkThatPanics", // the same queue
	"millrace.Node.Led()":                    "row loop over Led",
	"millrace.Node.Subscribe()":              "test TestSubscriberThatPanics",
	"millrace.Node.Events()":                 "row loop over Events",
	"millrace.Node.Log()":                    "row loop over Log",
	"millrace.Config.OnEvent":                "row event",
	"millrace.WithTransport(t)":              "part",
	"millrace.Option":                        "ours", // only this package can make one
	"host.Option":                            "ours",
	"statemachine.Machine.Apply":             "test TestGoexitInApply",
	"statemachine.CommandMachine.Apply":      "row Apply",
	"statemachine.Deliverer.Deliver":         "test TestBrokenDeliver",
	"statemachine.Borrower.BorrowsData":      "test TestABorrowerThatPanics",
	"statemachine.NamesCallee.Callee":        "test TestUserFunctionsOfHosts",
	"statemachine.MembersObserver":           "row MembersChanged",
	"outcome.Caller.Committed":               "row Committed",
	"outcome.Caller.Failed":                  "row Failed",
	"outcome.Caller.Duplicate":               "row Duplicate",
	"statemachine.CommandOptions.Digest":     "row Digest",
	"statemachine.CommandOptions.Applied":    "row Applied",
	"host.ObjectUser.UseObjects":             "row UseObjects",
	"statemachine.Snapshotter.Snapshot":      "row Snapshot",
	"statemachine.Snapshotter.Restore":       "row Restore",
	"statemachine.Snapshot.WriteTo":          "row WriteTo",
	"statemachine.Snapshot.Close":            "row Close",
	"statemachine.FileSnapshot.Files":        "row Files",
	"statemachine.FileRestorer.RestoreFiles": "row RestoreFiles",
	"host.UploadOptions.Progress":            "row Progress",
	"host.TLS.Source":                        "test TestUserFunctionsOfTLS",
	"host.TLS.Now":                           "test TestUserFunctionsOfTLS",
	"host.Config.Resolve":                    "test TestResolve",
	"host.Group.StartBetween(f)":             "row ViewExclusive",
	"host.Group.Export(w)":                   "row Write",
	"host.Group.Upload(r)":                   "test TestUploadOfABrokenReader",
	"host.Group.Entries()":                   "row loop over Log",
	"host.Host.Events()":                     "row loop over Events",
	"host.WithEvents(f)":                     "row event",
	"host.WithLogger(l)":                     "row Handle",
	"host.Log":                               "part",
	"host.GroupLog":                          "part",
	"host.Flush":                             "part",
	"host.Transport":                         "part",
	"host.WithLog(open)":                     "part",
	"host.WithTransport(t)":                  "part",
	"host.WithFS(fs)":                        "part",
	"host.WithEnv(v)":                        "part",
	"host.WithPipeline(p)":                   "part",
	"host.WithBatches(k)":                    "ours",
	"host.LogConfig.Events":                  "ours",
	"statemachine.SnapshotFiles":             "ours",
	"host.Host.WriteFlight(w)":               "caller",
	"rescue.Restore(archives)":               "caller",
	"rescue.Options.OpenLog":                 "part",
	"tcp.Options.Resolve":                    "test TestResolve",
	"tcp.TLS.Credentials":                    "test TestUserFunctionsOfTLS",
	"tcp.TLS.Now":                            "test TestUserFunctionsOfTLS",
	"tcp.TLS.Events":                         "test TestUserFunctionsOfTLS",
}

// Every place of the packages that a user's program calls is in userCode: each function in an exported field,
// each method of an exported interface, each function, reader, writer or interface that is handed to an
// exported function, and each sequence that one returns. The rows and tests that it names exist.
func TestUserFunctionsHaveRows(t *testing.T) {
	inRoot(t)
	found := map[string]bool{}
	for _, dir := range []string{".", "host", "host/outcome", "host/statemachine", "host/rescue", "transport/tcp"} {
		for _, f := range parsePackage(t, dir) {
			for _, d := range f.Decls {
				for _, place := range placesOfUsers(f.Name.Name, d) {
					if of := place[:strings.LastIndex(place, ".")]; userCode[of] != "" {
						place = of
					}
					found[place] = true
				}
			}
		}
	}
	for _, place := range slices.Sorted(maps.Keys(found)) {
		if userCode[place] == "" {
			t.Errorf("%s takes a function of the user, and userCode does not say what a panic in it costs", place)
		}
	}
	tests := ""
	for _, file := range []string{"usercode_test.go", "host/usercode_test.go", "host/goexit_test.go", "host/objectattack_test.go", "transport/tcp/tcp_test.go", "transport/tcp/trust_test.go"} {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		tests += string(b)
	}
	for place, says := range userCode {
		kind, name, _ := strings.Cut(says, " ")
		switch {
		case !found[place]:
			t.Errorf("userCode has %s, which takes no function of the user", place)
		case kind == "test" && !strings.Contains(tests, "func "+name+"("):
			t.Errorf("%s: there is no test %s beside the others of users' functions", place, name)
		case kind == "row" && !regexp.MustCompile(`\{(name: )?"`+name+`",`).MatchString(tests):
			t.Errorf("%s: no test has the row %q", place, name)
		case kind != "test" && kind != "row" && kind != "part" && kind != "caller" && kind != "ours":
			t.Errorf("%s: %q", place, says)
		}
	}
}

func parsePackage(t *testing.T, dir string) (files []*ast.File) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	return files
}

// placesOfUsers returns where a declaration takes functions of a user.
func placesOfUsers(pkg string, d ast.Decl) (places []string) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		name := pkg + "." + d.Name.Name
		if d.Recv != nil {
			of := ast.Unparen(d.Recv.List[0].Type)
			if p, is := of.(*ast.StarExpr); is {
				of = p.X
			}
			switch generic := of.(type) {
			case *ast.IndexExpr:
				of = generic.X
			case *ast.IndexListExpr:
				of = generic.X
			}
			receiver := of.(*ast.Ident)
			if !receiver.IsExported() {
				return nil
			}
			name = pkg + "." + receiver.Name + "." + d.Name.Name
		}
		if !d.Name.IsExported() {
			return nil
		}
		for _, p := range d.Type.Params.List {
			for _, n := range p.Names {
				if isOfUser(p.Type) && n.Name != "_" {
					places = append(places, name+"("+n.Name+")")
				}
			}
		}
		for _, r := range listOf(d.Type.Results) {
			if isSequence(r.Type) {
				places = append(places, name+"()")
			}
		}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			if s, is := s.(*ast.TypeSpec); is && s.Name.IsExported() {
				places = append(places, placesOfType(pkg+"."+s.Name.Name, s.Type)...)
			}
		}
	}
	return places
}

func placesOfType(name string, of ast.Expr) (places []string) {
	switch of := of.(type) {
	case *ast.FuncType:
		places = append(places, name)
	case *ast.StructType:
		for _, f := range of.Fields.List {
			for _, n := range f.Names {
				if _, is := f.Type.(*ast.FuncType); is && n.IsExported() {
					places = append(places, name+"."+n.Name)
				}
			}
		}
	case *ast.InterfaceType:
		for _, m := range of.Methods.List {
			for _, n := range m.Names {
				if n.IsExported() {
					places = append(places, name+"."+n.Name)
				}
			}
		}
	}
	return places
}

func listOf(l *ast.FieldList) []*ast.Field {
	if l == nil {
		return nil
	}
	return l.List
}

// isOfUser reports whether the value of a parameter brings functions of the user.
func isOfUser(t ast.Expr) bool {
	switch t := t.(type) {
	case *ast.FuncType:
		return true
	case *ast.ArrayType:
		return isOfUser(t.Elt)
	case *ast.StarExpr:
		s, is := t.X.(*ast.SelectorExpr)
		return is && s.X.(*ast.Ident).Name == "slog"
	case *ast.SelectorExpr:
		pkg := t.X.(*ast.Ident).Name
		return pkg == "io" || pkg == "slog" || pkg == "host" && t.Sel.Name == "Transport" || pkg == "vfs" || pkg == "pipeline" || pkg == "batches" || pkg == "env"
	case *ast.Ident:
		return t.Name == "Transport"
	}
	return false
}

// isSequence reports whether a result is an iter.Seq, which calls the body of the user's loop.
func isSequence(t ast.Expr) bool {
	switch generic := t.(type) {
	case *ast.IndexExpr:
		t = generic.X
	case *ast.IndexListExpr:
		t = generic.X
	}
	s, is := t.(*ast.SelectorExpr)
	return is && s.X.(*ast.Ident).Name == "iter"
}
