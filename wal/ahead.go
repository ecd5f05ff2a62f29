package wal

import (
	"runtime"
	"sync"

	"github.com/millrace/millrace/internal/lock"
	"github.com/millrace/millrace/vfs"
)

// A log is read in two steps. Reading a segment and checking its records needs nothing but that segment.
// Applying the records needs all segments before it. So several threads do the first step, ahead of one
// thread that does the second in order.
//
// Memory is bounded: threads+1 buffers, each as large as the largest segment read into it. A simulated disk
// uses one thread, so that its operations keep one order.

// maxScanThreads bounds Options.ScanThreads: each takes a buffer of a segment.
const maxScanThreads = 64

// scanThreads returns how many threads read segments of fsys: the number asked for, or as many as pay off
// on the machine's own disk.
func scanThreads(fsys vfs.FS, asked int) int {
	switch {
	case asked > 0:
		return min(asked, maxScanThreads)
	case fsys == nil || fsys == vfs.OS():
		return min(4, runtime.GOMAXPROCS(0))
	}
	return 1
}

// ahead calls use for each i below n, in order, with the result of load for i. load runs in the given
// number of threads, ahead of use, and gets a buffer that it may replace. The buffer is reused when use
// returns. The first error of use ends the loop and is returned; loaded results that were not used are
// dropped.
func ahead[T any](threads, n int, load func(i int, buf []byte) (T, []byte), use func(i int, v T) error) error {
	if threads = min(threads, n); threads <= 1 {
		var buf []byte
		for i := range n {
			var v T
			v, buf = load(i, buf)
			if err := use(i, v); err != nil {
				return err
			}
		}
		return nil
	}
	type loaded struct {
		v   T
		buf []byte
	}
	free, results := make(chan []byte, threads+1), make([]chan loaded, n)
	for range threads + 1 {
		free <- nil
	}
	for i := range results {
		results[i] = make(chan loaded, 1)
	}
	var mu lock.Mutex
	next := 0
	take := func() (i int, ok bool) {
		mu.Lock()
		defer mu.Unlock()
		next++
		return next - 1, next <= n
	}
	var workers sync.WaitGroup
	for range threads {
		workers.Go(func() {
			// The buffer comes first: so the segment that is used next always has one.
			for buf := range free {
				i, ok := take()
				if !ok {
					return
				}
				v, buf := load(i, buf)
				results[i] <- loaded{v, buf}
			}
		})
	}
	// Workers that wait for a buffer see the channel closed; the others find that no segment is left.
	defer workers.Wait()
	defer func() {
		mu.Lock()
		next = n
		mu.Unlock()
		close(free)
	}()
	for i := range n {
		r := <-results[i]
		if err := use(i, r.v); err != nil {
			return err
		}
		free <- r.buf
	}
	return nil
}
