package remote

import (
	"bufio"
	"context"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
)

// A client that reads no answers has no more requests handled than the bounds allow: a goroutine and an
// clientAnswer would stay for each.
func TestAnswersThatNobodyReads(t *testing.T) {
	for name, tc := range map[string]struct {
		handled int
		value   []byte
		large   func(Request) bool
	}{
		"many":  {1, nil, nil},
		"long":  {5, make([]byte, 2*handledBytes), nil},
		"large": {9, nil, func(Request) bool { return true }},
	} {
		t.Run(name, func(t *testing.T) {
			var reads atomic.Bool
			var handled, ahead atomic.Int32 // ahead: while an answer waited. The bounds here let one request through
			first := make(chan struct{})
			s := &ClientServer{ctx: t.Context(), handled: tc.handled, o: ClientServing{Large: tc.large, Handle: func(context.Context, Request) (Status, string) {
				if handled.Add(1) == 1 {
					close(first)
				} else if !reads.Load() {
					ahead.Add(1)
				}
				return Done, ""
			}}}
			mine, theirs := net.Pipe() // without a buffer: an answer is written when it is read
			s.serving.Go(func() { s.serve(theirs) })
			s.serving.Go(func() {
				out := bufio.NewWriter(mine)
				for id := range uint64(2) {
					writeMessage(out, id+1, []byte{byte(Opaque)}, tc.value)
				}
				if err := out.Flush(); err != nil {
					t.Error(err)
				}
			})
			<-first
			for range 10_000 {
				runtime.Gosched() // a server without the bound would go on now
			}
			reads.Store(true)
			in := bufio.NewReader(mine)
			for range 2 {
				if _, _, err := readMessage(in); err != nil {
					t.Fatal(err)
				}
			}
			mine.Close()
			s.serving.Wait()
			if ahead.Load() != 0 || handled.Load() != 2 {
				t.Errorf("%d requests were handled, %d of them while an answer waited", handled.Load(), ahead.Load())
			}
		})
	}
}
