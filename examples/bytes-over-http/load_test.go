package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Clients that put while the processes are killed, and what they know about each put.

// client follows redirects, with the body.
var client = &http.Client{
	Timeout:   2 * requestTimeout,
	Transport: &http.Transport{MaxIdleConnsPerHost: 2 * writers},
	CheckRedirect: func(_ *http.Request, via []*http.Request) error {
		if len(via) == 5 {
			return errCircle
		}
		return nil
	},
}

var errCircle = errors.New("the hosts name each other as the leader")

// outcome is what a client knows about a put.
type outcome int

const (
	acknowledged outcome = iota
	refused              // surely not committed
	unknown              // may be committed
)

// put sends a put to a host, which may redirect it.
func put(address, key, value string) (o outcome, index uint64, err error) {
	r, err := http.NewRequestWithContext(context.Background(), http.MethodPut, "http://"+address+"/keys/"+key, strings.NewReader(value))
	if err != nil {
		return refused, 0, err
	}
	answer, err := client.Do(r)
	if dial := (*net.OpError)(nil); errors.Is(err, errCircle) || errors.As(err, &dial) && dial.Op == "dial" {
		return refused, 0, err // no host has the body
	} else if err != nil {
		return unknown, 0, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	switch {
	case answer.StatusCode == http.StatusOK:
		index, err = strconv.ParseUint(answer.Header.Get("Millrace-Index"), 10, 64)
		return acknowledged, index, err
	case answer.StatusCode == http.StatusServiceUnavailable:
		return refused, 0, fmt.Errorf("%s: %s", answer.Status, text)
	}
	return unknown, 0, errors.Join(fmt.Errorf("%s: %s", answer.Status, text), err)
}

// load is clients that put, and what they know.
type load struct {
	ctx     context.Context
	stopped context.CancelFunc
	clients sync.WaitGroup

	mu      sync.Mutex
	acked   []ack
	indexes map[uint64]string // index → key
	refused []string          // keys
	unknown []string          // keys
	fault   error             // the first that no fault of a process explains
}

// ack is a put that was acknowledged. Each key is put once, and its value is made from it.
type ack struct {
	key   string
	index uint64
	at    time.Time
}

const (
	writers = 8
	pace    = 10 * time.Millisecond // between the puts of one client
)

func valueOf(key string) string { return strings.Repeat(key+" ", 10) }

func startLoad(t *testing.T, c processes) *load {
	l := &load{indexes: map[uint64]string{}}
	l.ctx, l.stopped = context.WithCancel(context.Background())
	for k := range writers {
		l.clients.Go(func() { l.put(k, c) })
	}
	t.Cleanup(l.stop)
	return l
}

func (l *load) stop() {
	l.stopped()
	l.clients.Wait()
}

// put is one client: it goes to the next host when one fails.
func (l *load) put(k int, c processes) {
	ticks := time.NewTicker(pace)
	defer ticks.Stop()
	for i, at := 0, k; ; i++ {
		select {
		case <-l.ctx.Done():
			return
		case <-ticks.C:
		}
		key := fmt.Sprintf("client-%d-put-%d", k, i)
		o, index, err := put(c[at%len(c)].address, key, valueOf(key))
		l.note(o, key, index, err)
		if o != acknowledged {
			at++
		}
	}
}

func (l *load) note(o outcome, key string, index uint64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch before, taken := l.indexes[index]; {
	case o == acknowledged && (err != nil || taken):
		l.fault = errors.Join(l.fault, fmt.Errorf("%s was acknowledged at index %d (%v), where %q was acknowledged", key, index, err, before))
	case o == acknowledged:
		l.acked = append(l.acked, ack{key, index, time.Now()})
		l.indexes[index] = key
	case o == unknown:
		l.unknown = append(l.unknown, key)
	default:
		l.refused = append(l.refused, key)
	}
}

func (l *load) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.acked)
}

func (l *load) waitForMore(t *testing.T, n int, when string) {
	t.Helper()
	was := l.count()
	eventually(t, fmt.Sprintf("%d more puts are acknowledged %s", n, when), func() error {
		if more := l.count() - was; more < n {
			return fmt.Errorf("%d were", more)
		}
		return nil
	})
}

// gapDuring does something to the hosts, waits for n more acknowledgements, and returns the longest time
// between two.
func (l *load) gapDuring(t *testing.T, n int, what func()) (gap time.Duration) {
	t.Helper()
	was := l.count()
	what()
	l.waitForMore(t, n, "with two hosts")
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := max(was, 1); i < len(l.acked); i++ {
		gap = max(gap, l.acked[i].at.Sub(l.acked[i-1].at))
	}
	return gap.Round(time.Millisecond)
}

// check reads all keys from each of the hosts: what was acknowledged is there, and what was refused is not.
func (l *load) check(t *testing.T, hosts processes) {
	t.Helper()
	l.mu.Lock()
	acked, refused, unknown, fault := slices.Clone(l.acked), slices.Clone(l.refused), slices.Clone(l.unknown), l.fault
	l.mu.Unlock()
	t.Logf("%d puts acknowledged, %d refused, %d unknown", len(acked), len(refused), len(unknown))
	if fault != nil {
		t.Error(fault)
	}
	if len(acked) == 0 || len(refused) == 0 {
		t.Error("the processes were not killed under load")
	}
	var last uint64
	for _, a := range acked {
		last = max(last, a.index)
	}
	for _, p := range hosts {
		eventually(t, fmt.Sprintf("host %d has applied through index %d", p.id, last), func() error {
			s, err := p.status()
			if err == nil && s.Applied < last {
				err = fmt.Errorf("%+v", s)
			}
			return err
		})
		eachOf(t, acked, func(a ack) error {
			value, through, err := p.get(a.key)
			if err == nil && (value == nil || string(value) != valueOf(a.key)) {
				err = fmt.Errorf("host %d, applied through %d, has %d bytes for %s, acknowledged at index %d: %.60q", p.id, through, len(value), a.key, a.index, value)
			}
			return err
		})
		eachOf(t, refused, func(key string) error {
			value, through, err := p.get(key)
			if err == nil && value != nil {
				err = fmt.Errorf("host %d, applied through %d, has %s, which was surely not committed", p.id, through, key)
			}
			return err
		})
	}
}

// checkEqual checks, when the load has stopped, that two hosts have the same state, also of the puts with an
// unknown outcome.
func (l *load) checkEqual(t *testing.T, a, b *process) {
	t.Helper()
	eventually(t, "two hosts have the same state", func() error {
		one, err1 := a.status()
		two, err2 := b.status()
		if err1 != nil || err2 != nil || one.Applied != two.Applied || one.Keys != two.Keys || one.Bytes != two.Bytes {
			return fmt.Errorf("%+v (%v), %+v (%v)", one, err1, two, err2)
		}
		return nil
	})
	committed := 0
	for _, key := range l.unknown {
		one, _, err1 := a.get(key)
		two, _, err2 := b.get(key)
		if err1 != nil || err2 != nil || !bytes.Equal(one, two) || one != nil && string(one) != valueOf(key) {
			t.Errorf("%s: host %d has %.60q (%v), host %d has %.60q (%v)", key, a.id, one, err1, b.id, two, err2)
		}
		if one != nil {
			committed++
		}
	}
	t.Logf("of %d puts with an unknown outcome %d were committed", len(l.unknown), committed)
	if s, err := a.status(); err != nil || s.Keys != len(l.acked)+committed {
		t.Errorf("host %d has %d keys (%v), want %d: %d acknowledged and %d that were unknown", a.id, s.Keys, err, len(l.acked)+committed, len(l.acked), committed)
	}
}

// eachOf calls check for all items, from several goroutines, and reports the first errors.
func eachOf[T any](t *testing.T, items []T, check func(T) error) {
	t.Helper()
	var checkers sync.WaitGroup
	for k := range writers {
		checkers.Go(func() {
			for i := k; i < len(items); i += writers {
				if err := check(items[i]); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	checkers.Wait()
}
