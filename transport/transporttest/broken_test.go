package transporttest

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/transport"
	"github.com/millrace/millrace/transport/loopback"
)

// A kit that finds nothing has not been tested: each of these transports has one bug, and the cases that are
// named find it. They are transport/loopback behind a wrapper.

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// wrapper is a host with a bug: each function that is set takes the place of the host's.
type wrapper struct {
	Host
	start     func(transport.Receiver)
	send      func(to uint64, batch []transport.Envelope) bool
	sendBytes func(to uint64, kind transport.Kind, body []byte) bool
	remove    func(id uint64)
	close     func() error
}

func (w *wrapper) Start(r transport.Receiver) {
	if w.start != nil {
		w.start(r)
		return
	}
	w.Host.Start(r)
}

func (w *wrapper) Send(to uint64, batch []transport.Envelope) bool {
	if w.send != nil {
		return w.send(to, batch)
	}
	return w.Host.Send(to, batch)
}

func (w *wrapper) SendBytes(to uint64, kind transport.Kind, body []byte) bool {
	if w.sendBytes != nil {
		return w.sendBytes(to, kind, body)
	}
	return w.Host.SendBytes(to, kind, body)
}

func (w *wrapper) RemovePeer(id uint64) {
	if w.remove != nil {
		w.remove(id)
		return
	}
	w.Host.RemovePeer(id)
}

func (w *wrapper) Close() error {
	if w.close != nil {
		return w.close()
	}
	return w.Host.Close()
}

// receiver is a receiver with a bug.
type receiver struct {
	transport.Receiver
	receive     func(from uint64, batch []transport.Envelope)
	deliver     func(from uint64, kind transport.Kind, body []byte)
	unreachable func(peer uint64)
	admit       func(peer transport.Introduction) error
}

func (r *receiver) Receive(from uint64, batch []transport.Envelope) {
	if r.receive != nil {
		r.receive(from, batch)
		return
	}
	r.Receiver.Receive(from, batch)
}

func (r *receiver) Deliver(from uint64, kind transport.Kind, body []byte) {
	if r.deliver != nil {
		r.deliver(from, kind, body)
		return
	}
	r.Receiver.Deliver(from, kind, body)
}

func (r *receiver) Unreachable(peer uint64) {
	if r.unreachable != nil {
		r.unreachable(peer)
		return
	}
	r.Receiver.Unreachable(peer)
}

func (r *receiver) Admit(peer transport.Introduction, remote string) error {
	if r.admit != nil {
		return r.admit(peer)
	}
	return r.Receiver.Admit(peer, remote)
}

// receiving lets change put a bug into the receiver of w.
func receiving(w *wrapper, change func(real transport.Receiver, broken *receiver)) {
	w.start = func(r transport.Receiver) {
		broken := &receiver{Receiver: r}
		change(r, broken)
		w.Host.Start(broken)
	}
}

type bug struct {
	name    string
	foundBy []string // cases
	plant   func(w *wrapper, t testing.TB)
}

var bugs = []bug{
	{"messages of a batch swap places", []string{"Order", "ManyGroups"}, func(w *wrapper, _ testing.TB) {
		w.send = func(to uint64, batch []transport.Envelope) bool {
			if len(batch) > 2 {
				batch = slices.Clone(batch)
				slices.Reverse(batch)
			}
			return w.Host.Send(to, batch)
		}
	}},
	{"a message arrives twice", []string{"Order"}, func(w *wrapper, _ testing.TB) {
		var n atomic.Uint64
		w.send = func(to uint64, batch []transport.Envelope) bool {
			if n.Add(1)%50 == 0 {
				w.Host.Send(to, batch)
			}
			return w.Host.Send(to, batch)
		}
	}},
	{"a body arrives twice", []string{"Bodies"}, func(w *wrapper, _ testing.TB) {
		var n atomic.Uint64
		w.sendBytes = func(to uint64, kind transport.Kind, body []byte) bool {
			if len(body) > 0 && n.Add(1)%5 == 0 {
				w.Host.SendBytes(to, kind, body)
			}
			return w.Host.SendBytes(to, kind, body)
		}
	}},
	{"the sender waits for the receiver", []string{"Bounds"}, func(w *wrapper, t testing.TB) {
		over := make(chan struct{})
		t.Cleanup(func() { close(over) })
		w.sendBytes = func(to uint64, kind transport.Kind, body []byte) bool {
			if !w.Host.SendBytes(to, kind, body) {
				<-over // the case holds the receiver fast until it ends
			}
			return true
		}
	}},
	{"the batch is kept", []string{"Content"}, func(w *wrapper, _ testing.TB) {
		var mu sync.Mutex
		var kept []transport.Envelope
		w.send = func(to uint64, batch []transport.Envelope) bool {
			mu.Lock()
			defer mu.Unlock()
			if len(batch[0].Message.Entries) == 0 {
				return w.Host.Send(to, batch)
			}
			w.Host.Send(to, kept)
			kept = batch
			return true
		}
	}},
	{"the body is kept", []string{"BodiesAreCopied"}, func(w *wrapper, _ testing.TB) {
		var mu sync.Mutex
		var kept []byte
		w.sendBytes = func(to uint64, kind transport.Kind, body []byte) bool {
			mu.Lock()
			defer mu.Unlock()
			if len(body) <= numberBytes || kind == transport.Pulse {
				return w.Host.SendBytes(to, kind, body)
			}
			w.Host.SendBytes(to, kind, kept)
			kept = body
			return true
		}
	}},
	{"messages are lost for ever, without a word", []string{"Order"}, func(w *wrapper, _ testing.TB) {
		var n atomic.Uint64
		w.send = func(to uint64, batch []transport.Envelope) bool {
			return n.Add(1) > 20 || w.Host.Send(to, batch)
		}
	}},
	{"large bodies are cut", []string{"Bodies"}, func(w *wrapper, _ testing.TB) {
		w.sendBytes = func(to uint64, kind transport.Kind, body []byte) bool {
			return w.Host.SendBytes(to, kind, body[:min(len(body), transport.FrameBodyBytes)])
		}
	}},
	{"each host is admitted", []string{"Admission"}, func(w *wrapper, _ testing.TB) {
		receiving(w, func(real transport.Receiver, broken *receiver) {
			broken.admit = func(peer transport.Introduction) error { _ = real.Admit(peer, ""); return nil }
		})
	}},
	{"a peer chooses its key", []string{"Admission"}, func(w *wrapper, _ testing.TB) {
		receiving(w, func(real transport.Receiver, broken *receiver) {
			broken.admit = func(peer transport.Introduction) error {
				peer.Key = [32]byte{0xee}
				return real.Admit(peer, "")
			}
		})
	}},
	{"opaque bodies need no admission", []string{"Admission"}, func(w *wrapper, _ testing.TB) {
		receiving(w, func(real transport.Receiver, broken *receiver) {
			var refused atomic.Bool
			broken.admit = func(peer transport.Introduction) error {
				refused.Store(real.Admit(peer, "") != nil)
				return nil
			}
			broken.receive = func(from uint64, batch []transport.Envelope) {
				if !refused.Load() {
					real.Receive(from, batch)
				}
			}
		})
	}},
	{"calls for one sender overlap, and overtake", []string{"Order"}, func(w *wrapper, t testing.TB) {
		var calls sync.WaitGroup
		t.Cleanup(calls.Wait)
		receiving(w, func(real transport.Receiver, broken *receiver) {
			broken.receive = func(from uint64, batch []transport.Envelope) {
				batch = slices.Clone(batch)
				calls.Go(func() { runtime.Gosched(); real.Receive(from, batch) })
			}
		})
	}},
	{"classes wait for each other", []string{"ClassesDoNotWait"}, func(w *wrapper, _ testing.TB) {
		receiving(w, func(real transport.Receiver, broken *receiver) {
			var one sync.Mutex
			broken.receive = func(from uint64, batch []transport.Envelope) {
				one.Lock()
				defer one.Unlock()
				real.Receive(from, batch)
			}
			broken.deliver = func(from uint64, kind transport.Kind, body []byte) {
				one.Lock()
				defer one.Unlock()
				real.Deliver(from, kind, body)
			}
		})
	}},
	{"senders wait for each other", []string{"SendersDoNotWait"}, func(w *wrapper, _ testing.TB) {
		receiving(w, func(real transport.Receiver, broken *receiver) {
			var one sync.Mutex
			broken.receive = func(from uint64, batch []transport.Envelope) {
				one.Lock()
				defer one.Unlock()
				real.Receive(from, batch)
			}
		})
	}},
	{"pulses queue up", []string{"LatestPulse"}, func(w *wrapper, _ testing.TB) {
		// They travel in the queue of control, behind a zero.
		w.sendBytes = func(to uint64, kind transport.Kind, body []byte) bool {
			tag := byte(1)
			if kind == transport.Pulse {
				kind, tag = transport.Control, 0
			}
			return w.Host.SendBytes(to, kind, append([]byte{tag}, body...))
		}
		receiving(w, func(real transport.Receiver, broken *receiver) {
			broken.deliver = func(from uint64, kind transport.Kind, body []byte) {
				if body[0] == 0 {
					kind = transport.Pulse
				}
				real.Deliver(from, kind, body[1:])
			}
		})
	}},
	{"the newest pulse is dropped while one waits", []string{"LatestPulse"}, func(w *wrapper, _ testing.TB) {
		var n atomic.Uint64
		w.sendBytes = func(to uint64, kind transport.Kind, body []byte) bool {
			if kind == transport.Pulse && n.Add(1) > 50 {
				return true
			}
			return w.Host.SendBytes(to, kind, body)
		}
	}},
	{"pulses keep consensus waiting", []string{"PulsesKeepMoving"}, func(w *wrapper, _ testing.TB) {
		var last atomic.Int64 // time of the last pulse; a message waits until there has been none for a while
		w.sendBytes = func(to uint64, kind transport.Kind, body []byte) bool {
			if kind == transport.Pulse {
				last.Store(time.Now().UnixNano())
			}
			return w.Host.SendBytes(to, kind, body)
		}
		w.send = func(to uint64, batch []transport.Envelope) bool {
			return time.Since(time.Unix(0, last.Load())) < 50*time.Millisecond || w.Host.Send(to, batch)
		}
	}},
	{"no queue is ever full", []string{"Bounds"}, func(w *wrapper, _ testing.TB) {
		w.send = func(to uint64, batch []transport.Envelope) bool { w.Host.Send(to, batch); return true }
		w.sendBytes = func(to uint64, kind transport.Kind, body []byte) bool { w.Host.SendBytes(to, kind, body); return true }
	}},
	{"a message that is too large takes its batch with it", []string{"TooLarge"}, func(w *wrapper, _ testing.TB) {
		w.send = func(to uint64, batch []transport.Envelope) bool {
			for i := range batch {
				if transport.MessageBytes(batch[i].Group, &batch[i].Message) > transport.DefaultFrameBytes {
					batch = batch[i : i+1]
					break
				}
			}
			return w.Host.Send(to, batch)
		}
	}},
	{"a host that is not in the address book is sent to", []string{"Strangers"}, func(w *wrapper, _ testing.TB) {
		w.send = func(to uint64, batch []transport.Envelope) bool { w.Host.Send(to, batch); return true }
	}},
	{"a message from another sender is believed", []string{"Strangers"}, func(w *wrapper, _ testing.TB) {
		w.send = func(to uint64, batch []transport.Envelope) bool {
			batch = slices.Clone(batch)
			for i := range batch {
				if batch[i].Message.From == 3 && to == 2 && batch[i].Message.Index == 0 {
					batch[i].Message.From = 1
				}
			}
			return w.Host.Send(to, batch)
		}
	}},
	{"no loss is reported", []string{"Restart", "Admission"}, func(w *wrapper, _ testing.TB) {
		receiving(w, func(_ transport.Receiver, broken *receiver) { broken.unreachable = func(uint64) {} })
	}},
	{"a peer that was removed is sent to", []string{"RemovePeer"}, func(w *wrapper, _ testing.TB) {
		w.remove = func(uint64) {}
	}},
	{"Close does not wait for deliveries", []string{"CloseWhileSending"}, func(w *wrapper, t testing.TB) {
		t.Cleanup(func() { w.Host.Close() })
		w.close = func() error { return nil }
	}},
	{"Close does not end", []string{"CloseWhileSending"}, func(w *wrapper, t testing.TB) {
		w.close = func() error {
			for !t.Failed() { // until it is found
				runtime.Gosched()
			}
			return w.Host.Close()
		}
	}},
	{"the second Close fails", []string{"CloseUnstarted"}, func(w *wrapper, _ testing.TB) {
		var n atomic.Uint64
		w.close = func() error {
			if n.Add(1) > 1 {
				return errors.New("closed twice")
			}
			return w.Host.Close()
		}
	}},
}

func TestKitFindsBrokenTransports(t *testing.T) {
	for _, b := range bugs {
		t.Run(b.name, func(t *testing.T) {
			for _, name := range b.foundBy {
				if sentences := findings(t, name, b.plant); len(sentences) == 0 {
					t.Errorf("%s does not find it", name)
				} else {
					t.Logf("%s: %s", name, strings.Join(sentences, "; "))
				}
			}
		})
	}
}

// The wrapper alone is no bug: what finds one, finds none without it.
func TestKitFindsNothingWithoutABug(t *testing.T) {
	for _, c := range cases {
		if sentences := findings(t, c.name, func(*wrapper, testing.TB) {}); len(sentences) > 0 {
			t.Errorf("%s: %q", c.name, sentences)
		}
	}
}

// findings runs one case on a network whose hosts all have the bug, and returns what it found.
func findings(t *testing.T, name string, plant func(*wrapper, testing.TB)) []string {
	r := &recorder{TB: t}
	n := loopback.NewNetwork()
	network := func(id uint64, _ string) Host {
		w := &wrapper{Host: n.Host(id)}
		plant(w, r)
		return w
	}
	// A wait that ends too early finds a bug that is planted all the same, and none in the other test.
	wait := 10 * time.Second
	if plant != nil && !strings.Contains(t.Name(), "Nothing") {
		wait = 300 * time.Millisecond
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer r.clean()
		for _, c := range cases {
			if c.name == name {
				c.test(&kit{TB: r, network: network, maxWait: wait})
				return
			}
		}
		r.Errorf("there is no case %s", name)
	}()
	<-done
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.said
}

// recorder is a testing.TB that records failures and does not fail.
type recorder struct {
	testing.TB
	mu       sync.Mutex
	said     []string
	cleanups []func()
}

func (r *recorder) say(s string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.said = append(r.said, s)
}

func (r *recorder) Helper()                           {}
func (r *recorder) Error(args ...any)                 { r.say(fmt.Sprint(args...)) }
func (r *recorder) Errorf(format string, args ...any) { r.say(fmt.Sprintf(format, args...)) }
func (r *recorder) Fatal(args ...any)                 { r.say(fmt.Sprint(args...)); runtime.Goexit() }
func (r *recorder) Fatalf(format string, args ...any) {
	r.say(fmt.Sprintf(format, args...))
	runtime.Goexit()
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.said) > 0
}

func (r *recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

// clean runs the cleanups, the last first.
func (r *recorder) clean() {
	for {
		r.mu.Lock()
		n := len(r.cleanups)
		if n == 0 {
			r.mu.Unlock()
			return
		}
		f := r.cleanups[n-1]
		r.cleanups = r.cleanups[:n-1]
		r.mu.Unlock()
		f()
	}
}
