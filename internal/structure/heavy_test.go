package structure

import (
	"os/exec"
	"strings"
	"testing"
)

// heavy packages of the standard library must not be in every program that uses Millrace: each adds
// megabytes, and expvar registers a handler with the default mux.
var heavy = []string{"net/http", "expvar", "net/rpc", "net/http/pprof", "html/template", "text/template"}

// TestLibraryIsLight: no package of the root module imports one of them, itself or through another package.
func TestLibraryIsLight(t *testing.T) {
	inRoot(t)
	out, err := exec.Command("go", "list", "-deps", "-f", "{{.ImportPath}}: {{join .Imports \" \"}}", "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	packages := 0
	for line := range strings.Lines(string(out)) {
		dir, imports, _ := strings.Cut(strings.TrimSpace(line), ": ")
		packages++
		for _, imported := range strings.Fields(imports) {
			for _, h := range heavy {
				if imported == h {
					t.Errorf("%s imports %s, which would be in the program of every user; let the program import it, or package ops", dir, h)
				}
			}
		}
	}
	if packages < 50 {
		t.Errorf("only %d packages were looked at", packages)
	}
}
