// Package remote puts a load on clusters whose members are processes of their own. This process starts them
// on this machine, or they are on others and run already. The package is the side of the load. It compares
// the members before it begins, follows their leaders, and adds up what they have used. At the end it
// verifies that every member has applied each acknowledged write exactly once.
//
//	link.go        the connection to one member
//	cluster.go     all members: whether they belong together, and are ready
//	begin.go       before a point: member 1 leads, and the machines are empty
//	target.go      the cluster as a load.Target of writes
//	reads.go       and of reads
//	use.go         what the members' processes have used
//	verify.go      what they hold at the end
//	members.go     members that run already
//	processes.go   members that this process starts
//	member*.go     the other side: one member as a process, from its plan to its answers (protocol.go)
//	client*.go     a client of hosts over one connection, which finds the leader, and the server of that
//	trust.go       certificates with which loads and members prove that they belong together
//	collect.go     the results of a load, brought from where it ran; collectserver.go serves them
package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/transport/cert"
)

// Options say where the members are.
type Options struct {
	Members     []string          // where loads connect, in any order
	Credentials *cert.Credentials // nil: plain TCP
	Wait        time.Duration     // for members that are not there, or not ready
	// Waiting hears at each Interval why the load does not begin yet. nil: it is not told.
	Waiting  func(why error)
	Interval time.Duration // 0: 5 s
	// Absence is how long a member may not answer before the others go on without it: when a load begins, and
	// when it is verified. Most come back sooner, if they do. 0: 5 s.
	Absence time.Duration
}

const (
	defaultInterval = 5 * time.Second
	defaultAbsence  = 5 * time.Second
)

// notices returns a function that passes a reason on to Waiting, the first time after Interval. Any goroutine
// may call it.
func (o Options) notices() func(why error) {
	var mu sync.Mutex
	last := time.Now()
	return func(why error) {
		mu.Lock()
		defer mu.Unlock()
		if o.Waiting != nil && why != nil && time.Since(last) >= cmp.Or(o.Interval, defaultInterval) {
			last = time.Now()
			o.Waiting(why)
		}
	}
}

// Cluster is a set of members that belong together.
type Cluster struct {
	links  []*link // by id, from 0
	hellos []Hello // the same
	groups int
	// absence is Options.Absence.
	absence time.Duration
}

const (
	connectInterval = 200 * time.Millisecond
	pollInterval    = 10 * time.Millisecond
	answerTimeout   = 5 * time.Second // for everything but commands and reads
)

// Connect connects to all members, and returns when they are ready. It refuses members that do not belong
// together, with a sentence.
func Connect(ctx context.Context, o Options) (_ *Cluster, err error) {
	c := &Cluster{absence: cmp.Or(o.Absence, defaultAbsence)}
	for _, addr := range o.Members {
		c.links = append(c.links, newLink(addr, o.Credentials))
	}
	defer func() {
		if err != nil {
			c.Close()
		}
	}()
	ctx, cancel := context.WithTimeoutCause(ctx, o.Wait, errWaited)
	defer cancel()
	c.hellos = make([]Hello, len(c.links))
	errs, notice := make([]error, len(c.links)), o.notices()
	each(len(c.links), func(i int) { c.hellos[i], errs[i] = c.links[i].await(ctx, o.Wait, notice) })
	if err := firstOf(errs); err != nil {
		if context.Cause(ctx) != nil && !errors.Is(context.Cause(ctx), errWaited) {
			return nil, context.Cause(ctx)
		}
		return nil, lab.Cannot("Members", "%v", err)
	}
	if err := c.compare(); err != nil {
		return nil, err
	}
	c.groups = c.hellos[0].Components.Groups
	return c, c.ready(ctx, o.Wait, notice)
}

var errWaited = errors.New("the time to wait is over")

// firstOf returns the first error, and how many more there are: they mostly have the same reason.
func firstOf(errs []error) error {
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	switch len(errs) {
	case 0:
		return nil
	case 1:
		return errs[0]
	}
	return fmt.Errorf("%w (and there is something about %d more)", errs[0], len(errs)-1)
}

// each calls f for 0 to n − 1 at the same time, and returns when all have returned.
func each(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

// await waits until a member says who it is. What waiting does not mend ends it at once.
func (l *link) await(ctx context.Context, wait time.Duration, notice func(error)) (h Hello, err error) {
	last := errors.New("it accepts connections and answers nothing: loads are not served at this address")
	for {
		if h, err = l.hello(ctx); err == nil {
			return h, nil
		}
		if ctx.Err() == nil {
			last = err
			notice(fmt.Errorf("the member at %s: %w", l.addr, err))
		}
		var no *declined
		var refusal *Refusal
		if errors.Is(err, cert.ErrRefused) || errors.As(err, &refusal) || errors.Is(err, errUnfit) {
			return h, fmt.Errorf("the member at %s: %w", l.addr, err)
		}
		if lab.Sleep(ctx, connectInterval) != nil {
			if cause := context.Cause(ctx); !errors.Is(cause, errWaited) {
				return h, cause
			}
			if errors.As(last, &no) {
				return h, fmt.Errorf("the member at %s is not ready after %v: %w", l.addr, wait, last)
			}
			return h, fmt.Errorf("the member at %s cannot be reached, for %v: %w", l.addr, wait, last)
		}
	}
}

// compare puts the members in order, and refuses them if they do not belong together.
func (c *Cluster) compare() error {
	order := make([]int, len(c.links))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(c.hellos[a].ID, c.hellos[b].ID) })
	links, hellos := make([]*link, len(order)), make([]Hello, len(order))
	for to, from := range order {
		links[to], hellos[to] = c.links[from], c.hellos[from]
	}
	c.links, c.hellos = links, hellos
	first := hellos[0]
	for i, h := range hellos[1:] {
		a, b := fmt.Sprintf("member %d at %s", first.ID, links[0].addr), fmt.Sprintf("member %d at %s", h.ID, links[i+1].addr)
		switch {
		case h.ID == hellos[i].ID:
			return lab.Invalid("Members", "%s and %s are both member %d: give the address of each member once", links[i].addr, links[i+1].addr, h.ID)
		case h.Cluster != first.Cluster || !slices.Equal(h.Members, first.Members):
			return lab.Cannot("Members", "%s and %s are of different clusters: the one has the members %s, the other %s", a, b, strings.Join(first.Members, ", "), strings.Join(h.Members, ", "))
		case h.Version != first.Version || h.Environment.Revision != first.Environment.Revision:
			return lab.Cannot("Members", "%s and %s run different programs: %s and %s", a, b, program(first), program(h))
		}
		if differ := first.Components.Differences(h.Components); len(differ) > 0 {
			return lab.Cannot("Members", "%s and %s were started with different flags: %s", a, b, strings.Join(differ, "; "))
		}
	}
	if want := len(first.Members); len(hellos) != want {
		return lab.Invalid("Members", "the cluster of member %d at %s has %d members, and %d addresses were given: give all", first.ID, links[0].addr, want, len(hellos))
	}
	return nil
}

func program(h Hello) string {
	return strings.TrimSpace(h.Version + " " + h.Environment.Revision)
}

// ready waits until every group is founded and all members follow the same leader.
func (c *Cluster) ready(ctx context.Context, wait time.Duration, notice func(error)) error {
	var why error
	for {
		now := c.unready(ctx)
		if now == nil {
			return nil
		}
		if ctx.Err() == nil || why == nil { // else it says only that the time is over
			why = now
			notice(why)
		}
		if lab.Sleep(ctx, connectInterval) != nil {
			if cause := context.Cause(ctx); !errors.Is(cause, errWaited) {
				return cause
			}
			return lab.Cannot("Members", "the members are not ready after %v: %v", wait, why)
		}
	}
}

// unready returns why the members are not ready, or nil.
func (c *Cluster) unready(ctx context.Context) error {
	states, err := c.states(ctx)
	if err != nil {
		return err
	}
	for g := range c.groups {
		for i, of := range states {
			switch s := of[g]; {
			case s.Err != "":
				return fmt.Errorf("group %d has stopped on member %d: %s", g+1, i+1, s.Err)
			case !s.Founded || s.Leader == 0:
				return fmt.Errorf("member %d knows no leader of group %d", i+1, g+1)
			case s.Leader != states[0][g].Leader:
				return fmt.Errorf("members 1 and %d follow different leaders of group %d, %d and %d", i+1, g+1, states[0][g].Leader, s.Leader)
			}
		}
	}
	return nil
}

// unanswered names the members that have not answered, with the reasons, in one line.
type unanswered struct{ error }

func (u unanswered) Error() string { return strings.ReplaceAll(u.error.Error(), "\n", "; ") }

func (u unanswered) Unwrap() error { return u.error }

// states asks all members for the states of their groups. The error is an unanswered: the states of the
// members that it names are nil.
func (c *Cluster) states(ctx context.Context) ([][]GroupState, error) {
	all, errs := make([][]GroupState, len(c.links)), make([]error, len(c.links))
	each(len(c.links), func(i int) {
		asking, cancel := context.WithTimeout(ctx, answerTimeout)
		defer cancel()
		of, err := answer(asking, c.links[i], MemberRequest(KindGroups, 0), DecodeAnswer[[]GroupState])
		if err == nil && len(of) != c.groups {
			err = fmt.Errorf("it has %d groups, want %d", len(of), c.groups)
		}
		if err != nil {
			errs[i] = fmt.Errorf("member %d at %s: %w", i+1, c.links[i].addr, err)
			return
		}
		all[i] = of
	})
	if err := errors.Join(errs...); err != nil {
		return all, unanswered{err}
	}
	return all, nil
}

// explain adds to the error of a load which members do not answer now, unless it names them already.
func (c *Cluster) explain(ctx context.Context, err error) error {
	var named unanswered
	if err == nil || errors.As(err, &named) {
		return err
	}
	_, gone := c.states(ctx)
	if gone == nil || ctx.Err() != nil || errors.Is(gone, errEnded) { // the user does not wait; the load has hung up
		return err
	}
	return fmt.Errorf("%w; without an answer now: %w", err, gone)
}

// Hello returns what member 1 says of itself. All members have the same components.
func (c *Cluster) Hello() Hello { return c.hellos[0] }

// Machines are where the members run. A member that does not answer is described as it was before.
func (c *Cluster) Machines() (all []archive.MemberEnvironment) {
	each(len(c.links), func(i int) {
		ctx, cancel := context.WithTimeout(context.Background(), useTimeout)
		defer cancel()
		if h, err := c.links[i].hello(ctx); err == nil {
			c.hellos[i].Environment.LoadDuring = h.Environment.LoadDuring
		}
	})
	for _, h := range c.hellos {
		all = append(all, archive.MemberEnvironment{Name: fmt.Sprint(h.ID), Environment: h.Environment})
	}
	return all
}

// Close ends all connections. The members go on.
func (c *Cluster) Close() {
	each(len(c.links), func(i int) { c.links[i].close() })
}
