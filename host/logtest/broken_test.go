package logtest

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// The naive log keeps the contract, so what the kit finds in a broken one is the bug.
func TestNaiveLogPasses(t *testing.T) {
	Run(t, func(*testing.T) Store { return newNaiveDisk("").store() })
}

// bugs are the ways in which a log is broken here, each with a case that must find it.
var bugs = map[string]string{
	"entries are shown when they are durable":             "reads",
	"a read ends where the log does":                      "reads",
	"a read may be empty":                                 "byte limits",
	"a read ignores its limit":                            "byte limits",
	"a read returns one entry":                            "byte limits",
	"entry types are lost":                                "reads",
	"entries above replaced ones stay":                    "replaced and truncated entries",
	"a truncation is ignored":                             "replaced and truncated entries",
	"the term of the compacted entry is forgotten":        "compaction",
	"compacted terms are 0":                               "compaction",
	"the commit index is not raised":                      "compaction",
	"a snapshot keeps what follows another term":          "snapshots",
	"a vote of 0 keeps the old vote":                      "hard states",
	"Groups forgets a group without entries":              "snapshots",
	"writes are judged by the state before the append":    "many groups",
	"entries are kept as they were passed":                "slices are not kept",
	"a read belongs to the log":                           "slices are not kept",
	"gaps are taken":                                      "invalid writes",
	"an invalid write leaves those before it":             "invalid writes",
	"the error does not name the group":                   "invalid writes",
	"a deleted group can be written":                      "deleted groups",
	"the error does not say that a group is deleted":      "deleted groups",
	"Groups names deleted groups":                         "deleted groups",
	"Recent shows truncated entries":                      "recent entries",
	"Recent shows what is there of a range":               "recent entries",
	"Typed ignores its range":                             "reads",
	"Complete never says more":                            "flushes",
	"a closed log goes on":                                "closed log",
	"readers see half a write":                            "concurrent readers",
	"a read is of two moments":                            "concurrent readers",
	"another id after each open":                          "reopened log",
	"the generation stays":                                "reopened log",
	"Close does not sync":                                 "reopened log",
	"deletions are forgotten":                             "reopened log",
	"a sync does nothing":                                 "what a flush covers",
	"a sync misses the last write":                        "what a flush covers",
	"a flush that is left alone is lost":                  "what a flush covers",
	"a late flush puts back what an earlier one has done": "what a flush covers",
	"a crash leaves half a write":                         "what a crash leaves of a write",
	"a crash loses the earlier of two writes":             "random histories with crashes",
	"DeleteGroup does not wait for the disk":              "deleted groups after a crash",
	"a failed sync is not noticed":                        "failed syncs",
	"a failed sync is tried again":                        "failed syncs",
	"a full disk takes half":                              "full disk",
	"a full disk refuses votes":                           "full disk",
	"a full disk is another error":                        "full disk",
	"Recent reads the disk":                               "hung reads",
	"Term reads the disk":                                 "hung reads",
	"an append waits for a read":                          "hung reads",
	"readers wait for a sync":                             "hung syncs",
	"an append waits for a sync":                          "hung syncs",
}

// Each broken log is found by its case, and each case finds a broken log.
func TestBrokenLogsAreFound(t *testing.T) {
	found := map[string]bool{}
	for bug, by := range bugs {
		t.Run(strings.ReplaceAll(bug, " ", "_"), func(t *testing.T) {
			k := slices.IndexFunc(cases, func(c kase) bool { return c.name == by })
			if k < 0 {
				t.Fatalf("there is no case %q", by)
			}
			why := cases[k].judge(newNaiveDisk(bug).store(), 50*time.Millisecond)
			if why == "" {
				t.Fatalf("%q does not find it", by)
			}
			t.Logf("%s: %.200s", by, why)
		})
		found[by] = true
	}
	for _, c := range cases {
		if !found[c.name] && !slices.Contains(others, c.name) {
			t.Errorf("no broken log shows that the case %q finds something", c.name)
		}
	}
}

// others are cases that find what other cases find too.
var others = []string{"order of a write's parts", "random histories", "random histories, reopened"}

// A case that needs what the store cannot do is skipped with a reason.
func TestWhatAStoreLacks(t *testing.T) {
	for _, c := range cases {
		needs := c.reopen || c.crash || c.fill || c.hang || c.fail
		if lacks := c.lacks(Store{}); (lacks != "") != needs {
			t.Errorf("%s: %q", c.name, lacks)
		}
		if lacks := c.lacks(newNaiveDisk("").store()); lacks != "" {
			t.Errorf("%s: %q", c.name, lacks)
		}
	}
}
