package host

import (
	"errors"
	"time"

	"github.com/millrace/millrace/host/internal/proposals"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/internal/completion"
)

// Completions gathers the outcomes of commands and reads that one goroutine hands in, of any number of
// groups. So many are under way without a goroutine for each, and none is woken for each. A round of its
// owner:
//
//	n, err := g.SubmitMany(commands, tags, done) // ErrCompletionsFull and ErrOverloaded: not all
//	commands, tags = commands[n:], tags[n:]
//	<-done.Ready() // if any are under way
//	outcomes = done.Take(outcomes)
//
// Its methods may be called by any goroutine and do not block.
type Completions struct{ queue *proposals.Completions }

// NewCompletions returns Completions for at most limit commands and reads that are under way, or whose
// outcomes are not taken yet. That bounds their memory, about 400 bytes each. A limit below 1 counts as 1.
func NewCompletions(limit int) *Completions {
	return &Completions{completion.New[outcome.Completion](limit)}
}

// NewSink returns Completions whose outcomes go to f, and not to Take: all reads of a round in one call. f is
// called where an outcome becomes known, by one goroutine at a time. It must not block, call a group, or keep
// its argument. A panic of f loses the outcomes of that call, and nothing more is taken.
func NewSink(limit int, f func([]outcome.Completion)) *Completions {
	return &Completions{completion.NewSink(limit, f)}
}

// Ready returns a channel that has an element when outcomes wait. Take removes it; who receives it calls
// Take.
func (c *Completions) Ready() <-chan struct{} { return c.queue.Ready() }

// Take returns the outcomes that wait, in the order in which they became known. There may be none. They are
// in the memory of reuse, which may be nil, if they fit.
func (c *Completions) Take(reuse []outcome.Completion) []outcome.Completion {
	return c.queue.Take(reuse)
}

// Space returns how many more commands and reads it takes now.
func (c *Completions) Space() int { return c.queue.Space() }

// outcomes returns where outcomes go, or nil.
func (c *Completions) outcomes() *proposals.Completions {
	if c == nil {
		return nil
	}
	return c.queue
}

// SubmitMany hands in commands without waiting, as Submit does, with one lock and one wake. It takes all of
// them or the first of them, and returns how many. Each one taken gets one outcome, in to, with its tag. Its
// bytes belong to Millrace and must not be changed, also after the outcome: other members may not have them
// yet. The error says why the next one, commands[taken], was not taken: an error of Submit, or
// ErrCompletionsFull.
func (g *Group) SubmitMany(commands [][]byte, tags []uint64, to *Completions) (taken int, err error) {
	done := to.outcomes()
	if err := done.Reject(len(commands), len(tags)); err != nil || len(commands) == 0 {
		return 0, err
	}
	if err := g.rejectPlain(); err != nil {
		g.countRefused(err)
		return 0, err
	}
	valid := 0
	for valid < len(commands) && err == nil {
		if err = g.rejectCommand(commands[valid]); err == nil {
			valid++
		}
	}
	begun := done.Begin(valid)
	waiters := proposals.NewWaiters(tags[:begun], done)
	batch := make([]proposals.Proposal, begun)
	for i := range batch {
		batch[i] = proposals.Proposal{Command: commands[i], Waiter: &waiters[i]}
	}
	taken, refused := g.handMany(batch)
	done.Cancel(begun - taken)
	switch {
	case refused != nil:
		err = refused
	case begun < valid:
		return taken, outcome.ErrCompletionsFull
	}
	g.countRefused(err)
	return taken, err
}

// handMany hands commands to the inbox, or the first of them.
func (g *Group) handMany(batch []proposals.Proposal) (taken int, err error) {
	if len(batch) == 0 {
		return 0, nil
	}
	taken, wakes, err := g.inbox.enqueueProposals(batch)
	if wakes {
		g.wake()
	}
	if errors.Is(err, outcome.ErrOverloaded) {
		return taken, g.overloaded()
	}
	return taken, outcome.WithCause(err, g.Err())
}

// CallMany hands in calls, as Call does, with one lock and one wake. It takes all of them or the first of
// them, and returns how many. The error says why the next one was not taken.
func (g *Group) CallMany(calls []*Call) (taken int, err error) {
	batch := make([]proposals.Proposal, 0, len(calls))
	for _, c := range calls {
		if err = g.rejectCall(c); err != nil {
			break
		}
		batch = append(batch, g.begin(c))
	}
	taken, refused := g.handMany(batch)
	if refused != nil {
		err = refused
	}
	g.countRefused(err)
	return taken, err
}

// SubmitRead begins a read as StartRead does, whose outcome comes to Completions. An error means that it has
// not begun: ErrCompletionsFull. Nothing ends a read that waits for a leader but the end of the group.
func (g *Group) SubmitRead(tag uint64, maxAge time.Duration, to *Completions) error {
	done := to.outcomes()
	if err := done.Reject(1, 1); err != nil {
		return err
	}
	if done.Begin(1) == 0 {
		return outcome.ErrCompletionsFull
	}
	r := &submittedRead{tag: tag, to: done}
	r.OnDone(r)
	g.StartRead(&r.Read, maxAge)
	return nil
}

// submittedRead is a read whose outcome comes to Completions.
type submittedRead struct {
	Read
	tag uint64
	to  *proposals.Completions
}

// Told implements completion.Told.
func (r *submittedRead) Told(t *completion.Together) {
	at, _, err := r.Poll()
	r.to.Hold(outcome.Completion{Tag: r.tag, Read: at, Err: err}, t)
}
