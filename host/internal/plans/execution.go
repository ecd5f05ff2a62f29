package plans

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/internal/lock"
)

// Member is the member of a group for which callers here wait.
type Member interface {
	Roster() *membership.Roster // nil: the group is not founded
	Err() error                 // why the group has stopped here, or nil
	Ask(q Request)              // the leader
}

// Executions are what callers here wait for, in one group.
type Executions struct {
	member      Member
	group, self uint64
	running     *atomic.Int64 // those of all groups of the host

	mu  lock.Mutex
	all []*Execution
}

// Init prepares the executions of a group for their first use.
func (x *Executions) Init(m Member, group, self uint64, running *atomic.Int64) {
	x.member, x.group, x.self, x.running = m, group, self, running
}

// Execution is an entry that a caller waits for.
type Execution struct {
	What string // it is, in words
	// Outcome says whether it is in force, or what has come instead, by a roster.
	Outcome func(*membership.Roster) (done bool, err error)

	of      *Executions
	request Request

	mu   lock.Mutex
	is   bool
	err  error
	done chan struct{}
}

// New returns an execution for the data of an entry. Its caller sets Outcome before it starts.
func (x *Executions) New(data []byte, what string, args ...any) *Execution {
	return &Execution{What: fmt.Sprintf(what, args...), of: x, request: RequestOf(x.self, data), done: make(chan struct{})}
}

// ID returns what names the entry.
func (e *Execution) ID() membership.PlanID { return e.request.ID }

// Done is closed when the execution has ended.
func (e *Execution) Done() <-chan struct{} { return e.done }

// Start makes this host ask, and returns e.
func (e *Execution) Start() *Execution {
	e.of.mu.Lock()
	e.of.all = append(e.of.all, e)
	e.of.mu.Unlock()
	e.of.running.Add(1)
	e.ask()
	return e
}

// Poll returns whether the entry is in force, as this member has applied it, or with which error the
// execution has ended. It never waits.
func (e *Execution) Poll() (done bool, err error) {
	if r := e.of.member.Roster(); r != nil {
		if done, err := e.Outcome(r); done {
			e.Finish(err)
		}
	}
	if err := e.of.member.Err(); err != nil {
		e.Finish(err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.is, e.err
}

// Finish gives the outcome, once.
func (e *Execution) Finish(err error) {
	e.mu.Lock()
	first := !e.is
	if first {
		e.is, e.err = true, err
		close(e.done)
	}
	e.mu.Unlock()
	if first {
		e.Stop()
	}
}

// Stop makes this host ask no more.
func (e *Execution) Stop() {
	x := e.of
	x.mu.Lock()
	n := len(x.all)
	x.all = slices.DeleteFunc(x.all, func(other *Execution) bool { return other == e })
	n -= len(x.all)
	x.mu.Unlock()
	x.running.Add(int64(-n))
}

func (e *Execution) ask() {
	if done, _ := e.Poll(); !done {
		e.of.member.Ask(e.request)
	}
}

func (x *Executions) list() []*Execution {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.all)
}

// Ask asks the leader again for everything that callers wait for.
func (x *Executions) Ask() {
	for _, e := range x.list() {
		e.ask()
	}
}

// Poll looks at the executions after each change of the roster. A roster tells only of the last plans that
// have ended, and of open tokens. A caller that looks later would not learn that its entry was in force.
func (x *Executions) Poll() {
	for _, e := range x.list() {
		_, _ = e.Poll() // it keeps the outcome
	}
}

// Refuse ends the executions of an entry.
func (x *Executions) Refuse(id membership.PlanID, why error) {
	for _, e := range x.list() {
		if e.request.ID == id {
			e.Finish(fmt.Errorf("millrace: group %d: %w", x.group, why))
		}
	}
}
