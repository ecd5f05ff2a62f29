package structure

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var clusterField = regexp.MustCompile("(?m)^\\s*(\\w*Cluster|Former)\\s+uint64\\s+`json:\"([^\"]*)\"`")

// numberedFormats are files on disks and lines of sockets, which stay as they are.
var numberedFormats = map[string]string{
	"host/internal/identity/identity.go": "the identity of a host",
	"host/internal/identity/join.go":     "the lives before a rescue",
	"host/rescue/directory.go":           "what a rescue keeps",
	"host/rescue/restoration.go":         "the note of a restore under way",
	"host/flight/file.go":                "the beginning of a recording",
	"host/admin/protocol.go":             "the admin socket",
	"host/admin/members.go":              "the admin socket; millrace members list has a form of its own",
}

// The number of a cluster uses all 64 bits, and most readers of JSON round numbers beyond 2^53. So what is
// printed has it as a string.
func TestClustersAreStringsInJSON(t *testing.T) {
	asText, numbers := 0, map[string]bool{}
	for _, dir := range []string{"../../host", "../../host/rescue", "../../host/internal/identity", "../../host/admin", "../../host/flight", "../../snapshot", "../../wal/inspect", "../../cmd/millrace", "../../examples/kv/server"} {
		files, err := filepath.Glob(dir + "/*.go")
		if err != nil || len(files) == 0 {
			t.Fatal(dir, err)
		}
		for _, file := range files {
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			name := filepath.ToSlash(strings.TrimPrefix(file, "../../"))
			for _, m := range clusterField.FindAllStringSubmatch(string(source), -1) {
				switch {
				case strings.HasSuffix(m[2], ",string"):
					asText++
				case numberedFormats[name] == "":
					t.Errorf("%s: %s is a number in JSON; add the option string to its tag", name, m[1])
				default:
					numbers[name] = true
				}
			}
		}
	}
	if asText < 6 {
		t.Errorf("%d clusters that are strings were found", asText)
	}
	for name := range numberedFormats {
		if !numbers[name] {
			t.Errorf("%s has no number of a cluster any more", name)
		}
	}
}
