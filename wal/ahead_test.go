package wal

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
)

// For any number of threads, each loaded item is used once, in order, and never more are loaded than there
// are buffers.
func TestAhead(t *testing.T) {
	for _, threads := range []int{0, 1, 2, 3, 8} {
		for _, n := range []int{0, 1, 2, 7, 100} {
			var held, buffers atomic.Int64
			next := 0
			err := ahead(threads, n, func(i int, buf []byte) (string, []byte) {
				if now := held.Add(1); now > int64(max(1, threads))+1 {
					t.Errorf("%d threads, %d things: %d buffers are in use", threads, n, now)
				}
				if buf == nil {
					buffers.Add(1)
					buf = make([]byte, 1)
				}
				return fmt.Sprint(i), buf
			}, func(i int, v string) error {
				if i != next || v != fmt.Sprint(i) {
					t.Errorf("%d threads, %d things: %q is used as %d, want %d", threads, n, v, i, next)
				}
				next++
				held.Add(-1)
				return nil
			})
			if err != nil || next != n || buffers.Load() > int64(max(1, threads))+1 {
				t.Errorf("%d threads, %d things: %d used, %d buffers, %v", threads, n, next, buffers.Load(), err)
			}
			loaded := atomic.Int64{}
			err = ahead(threads, n, func(i int, buf []byte) (int, []byte) { loaded.Add(1); return i, buf }, func(i, _ int) error {
				if i == 3 {
					return errDisk
				}
				return nil
			})
			if n > 3 && !errors.Is(err, errDisk) || loaded.Load() > int64(4+max(1, threads)+1) {
				t.Errorf("%d threads, %d things: after an error %d were loaded: %v", threads, n, loaded.Load(), err)
			}
		}
	}
}
