//go:build !race

package host_test

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"testing"
	"unsafe"
)

// In how many places of memory a command is when three hosts have applied it. Each place but the first is a
// copy, and two of them, what the followers read from their sockets, are made by the kernel. So the hosts
// copy a command of 100 bytes 13 times and one of 250,000 bytes 5 times. The table in
// Decision 0012 says where.
//
// How they are counted: the memory of the process is searched for the command's bytes, with the garbage
// collector off, so that a buffer that the command has passed through still has them. So a copy counts
// wherever it is made, and the seams only name the places. Not counted: what the kernel holds; what was
// overwritten before the search (the bytes looked for are at the end of the command, which smaller writes
// into the same buffer do not reach); copies of parts of a command, such as those of a buffer that grows.
func TestCopiesOfACommand(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	w := openWatched(t)
	for _, row := range []struct {
		bytes  int
		places map[string]int
	}{
		{100, map[string]int{
			"host 1: Propose":         1,
			"host 1: File.WriteAt":    1, // the log's buffer
			"host 1: GroupLog.Recent": 1, // the array that the state machine is given, out of the log's cache
			"host 2: Receive":         1, // transport.Detach
			"host 2: File.WriteAt":    1,
			"host 2: GroupLog.Recent": 1,
			"host 3: Receive":         1,
			"host 3: File.WriteAt":    1,
			"host 3: GroupLog.Recent": 1,
			"at no seam":              2 + 2 + 3, // a frame for each follower, what each has read, the log's cache of each host
		}},
		// The log keeps the array of a large command, and passes it to the state machine.
		{250_000, map[string]int{
			"host 1: Propose":      1,
			"host 1: File.WriteAt": 1,
			"host 2: Receive":      1,
			"host 2: File.WriteAt": 1,
			"host 3: Receive":      1,
			"host 3: File.WriteAt": 1,
			"at no seam":           2, // what each follower has read; what Receive gets was joined from four frames
		}},
	} {
		w.propose(t, row.bytes) // buffers grow
		var have []map[string]int
		for range 5 {
			w.propose(t, row.bytes)
			have = append(have, w.placesNow(t))
		}
		checkMost(t, fmt.Sprintf("places of a command of %d bytes", row.bytes), have, row.places)
	}

	// The leader copies a command into the entry of its batch, and each follower out of the frame. Each log has
	// a buffer. The state machines get it in place.
	w.proposeBatch(t, 100, 1<<10)
	var have []map[string]int
	for range 5 {
		w.proposeBatch(t, 100, 1<<10)
		places := w.placesNow(t)
		places["host 1: entry"] = places["host 1: Send"] + places["host 1: Log.Append"] // one of them comes first
		delete(places, "host 1: Send")
		delete(places, "host 1: Log.Append")
		have = append(have, places)
	}
	checkMost(t, "places of a command of a batch of 100 KiB", have, map[string]int{
		"host 1: Propose":      1,
		"host 1: entry":        1,
		"host 1: File.WriteAt": 1,
		"host 2: Receive":      1,
		"host 2: File.WriteAt": 1,
		"host 3: Receive":      1,
		"host 3: File.WriteAt": 1,
		"at no seam":           2, // what each follower has read
	})
}

// placesNow returns how many places have the command, by the first seam at which it was seen there.
func (w *watched) placesNow(t *testing.T) map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, place := range search(t, w.needle) {
		if w.places[place] == "" {
			w.places[place] = "at no seam"
		}
	}
	count := map[string]int{}
	for _, seam := range w.places {
		count[seam]++
	}
	return count
}

// search returns the addresses at which the memory of this process has the bytes. It reads by pread, because
// memory may be unmapped meanwhile.
func search(t *testing.T, needle []byte) (found []uintptr) {
	t.Helper()
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	defer maps.Close()
	memory, err := os.Open("/proc/self/mem")
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	chunk := make([]byte, 1<<20)
	own := uintptr(unsafe.Pointer(unsafe.SliceData(chunk)))
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		var lo, hi uintptr
		var rights string
		if _, err := fmt.Sscanf(lines.Text(), "%x-%x %s", &lo, &hi, &rights); err != nil {
			t.Fatalf("line %q of /proc/self/maps: %v", lines.Text(), err)
		}
		if !strings.HasPrefix(rights, "rw-p") || strings.Contains(lines.Text(), "/") { // of no file
			continue
		}
		for at := lo; at < hi; at += uintptr(len(chunk) - len(needle) + 1) {
			n, _ := memory.ReadAt(chunk[:min(uintptr(len(chunk)), hi-at)], int64(at)) // an error: it is not mapped any more
			for from := 0; ; from++ {
				next := bytes.Index(chunk[from:n], needle)
				if next < 0 {
					break
				}
				from += next
				if place := at + uintptr(from); place < own || place >= own+uintptr(len(chunk)) {
					found = append(found, place)
				}
			}
		}
	}
	return found
}
