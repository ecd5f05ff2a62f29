package day2

import (
	"fmt"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// account is where the client writes.
const account = "client"

// client adds one, again and again, all day, in one session. A command whose outcome is not known is sent
// again with its number, to any member, until it is acknowledged. So each counts exactly once.
type client struct {
	session string
	to      []*process
	acked   atomic.Int64
	refused atomic.Int64
	why     atomic.Value // of the latest refusal
	turn    sync.Mutex   // held while a command is under way, and by a pause
	ended   chan struct{}
	gone    chan struct{}
}

// newClientOf draws a session and begins to write to these members.
func newClientOf(t *testing.T, to []*process) *client {
	t.Helper()
	c := &client{to: to, ended: make(chan struct{}), gone: make(chan struct{})}
	if err := within(maxWait, func() (err error) { c.session, err = to[0].post("/session", nil); return err }); err != nil {
		t.Fatal(err)
	}
	go c.run()
	return c
}

func (c *client) run() {
	defer close(c.gone)
	pace := time.NewTicker(20 * time.Millisecond)
	defer pace.Stop()
	for number := 1; ; {
		select {
		case <-c.ended:
			return
		case <-pace.C:
		}
		if c.addOnce(number) {
			number++
		}
	}
}

// addOnce tries one command once, and reports whether it was acknowledged.
func (c *client) addOnce(number int) bool {
	c.turn.Lock()
	defer c.turn.Unlock()
	p := c.to[(int(c.refused.Load())+number)%len(c.to)]
	_, err := p.post("/add", url.Values{"account": {account}, "amount": {"1"}, "client": {c.session}, "number": {fmt.Sprint(number)}})
	if err != nil {
		c.why.Store(err.Error())
		c.refused.Add(1)
		return false
	}
	c.acked.Add(1)
	return true
}

// acknowledged returns how many commands were.
func (c *client) acknowledged() int64 { return c.acked.Load() }

// goesOn waits until n more commands are acknowledged.
func (c *client) goesOn(t *testing.T, n int64) {
	t.Helper()
	want := c.acked.Load() + n
	if err := within(maxWait, func() error {
		if have := c.acked.Load(); have < want {
			return fmt.Errorf("%d of %d commands are acknowledged, %d were refused, the latest because %v", have, want, c.refused.Load(), c.why.Load())
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// pause waits for the command under way, and sends none until resume. A command whose outcome is not known is
// in none of the counts.
func (c *client) pause()  { c.turn.Lock() }
func (c *client) resume() { c.turn.Unlock() }

// stop ends the client. It is not paused.
func (c *client) stop() {
	close(c.ended)
	<-c.gone
}
