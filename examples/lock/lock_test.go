package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/millracetest"
	"github.com/millrace/millrace/sim"
	"github.com/millrace/millrace/smtest"
)

func TestMachineIsSound(t *testing.T) {
	smtest.Run(t, func() millrace.Machine[command, result] { _, m := machine(); return m },
		command{Do: acquire, Name: "a", Owner: "x", TTL: 200 * time.Millisecond},
		command{Do: acquire, Name: "a", Owner: "y", TTL: time.Second},
		command{Do: renew, Name: "a", Token: 1, TTL: time.Second},
		command{Do: acquire, Name: "b", Owner: "y", TTL: time.Hour},
		command{Do: release, Name: "a", Token: 7},
		command{Do: release, Name: "a", Token: 1},
		command{Do: release, Name: "a", Token: 1},
		command{Do: acquire, Name: "a", Owner: "y", TTL: time.Second},
		command{Do: acquire, Name: "a", Owner: "y", TTL: time.Minute},
		command{Do: renew, Name: "b", Token: 1, TTL: time.Minute},
	)
}

// TestLease: a lease expires in log time, and the next token is larger.
func TestLease(t *testing.T) {
	l := newLocks()
	for i, step := range []struct {
		at   time.Duration
		do   command
		want string
	}{
		{0, command{Do: acquire, Name: "a", Owner: "x", TTL: time.Second}, "true x 1"},
		{1, command{Do: acquire, Name: "a", Owner: "y", TTL: time.Second}, "false x 1"},
		{1, command{Do: acquire, Name: "b", Owner: "y", TTL: time.Second}, "true y 2"},
		{time.Second + grace - 1, command{Do: acquire, Name: "a", Owner: "y", TTL: time.Second}, "false x 1"},
		{time.Second + grace, command{Do: acquire, Name: "a", Owner: "y", TTL: time.Second}, "true y 3"},
		{time.Second + grace, command{Do: renew, Name: "a", Token: 1, TTL: time.Second}, "false y 3"},
		{2 * time.Second, command{Do: renew, Name: "a", Token: 3, TTL: time.Second}, "true y 3"},
		{3 * time.Second, command{Do: acquire, Name: "a", Owner: "x", TTL: time.Second}, "false y 3"},
		{3 * time.Second, command{Do: release, Name: "a", Token: 1}, "false y 3"},
		{3 * time.Second, command{Do: release, Name: "a", Token: 3}, "true y 3"},
		{3 * time.Second, command{Do: release, Name: "a", Token: 3}, "false  0"},
		{4 * time.Second, command{Do: renew, Name: "b", Token: 2, TTL: time.Second}, "false  0"},
		{time.Hour, command{Do: acquire, Name: "c", Owner: "x", TTL: time.Second}, "true x 4"},
	} {
		r := l.apply(step.do, step.at)
		if got := fmt.Sprintf("%v %s %d", r.Held, r.Owner, r.Token); got != step.want {
			t.Errorf("step %d: %+v gives %+v, want %q", i, step.do, r, step.want)
		}
	}
	if len(l.Locks) != 1 {
		t.Errorf("%d locks are kept, want the last only", len(l.Locks))
	}
}

// TestSimulated runs the machine on simulated hosts, with all their faults, and looks at the tokens: those of
// a lock belong to one owner each.
func TestSimulated(t *testing.T) {
	for seed := range uint64(5) {
		_, _, err := sim.RunMachine(sim.Options{Seed: seed, Faults: time.Second}, sim.Workload[command, result]{
			Machine: func(uint64) millrace.Machine[command, result] { _, m := machine(); return m },
			Command: func(rng *rand.Rand) command {
				c := command{Do: []action{acquire, acquire, renew, release}[rng.IntN(4)], Name: fmt.Sprint(rng.IntN(3)), TTL: minTTL}
				c.Owner, c.Token = fmt.Sprint(rng.IntN(5)), uint64(1+rng.IntN(20))
				return c
			},
			Check: func(history []sim.Operation[command, result]) error {
				owners := map[uint64]string{}
				for _, op := range history {
					if r := op.Output; op.Outcome == sim.Applied && op.Input.Do == acquire && r.Held {
						if before, ok := owners[r.Token]; ok && before != r.Owner {
							return fmt.Errorf("token %d belongs to %s and to %s", r.Token, before, r.Owner)
						}
						owners[r.Token] = r.Owner
					}
				}
				return nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// resource is what a lock protects. It remembers the largest token that it has seen, and refuses smaller
// ones: this, and not the clock of a client, is what makes a lock safe.
type resource struct {
	mu      sync.Mutex
	last    uint64
	owners  map[uint64]string
	stale   int // writes that it has refused
	changes int
}

func (r *resource) write(token uint64, owner string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if token < r.last {
		r.stale++
		return nil
	}
	if before, ok := r.owners[token]; ok && before != owner {
		return fmt.Errorf("%s writes with the token %d of %s", owner, token, before)
	}
	r.last, r.owners[token] = token, owner
	r.changes++
	return nil
}

// pass waits on the clock of the bubble, which goes on when all goroutines in it wait: no real time passes.
func pass(d time.Duration) { <-time.After(d) }

// holding is the time in which a client believes that it holds the lock: from the answer until its ttl after
// the question.
type holding struct {
	owner      string
	token      uint64
	from, till time.Time
}

// TestNoTwoHolders: while the leader is killed again and again, no two clients believe that they hold the
// lock at the same time, tokens only grow, and the resource refuses those who were paused while they held it.
// It runs in a bubble of testing/synctest, whose clock all clients share.
func TestNoTwoHolders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl, clients = 300 * time.Millisecond, 5
		c := millracetest.New(t, 3, func(uint64) millrace.Machine[command, result] { _, m := machine(); return m })
		lasts := 30 * time.Second
		if testing.Short() {
			lasts /= 5
		}
		ctx, cancel := context.WithTimeout(t.Context(), lasts)
		defer cancel()
		r := &resource{owners: map[uint64]string{}}
		var (
			mu   sync.Mutex
			held []holding
			wg   sync.WaitGroup
		)
		for i := range clients {
			rng := rand.New(rand.NewPCG(1, uint64(i)))
			wg.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					owner := fmt.Sprintf("client %d.%d", i, n)
					asked := time.Now()
					try, stop := context.WithTimeout(ctx, ttl)
					res, err := c.Node(1+rng.Uint64N(3)).Propose(try, command{Do: acquire, Name: "a", Owner: owner, TTL: ttl})
					stop()
					if err != nil || !res.Held {
						pass(time.Duration(rng.IntN(20)) * time.Millisecond)
						continue
					}
					h := holding{owner, res.Token, time.Now(), asked.Add(ttl)}
					pass(time.Duration(rng.IntN(200)) * time.Millisecond)
					if rng.IntN(4) == 0 {
						pass(4 * ttl) // it is paused, and does not know
					}
					if err := r.write(res.Token, owner); err != nil {
						t.Error(err)
					}
					if rng.IntN(2) == 0 {
						if now := time.Now(); now.Before(h.till) {
							h.till = now
						}
						_, _ = c.Node(1+rng.Uint64N(3)).Propose(ctx, command{Do: release, Name: "a", Token: res.Token})
					}
					mu.Lock()
					held = append(held, h)
					mu.Unlock()
				}
			})
		}
		kills := 0
		for ctx.Err() == nil {
			pass(700 * time.Millisecond)
			id := c.Leader(t.Context())
			c.Kill(id)
			pass(300 * time.Millisecond)
			c.Restart(id)
			kills++
		}
		wg.Wait()
		slices.SortFunc(held, func(a, b holding) int { return int(int64(a.token) - int64(b.token)) })
		for i := 1; i < len(held); i++ {
			a, b := held[i-1], held[i]
			switch {
			case a.token == b.token:
				t.Errorf("%+v and %+v have the same token", a, b)
			case b.from.Before(a.till):
				t.Errorf("two clients hold the lock: %+v and %+v", a, b)
			}
		}
		t.Logf("%d times held, %d kills of the leader, %d writes, %d refused", len(held), kills, r.changes, r.stale)
		if len(held) < int(lasts/time.Second) || kills < int(lasts/time.Second)/3 || r.stale == 0 {
			t.Errorf("too little has happened")
		}
	})
}

// TestHTTP: what a client sees, on a host that does not lead.
func TestHTTP(t *testing.T) {
	var mu sync.Mutex
	states := map[uint64]*locks{}
	c := millracetest.New(t, 3, func(id uint64) millrace.Machine[command, result] {
		mu.Lock()
		defer mu.Unlock()
		l, m := machine()
		states[id] = l
		return m
	})
	id := c.Leader(t.Context())%3 + 1
	s := &server{node: c.Node(id), locks: states[id], timeout: 10 * time.Second}
	web := httptest.NewServer(s.handler())
	defer web.Close()
	for _, step := range []struct {
		method, path string
		code         int
		want         answer
	}{
		{"GET", "/locks/a", 200, answer{}},
		{"POST", "/locks/a?owner=x&ttl=1h", 200, answer{true, "x", 1}},
		{"POST", "/locks/a?owner=y&ttl=1h", 409, answer{Owner: "x"}},
		{"POST", "/locks/a?owner=x&ttl=1h", 200, answer{true, "x", 1}},
		{"GET", "/locks/a", 200, answer{true, "x", 1}},
		{"PUT", "/locks/a?token=1&ttl=30m", 200, answer{true, "x", 1}},
		{"DELETE", "/locks/a?token=2", 409, answer{Owner: "x"}},
		{"DELETE", "/locks/a?token=1", 200, answer{true, "x", 1}},
		{"POST", "/locks/a?owner=y&ttl=1h", 200, answer{true, "y", 2}},
		{"POST", "/locks/a?owner=y&ttl=1", 400, answer{}},
		{"POST", "/locks/a?owner=y&ttl=1ms", 400, answer{}},
		{"POST", "/locks/a?ttl=1s", 400, answer{}},
		{"DELETE", "/locks/a?token=one", 400, answer{}},
		{"PUT", "/locks/a?ttl=1s", 400, answer{}},
	} {
		r, err := http.NewRequestWithContext(t.Context(), step.method, web.URL+step.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		var got answer
		if response.StatusCode != http.StatusBadRequest {
			err = json.NewDecoder(response.Body).Decode(&got)
		}
		response.Body.Close()
		if err != nil || response.StatusCode != step.code || got != step.want {
			t.Errorf("%s %s: %d %+v (%v), want %d %+v", step.method, step.path, response.StatusCode, got, err, step.code, step.want)
		}
	}
	c.Kill(id)
	response, err := http.Get(web.URL + "/locks/a")
	if err != nil || response.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("of a host that was killed: %v, %v", response, err)
	}
}
