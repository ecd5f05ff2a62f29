package server

import (
	"context"
	"runtime"
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"
)

func TestGarbagePercent(t *testing.T) {
	for _, row := range []struct {
		live uint64
		want int
	}{{0, 400}, {1 << 20, 400}, {16 << 20, 400}, {32 << 20, 200}, {64 << 20, 100}, {128 << 20, 50}, {256 << 20, 25}, {320 << 20, 20}, {1 << 40, 20}} {
		if have := garbagePercent(row.live); have != row.want {
			t.Errorf("with %d MiB live garbage may be %d %%, want %d", row.live>>20, have, row.want)
		}
	}
}

// TestBoundGarbage looks at the process's own setting. It follows a heap that grows and shrinks. A process
// with GOGC keeps its own.
func TestBoundGarbage(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	percent := func() int {
		p := debug.SetGCPercent(-1)
		debug.SetGCPercent(p)
		return p
	}
	look := func(live int) (have int, follows bool) {
		ballast := make([]byte, live)
		runtime.GC()
		want := garbagePercent(liveBytes()) // tests before may have left some MiB
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { BoundGarbage(ctx); close(done) }()
			<-time.After(3 * lookInterval) // in the bubble's time
			have = percent()
			cancel()
			<-done
		})
		runtime.KeepAlive(ballast)
		return have, have*10 <= want*11 && have*11 >= want*10
	}
	t.Setenv("GOGC", "")
	small, followsSmall := look(1)
	large, followsLarge := look(256 << 20)
	if !followsSmall || small < 2*large || !followsLarge || large < minPercent || large > 30 {
		t.Errorf("garbage may be %d %% of a small heap, and %d %% of one with 256 MiB", small, large)
	}
	if again, follows := look(1); !follows || again < 2*large {
		t.Errorf("garbage may be %d %% of a heap that is small again", again)
	}
	t.Setenv("GOGC", "100")
	debug.SetGCPercent(100)
	if have, _ := look(256 << 20); have != 100 {
		t.Errorf("GOGC is 100, and the collector is set to %d %%", have)
	}
}
