package rig

import (
	"net"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/load"
)

// Bytes that are on their way are chunks in a queue, each with the time at which it arrives. One goroutine
// reads and stamps, another waits and writes, so a delay bounds no rate.
const (
	chunkBytes  = 64 << 10
	queueChunks = 2048 // on their way in one direction of one connection; what does not fit waits in the kernel

	// timers are late by up to a millisecond, so the last part of a wait is a sleep of its own
	// (load.NewPause).
	precise = 2 * time.Millisecond
)

type chunk struct {
	bytes []byte
	due   time.Time
}

// pass passes bytes from one connection to another until either ends. The bytes on the way are lost then.
func (l *Link) pass(to, from net.Conn) {
	queue := make(chan chunk, queueChunks)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.deliver(to, from, queue)
	}()
	buffer := make([]byte, chunkBytes)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			queue <- chunk{append([]byte(nil), buffer[:n]...), l.stamp(n)}
		}
		if err != nil {
			break
		}
	}
	close(queue)
	<-ended
}

// stamp returns when n bytes that are read now arrive.
func (l *Link) stamp(n int) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	sent := time.Now()
	if l.rate > 0 {
		if l.free.After(sent) {
			sent = l.free
		}
		sent = sent.Add(time.Duration(float64(n) / l.rate * float64(time.Second)))
		l.free = sent
	}
	return sent.Add(l.delay)
}

// deliver writes chunks when they are due. After an error it only empties the queue.
func (l *Link) deliver(to, from net.Conn, queue <-chan chunk) {
	pause, done := func(time.Duration) {}, func() {}
	defer func() { done() }()
	sleeps, failed := false, false
	for c := range queue {
		if failed {
			continue
		}
		if left := time.Until(c.due); left > 0 {
			if !sleeps {
				pause, done = load.NewPause()
				sleeps = true
			}
			wait(left, pause)
		}
		if l.mayPass() {
			if _, err := to.Write(c.bytes); err == nil {
				continue
			}
		}
		failed = true
		reset(from) // ends the reader, too
	}
}

// wait waits for d, more precisely than a timer.
func wait(d time.Duration, pause func(time.Duration)) {
	if d > precise {
		due := time.Now().Add(d)
		<-time.After(d - precise)
		d = time.Until(due)
	}
	if d > 0 {
		pause(d)
	}
}
