package planted_test

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// bug is one bug on purpose.
type bug struct {
	name string
	what string // what it does, in a sentence that a table can hold

	// The judge that is known to find it. found is a test, or empty if no test finds the bug: then same says why
	// none can.
	found string
	in    string // the folder of that test's package, if it is not "wal"
	args  string // flags of the test: the seeds in which it finds the bug
	says  string // what the failure must say, if the test may fail for another reason

	also  []judge // more judges that find it
	rare  bool    // a judge takes more than half a minute: a short run does not draw the bug
	same  string  // why the program behaves the same with the edit as without, or nearly
	edits []edit
}

// bugs are all bugs.
var bugs = slices.Concat(electionBugs, replicationBugs, memberBugs, readBugs, coreBugs,
	runtimeBugs, turnBugs, dutyBugs, outcomeBugs, takeBugs, hostileBugs, reviewedBugs, largeObjectBugs, transportBugs, blockBugs,
	walBugs, snapshotBugs, objectBugs, poisonBugs, versionBugs, observingBugs, pathBugs, divergenceBugs, publicationBugs,
	verdictBugs, timerBugs, serverBugs, serviceBugs)

// judge is a test that is to find a bug.
type judge struct{ in, test, args, says string }

func (b *bug) judge() judge {
	return judge{cmp.Or(b.in, "wal"), b.found, b.args, b.says}
}

// judges returns all judges of a bug, the first one first.
func (b *bug) judges() []judge { return append([]judge{b.judge()}, b.also...) }

// edit replaces old, which occurs once in the file, by new.
type edit struct {
	file     string // from the root of the repository
	old, new string
}

// root is the root of the repository.
const root = "../.."

// source returns a file of the repository.
func source(file string) (string, error) {
	data, err := os.ReadFile(filepath.Join(root, file))
	return string(data), err
}

// apply returns the file with the edit, or why it does not apply.
func (e edit) apply(text string) (string, error) {
	switch n := strings.Count(text, e.old); {
	case n != 1:
		return "", fmt.Errorf("%s has the text %d times, want once: %q", e.file, n, e.old)
	case e.old == e.new:
		return "", fmt.Errorf("%s: the edit changes nothing", e.file)
	}
	return strings.Replace(text, e.old, e.new, 1), nil
}

// files returns the files that b edits.
func (b *bug) files() []string {
	var files []string
	for _, e := range b.edits {
		if !slices.Contains(files, e.file) {
			files = append(files, e.file)
		}
	}
	return files
}

// texts returns the files that b edits, with its edits.
func (b *bug) texts() (map[string]string, error) {
	texts := map[string]string{}
	for _, file := range b.files() {
		text, err := source(file)
		if err != nil {
			return nil, err
		}
		for _, e := range b.edits {
			if e.file == file {
				if text, err = e.apply(text); err != nil {
					return nil, err
				}
			}
		}
		texts[file] = text
	}
	return texts, nil
}
