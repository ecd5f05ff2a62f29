package structure

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// The locks of the runtime and of its log are those of package internal/lock, so that tests can count them.
func TestLocksCanBeCounted(t *testing.T) {
	inRoot(t)
	files := 0
	for _, pattern := range []string{"host/*.go", "host/flight/*.go", "host/internal/*/*.go", "wal/*.go"} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			files++
			set := token.NewFileSet()
			f, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(f, func(n ast.Node) bool {
				s, is := n.(*ast.SelectorExpr)
				if !is || s.Sel.Name != "Mutex" && s.Sel.Name != "RWMutex" {
					return true
				}
				if of, is := s.X.(*ast.Ident); is && of.Name == "sync" {
					t.Errorf("%v: sync.%s is not counted: use that of internal/lock", set.Position(s.Pos()), s.Sel.Name)
				}
				return true
			})
		}
	}
	if files < 200 {
		t.Errorf("only %d files were looked at", files)
	}
}
