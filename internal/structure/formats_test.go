package structure

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

// format is a form of bytes that one program writes and another one reads, of another version perhaps.
type format struct {
	name string
	file string
	// written and oldest find the versions in the file: what is written, and the oldest that is read. Without
	// oldest only what is written is read. The first group of an expression is the number.
	written, oldest string
	newer           string // what a program does with a newer one
	kept            string // the test that has the bytes of each version, or the form, for good
}

var formats = []format{
	{"frames between hosts", "transport/tcp/hello.go", `spoken = versionRange\{\d+, (\d+)\}`, `spoken = versionRange\{(\d+),`, "refuses the connection", "`TestVersionNegotiation`, `TestReleasedFrames`"},
	{"records and segments of the log", "wal/record/format.go", `FormatVersion = (\d+)`, `FirstVersion  = (\d+)`, "refuses the directory", "`wal/testdata/golden`"},
	{"fence of the log (`FENCE`)", "wal/fencefile.go", `fenceVersion  = (\d+)`, `version < (\d+) \|\| version > fenceVersion`, "refuses the directory", "`wal/testdata/golden`"},
	{"identity of a directory", "host/internal/identity/identity.go", `Version = (\d+)`, "", "refuses the directory", "`TestLaterFiles`"},
	{"admitted directories (`peers.json`)", "host/internal/identity/admission.go", `peersFileVersion = (\d+)`, "", "refuses the directory", "`TestLaterFiles`"},
	{"lives of a directory (`lives.json`)", "host/internal/identity/lives.go", `livesVersion = (\d+)`, "", "refuses the directory", "`TestLaterFiles`"},
	{"a group that was joined (`joined.json`)", "host/internal/identity/join.go", `JoinedVersion = (\d+)`, "", "refuses the group", "`TestLaterFiles`"},
	{"a halted machine (`machine.json`)", "host/internal/apply/note.go", `noteVersion = (\d+)`, "", "refuses the group", "`TestLaterFiles`"},
	{"manifest of a snapshot", "snapshot/codec.go", `manifestVersion = (\d+)`, "", "refuses the snapshot", "`snapshot/testdata/golden`"},
	{"what the host has in a snapshot", "host/internal/entry/block.go", `upgradedVersion     = (\d+)`, `BlockVersion        = (\d+)`, "refuses the snapshot", "`TestHostBlockGolden`"},
	{"sessions in a snapshot", "host/session/form.go", `positionFormVersion = (\d+)`, `formVersion         = (\d+)`, "refuses the snapshot", ""},
	{"archive of a snapshot (backup)", "snapshot/archive.go", `archiveVersion   = (\d+)`, "", "refuses the archive", "`snapshot/testdata/golden`"},
	{"header of a command", "host/session/header.go", `headerVersion = (\d+)`, "", "halts the machine", ""},
	{"kinds of the host's entries", "host/internal/entry/version.go", `VersionKind byte = (\d+)`, "", "refuses the group", "`TestLaterEntries`"},
	{"changes of members", "host/membership/codec.go", `const version = (\d+)`, "", "refuses the entry", ""},
	{"entries about large objects", "object/entries.go", `entryVersion = (\d+)`, "", "refuses the entry", ""},
	{"files of the flight recorder", "host/flight/file.go", `"millrace flight\\x0(\d)"`, "", "refuses the file", ""},
	{"results of the lab", "cmd/internal/lab/archive/archive.go", `Schema = "millrace-lab/(\d+)"`, "", "refuses the file", ""},
}

// The table of formats in docs/operate/upgrade.md is what the code says.
func TestFormatsAreDocumented(t *testing.T) {
	inRoot(t)
	const page = "docs/operate/upgrade.md"
	doc, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range formats {
		source, err := os.ReadFile(f.file)
		if err != nil {
			t.Fatal(err)
		}
		number := func(expression string) string {
			found := regexp.MustCompile(expression).FindStringSubmatch(string(source))
			if found == nil {
				t.Errorf("%s: nothing matches %s, which finds the version of %s", f.file, expression, f.name)
				return "?"
			}
			return found[1]
		}
		written := number(f.written)
		read := written
		if f.oldest != "" {
			if oldest := number(f.oldest); oldest != written {
				read = oldest + " to " + written
			}
		}
		if f.kept == "" {
			f.kept = "–"
		}
		row := fmt.Sprintf("| %s | `%s` | %s | %s | %s | %s |\n", f.name, f.file, written, read, f.newer, f.kept)
		if !strings.Contains(string(doc), row) {
			t.Errorf("%s lacks this row:\n%s", page, row)
		}
	}
}
