package server

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// By Go's rule garbage is collected when the heap has doubled. A member has a small heap and many stacks at
// first, and large caches later. So that rule collects too often at first, and later lets the garbage be as
// large as the caches. Here the garbage has a size of its own instead.
const (
	garbageBytes = 64 << 20
	minPercent   = 20 // of the heap: below it collections follow each other
	maxPercent   = 400
	lookInterval = 500 * time.Millisecond
)

// BoundGarbage sets, until ctx ends, how much of the process's heap may be garbage: about 64 MiB, at least a
// fifth of what is live and at most four times of it. It is for a process that does nothing but serve. With
// GOGC in the environment it changes nothing; GOMEMLIMIT holds beside it.
func BoundGarbage(ctx context.Context) {
	if os.Getenv("GOGC") != "" {
		return
	}
	look := time.NewTicker(lookInterval)
	defer look.Stop()
	set := 0
	for {
		if percent := garbagePercent(liveBytes()); percent*10 > set*11 || percent*11 < set*10 { // a change stops all goroutines for a moment
			set = percent
			debug.SetGCPercent(percent)
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
	}
}

// liveBytes returns what the last collection has found to be in use.
func liveBytes() (live uint64) {
	heap := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"}}
	metrics.Read(heap)
	for _, m := range heap {
		if m.Value.Kind() == metrics.KindUint64 {
			live += m.Value.Uint64()
		}
	}
	return live
}

// garbagePercent returns the percentage of what is live that may be garbage.
func garbagePercent(live uint64) int {
	return int(min(max(garbageBytes*100/max(live, 1), minPercent), maxPercent))
}
