package timelimit

import (
	"context"
	"errors"
	"math"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

type key struct{}

// ended reports which channel of Split is closed.
func ended(ctx context.Context) (done, reached bool) {
	d, r := Split(ctx)
	select {
	case <-d:
		done = true
	default:
	}
	select {
	case <-r:
		reached = true
	default:
	}
	return done, reached
}

// Requests end when their time has passed, and a 32nd later at most. Those that begin together share a
// timer.
func TestRequestsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const after = 32 * time.Second
		var l Limit
		var all []*Context
		var began []time.Time
		for range 100 {
			all, began = append(all, l.With(t.Context(), after)), append(began, time.Now())
			<-time.After(300 * time.Millisecond)
		}
		ends := map[*end]bool{}
		for _, c := range all {
			ends[c.end] = true
		}
		if len(ends) < 20 || len(ends) > 30 {
			t.Errorf("%d timers for 100 requests in 30 s, which share one for a second", len(ends))
		}
		for i, c := range all {
			if have, ok := c.Deadline(); !ok || have.Before(began[i].Add(after)) || have.After(began[i].Add(after+after/part)) {
				t.Errorf("request %d has %v", i, have.Sub(began[i]))
			}
			<-time.After(time.Until(c.end.at.Add(-time.Nanosecond)))
			synctest.Wait()
			if done, reached := ended(c); time.Now().Before(c.end.at) && (done || reached || c.Err() != nil) {
				t.Fatalf("request %d has ended early: %v", i, c.Err())
			}
			<-time.After(time.Until(c.end.at))
			synctest.Wait()
			if done, reached := ended(c); done || !reached || !errors.Is(c.Err(), context.DeadlineExceeded) || !errors.Is(context.Cause(c), context.DeadlineExceeded) {
				t.Fatalf("request %d has not ended: %v", i, c.Err())
			}
		}
	})
}

// A request ends with its parent, for the parent's reason, and has its values.
func TestRequestsEndWithTheirParent(t *testing.T) {
	var l Limit
	why := errors.New("why")
	parent, cancel := context.WithCancelCause(context.WithValue(t.Context(), key{}, 7))
	c := l.With(parent, time.Hour)
	if c.Value(key{}) != 7 || c.Err() != nil {
		t.Errorf("%v, %v", c.Value(key{}), c.Err())
	}
	cancel(why)
	if done, reached := ended(c); !done || reached || !errors.Is(c.Err(), context.Canceled) || !errors.Is(context.Cause(c), why) {
		t.Errorf("%v %v %v %v", done, reached, c.Err(), context.Cause(c))
	}
	near, cancelNear := context.WithTimeout(t.Context(), time.Minute)
	defer cancelNear()
	want, _ := near.Deadline()
	if have, ok := l.With(near, time.Hour).Deadline(); !ok || !have.Equal(want) {
		t.Errorf("the deadline is %v, want that of the parent, %v", have, want)
	}
}

// Code that knows nothing of limits sees a context like any other: its channel closes for both reasons, and
// its error is there by then. What it holds is released.
func TestOthersSeeAContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Limit
		parent, cancel := context.WithCancel(t.Context())
		early, late, derived := l.With(parent, 32*time.Second), l.With(t.Context(), 32*time.Second), l.With(t.Context(), 32*time.Second)
		child, cancelChild := context.WithCancel(derived)
		defer cancelChild()
		cancel()
		<-early.Done()
		if !errors.Is(early.Err(), context.Canceled) {
			t.Errorf("it ended with its parent: %v", early.Err())
		}
		began := time.Now()
		<-late.Done()
		if took := time.Since(began); took < 32*time.Second || took > 33*time.Second || !errors.Is(late.Err(), context.DeadlineExceeded) {
			t.Errorf("after %v: %v", took, late.Err())
		}
		<-child.Done()
		if !errors.Is(child.Err(), context.DeadlineExceeded) {
			t.Errorf("what is derived of it: %v", child.Err())
		}
		for _, c := range []*Context{early, late, derived} {
			c.Release()
		}
		released := l.With(t.Context(), 32*time.Second)
		done := released.Done()
		released.Release()
		<-done
		if released.Err() == nil {
			t.Error("it is released, its channel is closed, and it has no error")
		}
		l.With(t.Context(), 32*time.Second).Release()
	})
}

// foreign is a context of a type of its own, as a library's may be. Its values are those of another context.
type foreign struct {
	context.Context
	done chan struct{} // nil: it never ends
}

func (f foreign) Deadline() (time.Time, bool) { return time.Time{}, false }
func (f foreign) Done() <-chan struct{}       { return f.done }
func (f foreign) Err() error {
	if isClosed(f.done) {
		return context.Canceled
	}
	return nil
}

// The first reason for which a context ends stays its error and its cause, whatever ends later.
func TestFirstEndStays(t *testing.T) {
	why := errors.New("why")
	for _, c := range []struct {
		name       string
		end        func(c *Context, cancel context.CancelCauseFunc)
		err, cause error
	}{
		{"time", func(*Context, context.CancelCauseFunc) { <-time.After(time.Minute) }, context.DeadlineExceeded, context.DeadlineExceeded},
		{"parent", func(_ *Context, cancel context.CancelCauseFunc) { cancel(why) }, context.Canceled, why},
		{"release", func(c *Context, _ context.CancelCauseFunc) { c.Done(); c.Release() }, context.Canceled, context.Canceled},
	} {
		for _, shared := range []bool{false, true} { // its Done was called before
			synctest.Test(t, func(t *testing.T) {
				var l Limit
				parent, cancel := context.WithCancelCause(t.Context())
				ctx := l.With(parent, 32*time.Second)
				defer ctx.Release()
				if shared {
					ctx.Done()
				}
				c.end(ctx, cancel)
				for _, later := range []func(){func() {}, func() { cancel(errors.New("late")) }, func() { <-time.After(time.Minute) }} {
					later()
					synctest.Wait()
					if err, cause := ctx.Err(), context.Cause(ctx); err != c.err || cause != c.cause || !isClosed(ctx.Done()) {
						t.Errorf("%s, Done was called before: %v: %v because of %v, want %v because of %v", c.name, shared, err, cause, c.err, c.cause)
					}
				}
			})
		}
	}
	synctest.Test(t, func(t *testing.T) {
		var l Limit
		client, cancel := context.WithCancelCause(t.Context())
		cancel(why)
		ctx := l.With(foreign{client, nil}, 32*time.Second)
		<-time.After(time.Minute)
		if err := context.Cause(ctx); err != context.DeadlineExceeded {
			t.Errorf("a context that outlives its client has ended because of %v", err)
		}
	})
}

// A context that has an error has a closed channel. A parent tells the two one after the other.
func TestErrorComesAfterDone(t *testing.T) {
	for range 100 {
		var l Limit
		parent := foreign{t.Context(), make(chan struct{})}
		ctx := l.With(parent, time.Hour)
		done := ctx.Done()
		close(parent.done)
		if err := ctx.Err(); err == nil || !isClosed(done) {
			t.Fatalf("it has the error %v, its channel is closed: %v", err, isClosed(done))
		}
		ctx.Release()
	}
}

// What is derived of a context takes no goroutine.
func TestChildrenTakeNoGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Limit
		ctx := l.With(t.Context(), time.Hour)
		before := runtime.NumGoroutine()
		var children []context.Context
		for range 10 {
			child, cancel := context.WithCancel(ctx)
			defer cancel()
			children = append(children, child)
		}
		if n := runtime.NumGoroutine() - before; n > 0 {
			t.Errorf("%d goroutines for 10 contexts", n)
		}
		ctx.Release()
		for _, c := range children {
			if c.Err() == nil {
				t.Error("it has not ended with its parent")
			}
		}
	})
}

// A limit of hundreds of years does not overflow, and a negative one ends at once.
func TestExtremeLimits(t *testing.T) {
	for after, ends := range map[time.Duration]bool{math.MaxInt64: false, math.MaxInt64 / 33 * 32: false, 1: true, 0: true, -time.Hour: true, math.MinInt64: true} {
		synctest.Test(t, func(t *testing.T) {
			var l Limit
			ctx := l.With(t.Context(), after)
			defer ctx.Release()
			<-time.After(time.Microsecond)
			synctest.Wait()
			at, _ := ctx.Deadline()
			if ended := ctx.Err() != nil; ended != ends || at.Before(time.Now()) != ends || isClosed(ctx.Done()) != ends {
				t.Errorf("%v: it has ended: %v; its deadline is %v", after, ctx.Err(), at)
			}
		})
	}
}

// A context that no Limit has made has one channel.
func TestSplitOfAnotherContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	done, reached := Split(ctx)
	if reached != nil {
		t.Error("it has a second channel")
	}
	cancel()
	<-done
}

// A request costs one allocation.
func TestAllocationsOfARequest(t *testing.T) {
	var l Limit
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() {
		c := l.With(ctx, time.Hour)
		_, _ = Split(c)
		_ = c.Err()
		c.Release()
	}); n > 1 {
		t.Errorf("%v allocations", n)
	}
}
