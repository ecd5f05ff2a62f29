package main

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/timers"
)

// command is what the machine is asked to do. The zero command is the tick: it lets leases end.
type command struct {
	Do      action        `json:",omitempty"`
	Body    string        `json:",omitempty"` // of enqueue
	ID      uint64        `json:",omitempty"` // of ack and renew: the job
	Attempt uint64        `json:",omitempty"` // of ack and renew: which lease of the job
	TTL     time.Duration `json:",omitempty"` // of lease and renew
}

// action is what a command does.
type action string

const (
	enqueue action = "enqueue" // a job, behind all others
	lease   action = "lease"   // the first job that is ready
	renew   action = "renew"   // a lease that has not ended
	ack     action = "ack"     // a job that is done: it goes
)

// result is the machine's answer. OK is false if there is nothing to lease, the job belongs to another
// attempt, or the queue is full.
type result struct {
	OK          bool
	ID, Attempt uint64
	Body        string
}

// The bounds of the queue, and of a lease.
const (
	maxJobs      = 100_000
	maxBodyBytes = 64 << 10
	maxBytes     = 1 << 30 // of all bodies
	minTTL       = 100 * time.Millisecond
	maxTTL       = time.Hour
)

// queue is the state machine. Requests read it under mu, which Apply takes too.
type queue struct {
	mu sync.Mutex
	state
}

type state struct {
	Jobs   map[uint64]job
	Ready  []uint64             // jobs without a lease, in their order; some may be done
	Leases timers.Queue[uint64] // of the jobs that workers have
	Last   uint64               // the last job
	Bytes  int                  // of all bodies
}

// job is a job that is not done.
type job struct {
	Body    string
	Attempt uint64 // how often it was leased
}

func newQueue() *queue { return &queue{state: state{Jobs: map[uint64]job{}}} }

// machine returns a new queue, and what millrace must know of it. Results are kept: a request that a client
// sends again gets the first answer.
func machine() (*queue, millrace.Machine[command, result]) {
	q := newQueue()
	m := millrace.InMemory(q, millrace.JSON[command]()).Results(millrace.JSON[result]())
	return q, m.Digest(q.digest).Timers(&q.Leases, command{})
}

// Apply implements millrace.StateMachine.
func (q *queue) Apply(batch []millrace.Command[command], results []result) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, c := range batch {
		for id := range q.Leases.Expire(c.Time, maxJobs) {
			q.Ready = append(q.Ready, id)
		}
		results[i] = q.apply(c.Value, c.Time)
	}
	return nil
}

func (q *state) apply(c command, now time.Duration) result {
	j, found := q.Jobs[c.ID]
	switch _, leased := q.Leases.Deadline(c.ID); {
	case c.Do == enqueue && len(q.Jobs) < maxJobs && q.Bytes+len(c.Body) <= maxBytes:
		q.Last++
		q.Jobs[q.Last] = job{Body: c.Body}
		q.Ready = append(q.Ready, q.Last)
		q.Bytes += len(c.Body)
		return result{OK: true, ID: q.Last}
	case c.Do == lease:
		return q.lease(now + c.TTL)
	case c.Do == renew && leased && j.Attempt == c.Attempt:
		q.Leases.Set(c.ID, now+c.TTL)
		return result{OK: true, ID: c.ID, Attempt: c.Attempt}
	case c.Do == ack && found && j.Attempt == c.Attempt:
		q.Leases.Cancel(c.ID)
		delete(q.Jobs, c.ID)
		q.Bytes -= len(j.Body)
		return result{OK: true, ID: c.ID, Attempt: c.Attempt}
	}
	return result{}
}

// lease gives the first job that is ready to a worker, until the end.
func (q *state) lease(end time.Duration) result {
	for len(q.Ready) > 0 {
		id := q.Ready[0]
		q.Ready = q.Ready[1:]
		if j, found := q.Jobs[id]; found { // not acknowledged after its lease had ended
			j.Attempt++
			q.Jobs[id] = j
			q.Leases.Set(id, end)
			return result{true, id, j.Attempt, j.Body}
		}
	}
	return result{}
}

// Snapshot implements millrace.StateMachine.
func (q *queue) Snapshot() (millrace.Snapshot, error) {
	b, err := json.Marshal(&q.state)
	return millrace.BytesSnapshot(b), err
}

// Restore implements millrace.StateMachine.
func (q *queue) Restore(_ context.Context, r io.Reader) error {
	fresh := newQueue()
	if err := json.NewDecoder(r).Decode(&fresh.state); err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.state = fresh.state
	return nil
}

// digest depends on the whole state, so that members notice if theirs differ.
func (q *queue) digest() uint64 {
	h := fnv.New64a()
	fmt.Fprintln(h, q.Last, q.Ready)
	for _, id := range slices.Sorted(maps.Keys(q.Jobs)) {
		end, _ := q.Leases.Deadline(id)
		fmt.Fprintf(h, "%d %+v %d\n", id, q.Jobs[id], end)
	}
	return h.Sum64()
}
