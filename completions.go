package millrace

import (
	"context"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/internal/completion"
)

// Completion is the outcome of one command (Node.SubmitMany) or read (Node.SubmitRead) of many.
type Completion[R any] struct {
	// Tag is what the command or read was handed in with.
	Tag uint64
	// Result is that of Apply, and Receipt says where the command is in the log.
	Result  R
	Receipt Receipt
	// Read is what a read may rely on. It is zero for a command.
	Read ReadAt
	// Err is nil if the command was applied, or the state may be read. Otherwise it is an error of Propose or
	// of Read.
	Err error
}

// Completions gathers the outcomes of commands and reads that one goroutine hands in, at any number of nodes.
// So thousands are under way without a goroutine for each, and none is woken for each. A loop of its owner
// fills it up, waits for Ready and takes what is known:
//
//	n, err := node.SubmitMany(commands, tags, done) // the first n are taken; err says why not more
//	commands, tags = commands[n:], tags[n:]
//	<-done.Ready() // if any are under way
//	outcomes = done.Take(outcomes)
//
// Its methods may be called by any goroutine and do not block.
type Completions[R any] struct {
	queue *completion.Queue[Completion[R]]
}

// NewCompletions returns Completions for at most limit commands and reads that are under way, or whose
// outcomes are not taken yet. A limit below 1 counts as 1.
func NewCompletions[R any](limit int) *Completions[R] {
	return &Completions[R]{completion.New[Completion[R]](limit)}
}

// Ready returns a channel that has an element when outcomes wait. Take removes it. The receiver calls
// Take.
func (c *Completions[R]) Ready() <-chan struct{} { return c.queue.Ready() }

// Take returns the outcomes that wait, in the order in which they became known. There may be none. They are
// in the memory of reuse, which may be nil, if they fit.
func (c *Completions[R]) Take(reuse []Completion[R]) []Completion[R] { return c.queue.Take(reuse) }

// Space returns how many more commands and reads it takes now.
func (c *Completions[R]) Space() int { return c.queue.Space() }

// NewSink returns Completions whose outcomes go to f, and not to Take. All that a batch of the state machine
// has for them comes in one call, and so do all reads of a round. So no goroutine is woken for them. f is
// called where the outcome becomes known, mostly between two batches of the state machine, and by one
// goroutine at a time. It must be quick: it must not block, call a node, or keep its argument. It leaves the
// outcomes where others find them. A panic of f loses the outcomes of that call. After that SubmitMany and
// SubmitRead refuse with the reason.
func NewSink[R any](limit int, f func([]Completion[R])) *Completions[R] {
	return &Completions[R]{completion.NewSink(limit, f)}
}

// outcomes returns where outcomes go, or nil.
func (c *Completions[R]) outcomes() *completion.Queue[Completion[R]] {
	if c == nil {
		return nil
	}
	return c.queue
}

// SubmitMany hands in commands without waiting, as Submit does, with one lock and one wake for all. It takes
// all of them or the first of them, and returns how many. Each one taken gets one outcome, in to, with its
// tag. The error says why the next one was not taken: an error of Submit, or ErrCompletionsFull.
//
// The options are for all of them. InSession marks the first command (Session.NextMany); the others follow.
// So the rest begins with SessionMark.Following(taken), or it would count as duplicates. WithReceipt has no
// effect.
func (n *Node[C, R]) SubmitMany(commands []C, tags []uint64, to *Completions[R], options ...ProposeOption) (taken int, err error) {
	done := to.outcomes()
	if err := done.Reject(len(commands), len(tags)); err != nil || len(commands) == 0 {
		return 0, err
	}
	if err := n.rejectReentry("SubmitMany"); err != nil {
		return 0, err
	}
	begun := done.Begin(len(commands))
	defer func() { done.Cancel(begun - taken) }() // also if a codec ends this goroutine
	if begun < len(commands) {
		err = ErrCompletionsFull
	}
	calls := make([]*host.Call, 0, begun)
	for i := range begun {
		p := n.pendings.get()
		p.to, p.tag, p.pool = done, tags[i], &n.pendings
		if _, refused := n.encode(p, commands[i], options); refused != nil {
			err = refused
			break
		}
		if s := p.call.Session; s != nil {
			s.Number += uint64(i)
		}
		calls = append(calls, &p.call)
	}
	taken, refused := n.group.CallMany(calls)
	if refused != nil {
		return taken, refused // a command that is too large comes again, and is counted then
	}
	n.group.CountTooLarge(err)
	return taken, err
}

// SubmitRead begins a read without waiting. Its outcome comes to Completions when the state machine of this
// host may be read, as for Read. An error means that it has not begun: ErrCompletionsFull, or what Read
// says of the consistency. Nothing ends a read that waits but the end of the group: for a leader, or for an
// index (AtLeast) that is never reached.
func (n *Node[C, R]) SubmitRead(tag uint64, c Consistency, to *Completions[R]) error {
	done := to.outcomes()
	if err := done.Reject(1, 1); err != nil {
		return err
	}
	if c.kind == lease {
		return errNeedsView
	}
	if err := c.reject(context.Background()); err != nil {
		return err
	}
	if done.Begin(1) == 0 {
		return ErrCompletionsFull
	}
	if c.kind == local {
		at, err := n.readLocal()
		done.Add(Completion[R]{Tag: tag, Read: at, Err: err})
		return nil
	}
	r := &submittedRead[R]{tag: tag, asks: c, to: done}
	r.OnDone(r)
	n.start(&r.Read, c)
	return nil
}

// submittedRead is a read whose outcome comes to Completions.
type submittedRead[R any] struct {
	host.Read
	tag  uint64
	asks Consistency
	to   *completion.Queue[Completion[R]]
}

// Told implements completion.Told.
func (r *submittedRead[R]) Told(t *completion.Together) {
	at, _, err := r.Poll()
	r.to.Hold(Completion[R]{Tag: r.tag, Read: r.asks.at(at), Err: err}, t)
}
