package wal

import (
	"runtime"
	"sync"

	"github.com/millrace/millrace/vfs"
)

// Reading a log is reading its segments and checking their records, which needs nothing but the segment, and then applying
// them, which needs all that came before. So the first is done by several threads, ahead of the second, which one thread
// does in order.
//
// The memory is bounded: threads+1 buffers, each as large as the largest segment that it met. A simulated disk has one
// thread, so that its operations keep one order.

// maxScanThreads bounds Options.ScanThreads: each takes a buffer of a segment.
const maxScanThreads = 64

// scanThreads returns how many threads read segments of fsys: asked, or as many as pay off on the machine's own disk.
func scanThreads(fsys vfs.FS, asked int) int {
	switch {
	case asked > 0:
		return min(asked, maxScanThreads)
	case fsys == nil || fsys == vfs.OS():
		return min(4, runtime.GOMAXPROCS(0))
	}
	return 1
}

// ahead calls use for each i below n, in order, with what load returned for it. load runs in so many threads, ahead of
// use, and gets a buffer that it may replace; the buffer is used again when use returns. The first error of use ends it and is
// returned; what was loaded and not used is dropped.
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
	var mu sync.Mutex
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
			// The buffer first: then what is waited for next always has one.
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
	// Workers that wait for a buffer get the end of them; the others find that nothing is left.
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
