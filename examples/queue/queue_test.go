package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/millracetest"
	"github.com/millrace/millrace/sim"
)

// cluster is three members in a bubble, and their servers.
type cluster struct {
	*millracetest.Cluster[command, result]
	mu     sync.Mutex
	queues map[uint64]*queue
}

func newCluster(t *testing.T) *cluster {
	c := &cluster{queues: map[uint64]*queue{}}
	c.Cluster = millracetest.New(t, 3, func(id uint64) millrace.Machine[command, result] {
		q, m := machine()
		c.mu.Lock()
		c.queues[id] = q
		c.mu.Unlock()
		return m
	})
	return c
}

// do sends a request to a member. A key is sent again until the outcome is known; 0: the test has ended.
func (c *cluster) do(ctx context.Context, rng *rand.Rand, method, path, body, key string) (code int, text string) {
	for ctx.Err() == nil {
		id := 1 + rng.Uint64N(3)
		c.mu.Lock()
		s := &server{c.Node(id), c.queues[id], time.Second}
		c.mu.Unlock()
		r := httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(body))
		r.Header.Set("Idempotency-Key", key)
		w := httptest.NewRecorder()
		s.handler().ServeHTTP(w, r)
		if w.Code != http.StatusGatewayTimeout && w.Code != http.StatusServiceUnavailable {
			return w.Code, strings.TrimSpace(w.Body.String())
		}
		<-time.After(20 * time.Millisecond) // of the bubble's clock
	}
	return 0, ""
}

// TestJobsAreDone: the leader is killed again and again, and workers forget jobs. Each job is stored once, is
// done at least once, and never leased again after its acknowledgement was answered.
func TestJobsAreDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const producers, workers, each = 4, 4, 100
		c := newCluster(t)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		if err := c.Node(c.Leader(ctx)).WaitReady(ctx); err != nil {
			t.Fatal(err)
		}
		var (
			mu    sync.Mutex
			done  = map[string]time.Time{} // when its worker knew that it is acknowledged
			again int                      // leases of a job that had one before
			wg    sync.WaitGroup
		)
		for p := range producers {
			rng := rand.New(rand.NewPCG(1, uint64(p)))
			session := c.Node(1).NewSession()
			wg.Go(func() {
				for i := range each {
					m := session.Next()
					if code, text := c.do(ctx, rng, "POST", "/jobs", fmt.Sprintf("%d.%d", p, i), m.String()); code != http.StatusOK {
						t.Errorf("enqueue: %d %s", code, text)
					}
					session.End(m)
				}
			})
		}
		for k := range workers {
			rng := rand.New(rand.NewPCG(2, uint64(k)))
			session := c.Node(1).NewSession()
			once := func(method, path string) (code int, text string) {
				m := session.Next()
				defer session.End(m)
				return c.do(ctx, rng, method, path, "", m.String())
			}
			wg.Go(func() {
				for ctx.Err() == nil {
					mu.Lock()
					all := len(done) == producers*each
					mu.Unlock()
					if all {
						return
					}
					asked := time.Now()
					code, text := once("POST", "/lease?ttl=2s")
					var r result
					if code != http.StatusOK || json.Unmarshal([]byte(text), &r) != nil {
						<-time.After(50 * time.Millisecond)
						continue
					}
					mu.Lock()
					if r.Attempt > 1 {
						again++
					}
					if at, acked := done[r.Body]; acked && at.Before(asked) {
						t.Errorf("job %s was acknowledged, and is leased again: %+v", r.Body, r)
					}
					mu.Unlock()
					if rng.IntN(5) == 0 {
						continue // it forgets the job: the lease ends
					}
					if code, _ := once("DELETE", fmt.Sprintf("/jobs/%d?attempt=%d", r.ID, r.Attempt)); code == http.StatusOK {
						mu.Lock()
						if _, acked := done[r.Body]; acked {
							t.Errorf("job %s was acknowledged twice", r.Body)
						}
						done[r.Body] = time.Now()
						mu.Unlock()
					}
				}
			})
		}
		ended := make(chan struct{})
		go func() { wg.Wait(); close(ended) }()
		kills := 0
		for running := true; running; {
			select {
			case <-ended:
				running = false
			case <-time.After(500 * time.Millisecond):
				id := c.Leader(ctx)
				c.Kill(id)
				<-time.After(300 * time.Millisecond)
				c.Restart(id)
				kills++
			}
		}
		_, left := c.do(ctx, rand.New(rand.NewPCG(3, 3)), "GET", "/length", "", "")
		t.Logf("%d jobs done, %d leased again, %d kills of the leader; at the end %s", len(done), again, kills, left)
		if len(done) != producers*each || left != `{"Ready":0,"Leased":0}` || again == 0 || kills == 0 {
			t.Error("want all jobs done, an empty queue, leases that ended, and kills")
		}
	})
}

// TestSimulated runs the machine on simulated hosts, with all their faults.
func TestSimulated(t *testing.T) {
	for seed := range uint64(5) {
		_, _, err := sim.RunMachine(sim.Options{Seed: seed, Faults: time.Second}, sim.Workload[command, result]{
			Machine: func(uint64) millrace.Machine[command, result] { _, m := machine(); return m },
			Command: func(rng *rand.Rand) command {
				c := command{Do: []action{enqueue, enqueue, lease, lease, renew, ack}[rng.IntN(6)], TTL: minTTL}
				if c.Do == renew || c.Do == ack {
					c.ID, c.Attempt = 1+rng.Uint64N(20), 1+rng.Uint64N(3)
				}
				return c
			},
			Check: check,
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// check looks at what was answered, in the order of the log. Attempts of a job ascend, the latest one alone
// acknowledges it, and nothing comes after that.
func check(history []sim.Operation[command, result]) error {
	slices.SortFunc(history, func(a, b sim.Operation[command, result]) int {
		return cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(a.Pos, b.Pos))
	})
	latest, acked := map[uint64]uint64{}, map[uint64]bool{}
	for _, op := range history {
		r := op.Output
		switch {
		case op.Outcome != sim.Applied || !r.OK || op.Input.Do == enqueue:
		case acked[r.ID]:
			return fmt.Errorf("job %d was acknowledged, and then there is %+v with %+v", r.ID, op.Input, r)
		case op.Input.Do == lease && r.Attempt <= latest[r.ID], op.Input.Do != lease && r.Attempt < latest[r.ID]:
			return fmt.Errorf("job %d is at attempt %d, and then there is %+v with %+v", r.ID, latest[r.ID], op.Input, r)
		default:
			latest[r.ID], acked[r.ID] = r.Attempt, op.Input.Do == ack
		}
	}
	return nil
}
