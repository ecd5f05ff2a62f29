package millrace_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/host"
)

// hostOnly are settings that only host.Config has, so only its users read about them.
var hostOnly = []string{"Durability", "MaxGroups", "LogCacheBytes"}

var setting = regexp.MustCompile(`(host\.)?\b(Config|GroupConfig|Group|Host)\.([A-Z]\w*)`)

// Errors, log lines and sentences of Explain come from package host, and users of this package read them. So
// they name only what both packages have under the same name: a setting as Config.X, a method or a setting of
// a group without its receiver, and the rest with its package.
func TestSentencesOfHostNameWhatThisPackageHas(t *testing.T) {
	config, h := reflect.TypeFor[millrace.Config](), reflect.TypeFor[*host.Host]()
	found := 0
	for _, dir := range []string{"host", "host/membership", "host/session"} {
		files, err := filepath.Glob(dir + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, name, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(file, func(n ast.Node) bool {
				text, ok := n.(*ast.BasicLit)
				if !ok || text.Kind != token.STRING {
					return true
				}
				for _, m := range setting.FindAllStringSubmatch(text.Value, -1) {
					found++
					has := m[1] != "" // with its package
					switch m[2] {
					case "Config":
						_, is := config.FieldByName(m[3])
						has = has || is || strings.Contains(strings.Join(hostOnly, " "), m[3])
					case "Host": // Node.Host returns one
						_, is := h.MethodByName(m[3])
						has = is
					}
					if !has {
						t.Errorf("%v names %s, which a user of package millrace does not have", set.Position(text.Pos()), m[0])
					}
				}
				return true
			})
		}
	}
	if found < 50 {
		t.Errorf("only %d names were found: the test does not see the sentences any more", found)
	}
}
