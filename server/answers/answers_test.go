package answers

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const mib = 1 << 20

// Small answers take nothing. A large one takes steps, and gives them back once.
func TestWhatAnAnswerTakes(t *testing.T) {
	b := New(4 * mib)
	a := b.Begin()
	grow := func(n, want int64) {
		t.Helper()
		if err := a.Grow(t.Context(), n); err != nil || b.Usage().Bytes != want {
			t.Errorf("after %d bytes more: %v, %d bytes in use, want %d", n, err, b.Usage().Bytes, want)
		}
	}
	grow(freeBytes, 0)
	grow(1, stepBytes)
	grow(stepBytes-1, stepBytes)
	grow(1, 2*stepBytes)
	grow(mib, mib+stepBytes+1)
	for range 2 {
		if a.End(); b.Usage().Bytes != 0 {
			t.Errorf("%d bytes in use after the end", b.Usage().Bytes)
		}
	}
	var none *Budget
	for _, b := range []*Budget{none, New(0)} {
		a := b.Begin()
		if err := a.Grow(t.Context(), 1<<40); err != nil {
			t.Error(err)
		}
		a.End()
	}
}

// An answer waits for room: until there is, until its client is gone, or until it is refused.
func TestAnAnswerWaits(t *testing.T) {
	for _, c := range []struct {
		name string
		give time.Duration // until what is sent is written; 0: never
		ends time.Duration // until its client is gone; 0: never
		want error
		took time.Duration
	}{
		{"room", time.Second, 0, nil, time.Second},
		{"gone", 0, time.Second, status.FromContextError(context.DeadlineExceeded).Err(), time.Second},
		{"refused", 0, 0, rpctypes.ErrGRPCRequestTooManyRequests, maxWait},
		{"too late", maxWait + 1, 0, rpctypes.ErrGRPCRequestTooManyRequests, maxWait},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := New(mib)
				h := b.hold(mib)
				if c.give > 0 {
					time.AfterFunc(c.give, h.release)
				}
				ctx, cancel := t.Context(), context.CancelFunc(func() {})
				if c.ends > 0 {
					ctx, cancel = context.WithTimeout(ctx, c.ends)
				}
				defer cancel()
				began, a := time.Now(), b.Begin()
				err := a.Grow(ctx, mib/2)
				if took := time.Since(began); !same(err, c.want) || took != c.took {
					t.Errorf("%v after %v, want %v after %v", err, took, c.want, c.took)
				}
				a.End()
				h.release()
				if u := b.Usage(); u.Bytes != 0 || (u.Refused > 0) != errors.Is(c.want, rpctypes.ErrGRPCRequestTooManyRequests) {
					t.Errorf("at the end: %+v", u)
				}
			})
		})
	}
}

func same(a, b error) bool {
	return (a == nil) == (b == nil) && status.Code(a) == status.Code(b) && status.Convert(a).Message() == status.Convert(b).Message()
}

// Answers that are each larger than half of the budget wait for the oldest, which may outgrow the budget.
// All of them are made, and they never take more together than the budget and the largest.
func TestNoTwoWaitForEachOther(t *testing.T) {
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 0))
			const most = 3 * mib
			b, failed := New(mib), 0
			results := make(chan error)
			n := 2 + rng.IntN(6)
			for range n {
				parts, part := 1+rng.IntN(6), int64(1+rng.IntN(mib/2))
				pause, first := time.Duration(rng.IntN(50))*time.Millisecond, time.Duration(rng.IntN(100))*time.Millisecond
				go func() {
					<-time.After(first)
					a := b.Begin()
					defer a.End()
					for range parts {
						if err := a.Grow(t.Context(), part); err != nil {
							results <- err
							return
						}
						if u := b.Usage().Bytes; u > mib+most+stepBytes {
							t.Errorf("seed %d: %d bytes in use", seed, u)
						}
						<-time.After(pause)
					}
					results <- nil
				}()
			}
			for range n {
				if err := <-results; err != nil {
					failed++
				}
			}
			synctest.Wait()
			if u := b.Usage(); failed > 0 || u.Bytes != 0 || len(b.making) != 0 {
				t.Errorf("seed %d: %d of %d answers failed; at the end %+v, and %d in the list", seed, failed, n, u, len(b.making))
			}
		})
	}
}

// Two lists that fill the memory are made one behind the other, also while a client keeps a little of it.
func TestALittleUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(4 * mib)
		defer b.hold(1).release()
		results := make(chan error)
		for range 2 {
			go func() {
				a := b.Begin()
				defer a.End()
				var err error
				for range 3 {
					if err == nil {
						err = a.Grow(t.Context(), mib)
						<-time.After(time.Millisecond)
					}
				}
				results <- err
			}()
		}
		for range 2 {
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
	})
}

// A list does not outgrow the budget while clients have not read what is sent: that would have no end.
func TestWhatIsSentIsNeverOutgrown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(mib)
		defer b.hold(mib).release()
		a := b.Begin()
		defer a.End()
		if err := a.Grow(t.Context(), mib); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("have %v", err)
		}
	})
}
