package goroutine

import (
	"runtime"
	"testing"
)

// A goroutine keeps its number while its stack grows, and no other has it meanwhile.
func TestID(t *testing.T) {
	if ID() == 0 {
		t.Skip("not known on", runtime.GOARCH)
	}
	const others = 100
	seen := map[uintptr]bool{ID(): true}
	ids, end := make(chan uintptr), make(chan struct{})
	defer close(end)
	for range others {
		go func() {
			before := ID()
			grow(1 << 10)
			if runtime.Gosched(); ID() != before {
				t.Error("a goroutine has another number after its stack has grown")
			}
			ids <- before
			<-end
		}()
	}
	for range others {
		id := <-ids
		if seen[id] {
			t.Fatalf("two goroutines have number %#x", id)
		}
		seen[id] = true
	}
}

//go:noinline
func grow(depth int) (sum byte) {
	var frame [128]byte
	if depth > 0 {
		frame[depth%128] = grow(depth-1) + 1
	}
	return frame[0] + frame[127]
}

func BenchmarkID(b *testing.B) {
	for b.Loop() {
		_ = ID()
	}
}
