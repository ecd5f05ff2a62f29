package host_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/millrace/millrace/internal/scratch"
)

// How often the bytes of a command go through a checksum: once on each host, and twice on each host that
// starts again. The proposer makes the sum, and each follower checks what it has received. And how many
// checksums are computed until every host has applied it.
//
// The test runs itself again with a package hash/crc32 that can be watched (go test -overlay, as for planted
// bugs). So a checksum counts wherever it is computed, and the code that users build holds no trace of it.
// Not counted: the product in the check of a record's header (record.Seal.Sum) and the first four bytes of a
// frame, which are computed without that package.
func TestChecksumsOfACommand(t *testing.T) {
	table, watchable := any(crc32.IEEETable).(interface{ Watch(func(p []byte)) })
	if !watchable {
		if testing.Short() {
			t.Skip("builds the package with another hash/crc32")
		}
		runWithWatch(t)
		return
	}
	c := &checksums{w: openWatched(t)}
	table.Watch(c.note)
	defer table.Watch(nil)
	want := map[string]int{"host.(*Group).proposeEntries": 1, "transport.(*checker).Sum": 2}
	var command []byte
	for _, row := range []struct{ bytes, maxCalls, maxBytes int }{
		{100, 30, 1000}, // most of them for the acknowledgements, and for the two parts of a frame around a payload
		// And for four frames to each follower. The leader sums again what it sends in the first three of
		// them: their borders cut the command.
		{250_000, 52, 3*250_000 + 2*3*64<<10 + 1500},
	} {
		var passes []map[string]int
		var calls, sizes []int
		for range 5 {
			c.start()
			command = c.w.propose(t, row.bytes)
			seen, n, bytes := c.stop()
			passes, calls, sizes = append(passes, seen), append(calls, n), append(sizes, bytes)
			t.Logf("%d bytes: %d checksums, of %d bytes", row.bytes, n, bytes)
		}
		if slices.Sort(calls); calls[len(calls)/2] > row.maxCalls {
			t.Errorf("a command of %d bytes takes %d checksums, want at most %d", row.bytes, calls[len(calls)/2], row.maxCalls)
		}
		if slices.Sort(sizes); sizes[len(sizes)/2] > row.maxBytes {
			t.Errorf("a command of %d bytes takes checksums of %d bytes, want at most %d", row.bytes, sizes[len(sizes)/2], row.maxBytes)
		}
		checkMost(t, fmt.Sprintf("checksums of a command of %d bytes", row.bytes), passes, want)
	}

	c.w.lookFor(command)
	c.start()
	c.w.reopen(t)
	passes, _, _ := c.stop()                                                        // not all calls: host 1 asks for votes until it leads
	again := map[string]int{"wal.(*trace).check": 3, "wal.(*recordWalker).body": 3} // recovery; entries for the state machine
	checkMost(t, "checksums of a command when all hosts start again", []map[string]int{passes}, again)
}

// runWithWatch runs the test again with a hash/crc32 that can be watched.
func runWithWatch(t *testing.T) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(strings.TrimSpace(string(root)), "src/hash/crc32/crc32.go")
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const update = "func Update(crc uint32, tab *Table, p []byte) uint32 {\n"
	if n := strings.Count(string(source), update); n != 1 {
		t.Fatalf("%s has the text %q %d times, want once", file, update, n)
	}
	const watched = `
var watcher atomic.Pointer[func([]byte)]

func (*Table) Watch(f func([]byte)) { watcher.Store(&f) }

` + update + `	if f := watcher.Load(); f != nil && *f != nil {
		(*f)(p)
	}
`
	dir := scratch.Dir(t)
	edited, list := filepath.Join(dir, "crc32.go"), filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{file: edited}})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{edited: strings.Replace(string(source), update, watched, 1), list: string(replace)} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.Command("go", "test", "-count=1", "-v", "-overlay", list, "-run", "^TestChecksumsOfACommand$", ".").CombinedOutput()
	if t.Logf("%s", out); err != nil {
		t.Error(err)
	}
}

// checksums counts what goes through hash/crc32.
type checksums struct {
	w *watched

	mu     sync.Mutex
	calls  int
	bytes  int
	passes map[string]int // of the command that is looked for, by the function that computes or checks
}

func (c *checksums) start() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls, c.bytes, c.passes = 0, 0, map[string]int{}
}

func (c *checksums) stop() (passes map[string]int, calls, bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	passes, c.passes = c.passes, map[string]int{}
	return passes, c.calls, c.bytes
}

// note is called for all bytes of which a checksum is computed.
func (c *checksums) note(p []byte) {
	c.w.mu.Lock()
	has := len(c.w.needle) > 0 && bytes.Contains(p, c.w.needle)
	c.w.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls++
	c.bytes += len(p)
	if has {
		c.passes[callerOfUpdate()]++
	}
}

// callerOfUpdate returns the function that wants a checksum: the first beyond those that only compute one.
func callerOfUpdate() string {
	var pcs [20]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	for {
		f, more := frames.Next()
		name := strings.TrimPrefix(f.Function, "github.com/millrace/millrace/")
		if !more || !strings.HasPrefix(name, "hash/crc32.") && !strings.HasPrefix(name, "wal/record.") && !strings.HasPrefix(name, "internal/crcjoin.") && !strings.HasPrefix(name, "transport.(*frameSum)") {
			return name
		}
	}
}
