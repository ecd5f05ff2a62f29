package host

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/vfs/crashfs"
)

// opensPage has the table of what a host opens while it works.
const opensPage = "testdata/opens.md"

// opened is what the hosts of a test have opened after they have started: a path with * for ids, and how.
type opened map[string]bool

var (
	idsInPath = regexp.MustCompile(`[0-9a-f]{4,}(-[0-9a-f]{4,})*|\b[0-9]+\b`)
	rowOfPage = regexp.MustCompile("^\\| `([^`]+)` \\| ([a-z, ]+) \\|")
)

func rowOf(op crashfs.Op) string {
	return idsInPath.ReplaceAllString(strings.TrimPrefix(op.Name, "data/"), "*") + " " + op.Kind.String()
}

func (o opened) note(op crashfs.Op) {
	if op.Kind.Opens() {
		o[rowOf(op)] = true
	}
}

// rowsOfPage returns the rows of the page, as opened has them.
func rowsOfPage(t *testing.T) opened {
	t.Helper()
	text, err := os.ReadFile(opensPage)
	if err != nil {
		t.Fatal(err)
	}
	rows := opened{}
	for line := range strings.Lines(string(text)) {
		if m := rowOfPage.FindStringSubmatch(line); m != nil {
			for kind := range strings.SplitSeq(m[2], ", ") {
				rows[m[1]+" "+kind] = true
			}
		}
	}
	return rows
}

// lives gives three hosts everything to do for which they open something: an object is uploaded, held and
// removed, entries are read for a member that is behind and for the machines, and a snapshot is taken, sent,
// received and restored. fails says which operations find no descriptor. No group stops, an upload that was
// refused can be made again, and when there are descriptors all members are equal.
//
// A read of a cold segment opens it. The test has few segments, so its disk fails long reads of segments
// instead.
func (o opened) lives(t *testing.T, cause error, fails func() func(*installHost, crashfs.Op) bool) (hit bool) {
	c := newObjectCluster(t, 5)
	c.change1 = func(config *Config) { config.LogCacheBytes = -1 }
	c.start()
	for _, h := range c.hosts {
		fails := fails()
		h.disk.SetHook(func(op crashfs.Op) error {
			o.note(op)
			if op.Kind == crashfs.OpRead && op.Len > vfs.BlockBytes && strings.HasSuffix(op.Name, ".wal") {
				op.Kind = crashfs.OpOpen
			}
			if !op.Kind.Opens() || !fails(h, op) {
				return nil
			}
			hit = true
			return cause
		})
	}
	c.isolate(3)
	c.load("a few entries", 2, func() bool { return c.calls > 20 })
	c.heal()
	u := c.leader().uploads(300_000)
	c.load("the object is held", 1, func() bool { return u.held(t) })
	c.isolate(3)
	c.load("log grows", 2, func() bool { return c.isBeyond(3) })
	c.heal()
	c.load("the member installs", 1, func() bool { return count[event.SnapshotInstalled](c.hosts[2]) > 0 })
	c.load("the object goes", 1, func() bool {
		return !slices.ContainsFunc(c.hosts, func(h *installHost) bool { return h.has(u.ID()) })
	})
	c.load("all are equal", 0, c.equal)
	return hit
}

var short = []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM}

// For a while a process has no descriptor left. (Seen: the log stopped for good, and with it every group of
// the host; so did a group whose machine, or whose snapshot, could not be read for a moment.)
func TestNoOpenEndsAHost(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine runs all hosts")
	}
	seen, page := opened{}, rowsOfPage(t)
	const times = 32
	for from, hit := 0, true; hit && !t.Failed(); from += times {
		t.Run(fmt.Sprintf("%d opens in a row, %d on", times, from), func(t *testing.T) {
			hit = seen.lives(t, short[from/times%3], func() func(*installHost, crashfs.Op) bool {
				n := 0
				return func(*installHost, crashfs.Op) bool { n++; return n > from && n <= from+times }
			})
		})
	}
	for i, row := range slices.Sorted(maps.Keys(page)) {
		t.Run(row, func(t *testing.T) {
			hit := seen.lives(t, short[i%3], func() func(*installHost, crashfs.Op) bool {
				n := 0
				return func(_ *installHost, op crashfs.Op) bool {
					if rowOf(op) == row {
						n++
					}
					return rowOf(op) == row && n <= 3
				}
			})
			if !hit {
				t.Errorf("%s says that %s may happen, and it was not seen", opensPage, row)
			}
		})
	}
	for row := range seen {
		if !page[row] {
			t.Errorf("%s has no row for %s", opensPage, row)
		}
	}
}

// A snapshot that was received is restored when its parts can be opened. (Seen: the group stopped for good.)
func TestARestoreWaitsForADescriptor(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine runs all hosts")
	}
	hit := (opened{}).lives(t, syscall.EMFILE, func() func(*installHost, crashfs.Op) bool {
		n := 0
		return func(h *installHost, op crashfs.Op) bool {
			if count[event.SnapshotReceived](h) == 0 || rowOf(op) != "groups/*/snapshots/*/part-* open" {
				return false
			}
			n++
			return n <= 5
		}
	})
	if !hit {
		t.Error("nothing was restored")
	}
}

// uploads uploads an object as a program does that knows what a lack of descriptors is: it tries again.
func (h *installHost) uploads(n int) *Upload {
	h.all.t.Helper()
	for range 64 {
		u, err := h.group.StartUpload(UploadOptions{Life: 10 * time.Second})
		if err == nil {
			if _, err = u.Write(make([]byte, n)); err == nil {
				err = u.Finish()
			} else {
				err = errors.Join(err, u.Abort())
			}
		}
		if err == nil {
			h.manual.runIdle()
			return u
		}
		if !vfs.IsShort(err) {
			h.all.t.Fatal(err)
		}
	}
	h.all.t.Fatal("no upload is possible any more")
	return nil
}

// A log that cannot open a segment is told from a full disk, in what an operator is to do.
func TestLackOfDescriptorsIsNoFullDisk(t *testing.T) {
	for cause, want := range map[error]string{syscall.EMFILE: "ulimit", syscall.ENFILE: "ulimit", syscall.ENOSPC: "make space"} {
		l := openFollower(t)
		l.group.writes.append.Refuse(0, &os.PathError{Op: "create", Path: "log/2.wal", Err: cause})
		for _, c := range l.group.Explain().Causes {
			if c.Code == diagnosis.CodeDiskFull && !strings.Contains(c.Fix, want) {
				t.Errorf("%v: have %q, want %q", cause, c.Fix, want)
			} else if c.Code == diagnosis.CodeDiskFull {
				want = ""
			}
		}
		if want != "" {
			t.Errorf("%v: no cause, want one that says %q", cause, want)
		}
	}
}
