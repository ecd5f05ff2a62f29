// Package timelimit bounds how long requests wait, without a timer for each of them.
//
// context.WithTimeout makes a timer and a context, and enters that in its parent: two microseconds of a
// request. Requests that may all wait equally long can share the end. A Limit has a timer for all that begin
// within a part of that time. A caller in a hurry asks Split for both channels. Others see a usual context.
package timelimit

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// part of the time of a request is how long requests share an end: 1/32. They wait longer by so much at most.
const part = 32

// Limit is the ends of requests that may all wait equally long. The zero Limit is ready. It is safe for
// concurrent use. Its timers need no end: each fires once.
type Limit struct {
	mu     sync.Mutex
	shared atomic.Pointer[end]
}

// end is when requests end that have begun before a time.
type end struct {
	at, before time.Time
	reached    chan struct{}
}

// With returns a context that ends with its parent, and not before the given time has passed. It ends a
// 32nd later at most. The time is the same in all calls. Release must be called when the request ends.
func (l *Limit) With(parent context.Context, after time.Duration) *Context {
	now := time.Now()
	e := l.shared.Load()
	if e == nil || !now.Before(e.before) {
		e = l.next(now, after)
	}
	return &Context{Context: parent, end: e}
}

// next returns the end of requests that begin now.
func (l *Limit) next(now time.Time, after time.Duration) *end {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.shared.Load(); e != nil && now.Before(e.before) {
		return e
	}
	span := max(0, min(after/part, math.MaxInt64-after))
	e := &end{at: now.Add(after + span), before: now.Add(span), reached: make(chan struct{})}
	time.AfterFunc(after+span, func() { close(e.reached) })
	l.shared.Store(e)
	return e
}

// Context is the context of one request.
type Context struct {
	context.Context // of the client
	end             *end

	mu      sync.Mutex
	whole   context.Context // a usual one that has both ends; nil: nothing has asked for it
	release context.CancelFunc
}

// Split returns two channels, one of which closes when a context ends. The second is nil for a context that
// no Limit has made.
func Split(ctx context.Context) (done, reached <-chan struct{}) {
	if c, ok := ctx.(*Context); ok {
		return c.Context.Done(), c.end.reached
	}
	return ctx.Done(), nil
}

// Done implements context.Context. It costs what Split saves.
func (c *Context) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.usual().Done()
}

// usual returns a usual context, which says from now on why this one has ended. The caller holds mu.
func (c *Context) usual() context.Context {
	if c.whole == nil {
		c.whole, c.release = context.WithDeadline(c.Context, c.end.at)
	}
	return c.whole
}

// Err implements context.Context. Done is closed before an error is returned, and the error stays the same.
func (c *Context) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if isClosed(c.Context.Done()) || isClosed(c.end.reached) {
		<-c.usual().Done() // it has ended too, or is about to
	}
	if c.whole == nil {
		return nil
	}
	return c.whole.Err()
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Value implements context.Context. context.Cause finds the cause by a value, and a child its parent.
func (c *Context) Value(key any) any {
	c.mu.Lock()
	whole := c.whole
	c.mu.Unlock()
	if whole != nil {
		return whole.Value(key)
	}
	return c.Context.Value(key)
}

// Deadline implements context.Context.
func (c *Context) Deadline() (deadline time.Time, ok bool) {
	if d, ok := c.Context.Deadline(); ok && d.Before(c.end.at) {
		return d, true
	}
	return c.end.at, true
}

// Release releases what the context holds. Nothing waits for it any more.
func (c *Context) Release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.release != nil {
		c.release()
	}
}
