package millrace

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/internal/completion"
	"github.com/millrace/millrace/internal/timelimit"
)

// ProposeOption changes one Propose or Submit.
type ProposeOption struct {
	here      bool
	inSession bool
	mark      SessionMark
	receipt   *Receipt
	objects   []ObjectID
}

// IfLeader makes the command fail with a NotLeaderError if this host does not lead, rather than be forwarded.
func IfLeader() ProposeOption { return ProposeOption{here: true} }

// WithReceipt makes Propose fill in *r when the command is committed, also if Propose then returns an error,
// because ctx ends before the result is there. It has no effect on Commit, which returns the receipt, and on
// Submit, whose Pending.Wait does.
func WithReceipt(r *Receipt) ProposeOption { return ProposeOption{receipt: r} }

// Propose replicates a command and returns the result of applying it on this host, so that what this host
// reads afterwards includes it. It may be called on any member and by any number of goroutines. It waits
// until ctx ends: for a leader, for room if too many commands are under way, for a quorum, for Apply.
//
// There are three outcomes. A nil error: the command was applied once, and the result is its result. An error
// for which MayHaveCommitted is false: the command was not applied and never will be. An error for which
// MayHaveCommitted is true: nothing is known; read the state before you propose it again.
func (n *Node[C, R]) Propose(ctx context.Context, command C, options ...ProposeOption) (result R, err error) {
	if err := n.reject(ctx, "Propose"); err != nil {
		endMarks(options, err)
		return result, err
	}
	p, err := n.encode(n.pendings.get(), command, options)
	if err != nil {
		n.group.CountTooLarge(err)
		endMarks(options, err)
		return result, err
	}
	if err := n.hand(ctx, p); err != nil {
		endMarks(options, err)
		return result, err
	}
	if !p.await(ctx, &p.finished) {
		if err := n.giveUp(ctx, p); err != nil {
			endMarks(options, err)
			fillIn(options, p.receiptNow())
			return result, err
		}
	}
	fillIn(options, p.receipt)
	result, err = p.result, p.err
	n.pendings.release(p)
	return result, err
}

// fillIn gives a receipt to those who want it (WithReceipt).
func fillIn(options []ProposeOption, receipt Receipt) {
	for i := range options {
		if r := options[i].receipt; r != nil {
			*r = receipt
		}
	}
}

// Commit replicates a command and returns its receipt as soon as a quorum holds it durably, without waiting
// for a state machine. It is for writes whose result is not needed. Otherwise it is like Propose.
func (n *Node[C, R]) Commit(ctx context.Context, command C, options ...ProposeOption) (Receipt, error) {
	if err := n.reject(ctx, "Commit"); err != nil {
		endMarks(options, err)
		return Receipt{}, err
	}
	p, err := n.encode(n.pendings.get(), command, options)
	if err != nil {
		n.group.CountTooLarge(err)
		endMarks(options, err)
		return Receipt{}, err
	}
	if err := n.hand(ctx, p); err != nil {
		endMarks(options, err)
		return Receipt{}, err
	}
	if !p.await(ctx, &p.committed) {
		if err := n.group.Withdraw(ctx, &p.call); err != nil && p.receiptNow().Index == 0 {
			endMarks(options, err)
			return Receipt{}, err
		}
		<-p.Committed() // the host knows the outcome, so it is being told
	}
	r, err := p.committedReceipt()
	n.pendings.release(p)
	return r, err
}

// pendings are where Propose, Commit and SubmitMany get their Pendings, which no user sees. A Pending comes
// back when the host tells it nothing more. Earlier, the next command would hear the outcome of this one.
// After an error, and if the command was sent to another host, it is left to the garbage collector.
type pendings[R any] struct{ pool sync.Pool }

func (s *pendings[R]) get() *Pending[R] {
	if p, ok := s.pool.Get().(*Pending[R]); ok {
		return p
	}
	return new(Pending[R])
}

// release says that no caller waits for a Pending any more.
func (s *pendings[R]) release(p *Pending[R]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pool = s
	p.recycle()
}

// recycle gives a Pending back that no caller waits for, if the host tells it nothing more. The caller holds
// mu, and then only releases it.
func (p *Pending[R]) recycle() {
	s := p.pool
	if s == nil || !p.told || !p.forgotten || p.err != nil || !p.call.Reset() {
		return
	}
	var none R
	p.result = none // the pool would keep it in memory
	p.to, p.tag, p.pool, p.session, p.told, p.forgotten = nil, 0, nil, nil, false, false
	p.committed, p.finished, p.receipt = moment{}, moment{}, Receipt{}
	s.pool.Put(p)
}

// hand gives a command to the group. It waits for room until ctx ends.
func (n *Node[C, R]) hand(ctx context.Context, p *Pending[R]) error {
	for p.call.Waits = true; ; {
		err := n.group.Call(&p.call)
		if !errors.Is(err, ErrOverloaded) {
			return err
		}
		if err := n.group.WaitSpace(ctx, &p.call); err != nil {
			return err
		}
	}
}

// giveUp ends the wait for a command when ctx has ended. It returns nil if the outcome is known.
func (n *Node[C, R]) giveUp(ctx context.Context, p *Pending[R]) error {
	if err := n.group.Withdraw(ctx, &p.call); err != nil && !p.isDone() {
		return err
	}
	<-p.Committed() // the host knows the outcome, so it is being told
	if !p.isDone() {
		return p.unapplied(ctx)
	}
	return nil
}

// Submit hands in a command without waiting, so that one goroutine can have many under way. An error means
// that it was not taken: ErrOverloaded if there is no room, and RetryAfter says when there may be. No context
// limits the command: once taken it is proposed, or forwarded, until it has an outcome or the node is closed.
func (n *Node[C, R]) Submit(command C, options ...ProposeOption) (*Pending[R], error) {
	if err := n.rejectReentry("Submit"); err != nil {
		endMarks(options, err)
		return nil, err
	}
	p, err := n.encode(new(Pending[R]), command, options)
	if err != nil {
		n.group.CountTooLarge(err)
		endMarks(options, err)
		return nil, err
	}
	if err := n.group.Call(&p.call); err != nil {
		endMarks(options, err)
		return nil, err
	}
	return p, nil
}

// encode prepares the Pending of a command. The command is encoded into an array of the size of the last one,
// and copied if that has left the log an array that is much larger than the command.
func (n *Node[C, R]) encode(p *Pending[R], command C, options []ProposeOption) (*Pending[R], error) {
	dst := make([]byte, host.CallRoom, host.CallRoom+n.home.lastBytes.Load())
	copy(dst, appendMark)
	dst, err := n.machine.appendHead(dst, options)
	if err != nil {
		return nil, err
	}
	if err := n.rejectSize(command); err != nil {
		return nil, err
	}
	data, err := appendSafely(n.machine.codec, dst, command)
	switch {
	case err != nil:
		return nil, fmt.Errorf("millrace: not proposed: the codec cannot encode the command: %w", err)
	case len(data) < len(dst) || string(data[:len(appendMark)]) != appendMark:
		return nil, fmt.Errorf("millrace: not proposed: Append of the codec returned %d bytes that do not begin with the %d bytes of dst; it must return dst with the encoding appended", len(data), len(dst))
	}
	if err := n.group.CheckSize(len(data) - host.CallRoom); err != nil {
		return nil, err // before it is decoded, and copied
	}
	if n.machine.tries {
		if err := tryDecode(n.machine.codec, data[len(dst):len(data):len(data)]); err != nil {
			return nil, fmt.Errorf("millrace: not proposed: the codec cannot decode its own encoding of the command, %d bytes; every member would halt there: %w; use a type that comes back, or a codec that decodes it", len(data)-len(dst), err)
		}
	}
	if n.home.lastBytes.Store(min(int64(len(data)), maxGuessBytes)); cap(data)-len(data) > len(data)/8+maxSpareBytes {
		data = append(make([]byte, 0, len(data)), data...)
	}
	p.home = &n.home
	p.call.Data = data
	p.call.Owner = (*caller[R])(p)
	for _, o := range options {
		p.call.Here = p.call.Here || o.here
		if o.inSession {
			mark := o.mark.mark()
			p.call.Session, p.session = &mark, o.mark.of
		}
	}
	return p, nil
}

const (
	// appendMark is at the beginning of dst for a codec. One that returns its encoding alone would lose the
	// bytes of the command where the header is put.
	appendMark = "millrace"

	maxGuessBytes = 64 << 10
	maxSpareBytes = 64
)

// rejectReentry refuses a method that the state machine must not call.
func (n *Node[C, R]) rejectReentry(method string) error {
	if !n.group.IsInMachine() {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrReentrant, method)
}

// reject says why a method that proposes cannot begin.
func (n *Node[C, R]) reject(ctx context.Context, method string) error {
	if ctx.Err() != nil {
		return fmt.Errorf("millrace: not proposed: %w", context.Cause(ctx))
	}
	return n.rejectReentry(method)
}

// Pending is a command that was taken and whose outcome may not be known yet. Its methods may be called any
// number of times, by any number of goroutines, and agree.
type Pending[R any] struct {
	call host.Call
	home *home[R]
	to   *completion.Queue[Completion[R]] // not nil: it gets the outcome too, with the tag
	tag  uint64
	pool *pendings[R] // not nil: no user sees it, and it goes there by itself

	session *Session // not nil: it hears of the outcome

	mu        sync.Mutex
	told      bool    // the host has told the commit,
	forgotten bool    // and has given the result, and forgotten the call
	committed moment  // a quorum holds it, or finished
	finished  moment  // result, receipt and err do not change any more
	receipt   Receipt // its index is 0 until the command is known to be committed
	result    R
	err       error
}

// Committed returns a channel that is closed when a quorum holds the command durably, or when its outcome
// is known. This host may not have applied it yet. A caller that needs no result waits for this.
func (p *Pending[R]) Committed() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.committed.channel()
}

// Done returns a channel that is closed when the outcome is known: the result, or an error.
func (p *Pending[R]) Done() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.finished.channel()
}

// Wait returns the outcome as soon as it is known: as Propose does, with the receipt of a committed command.
// If ctx ends first, this Wait ends with ErrIndeterminate; the command continues, and a later Wait may return
// its outcome.
func (p *Pending[R]) Wait(ctx context.Context) (R, Receipt, error) {
	var none R
	if !p.isDone() && p.home.group.IsInMachine() {
		return none, p.receiptNow(), p.reentrant("Pending.Wait")
	}
	if !p.await(ctx, &p.finished) {
		return none, p.receiptNow(), p.unapplied(ctx)
	}
	return p.result, p.receipt, p.err
}

// WaitCommitted returns the receipt as soon as a quorum holds the command durably. It does not wait for
// Apply. Its errors are those of Wait.
func (p *Pending[R]) WaitCommitted(ctx context.Context) (Receipt, error) {
	if p.receiptNow().Index == 0 && !p.isDone() && p.home.group.IsInMachine() {
		return Receipt{}, p.reentrant("Pending.WaitCommitted")
	}
	if !p.await(ctx, &p.committed) {
		return Receipt{}, p.home.group.Indeterminate(ctx)
	}
	return p.committedReceipt()
}

// reentrant ends a wait of the state machine; the command continues.
func (p *Pending[R]) reentrant(method string) error {
	return fmt.Errorf("%w: %s: %w", ErrIndeterminate, method, ErrReentrant)
}

// committedReceipt returns the outcome of a wait for committed, which has happened.
func (p *Pending[R]) committedReceipt() (Receipt, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.receipt.Index == 0 {
		return Receipt{}, p.err
	}
	return p.receipt, nil
}

// Poll returns the outcome if it is known, and whether it is. It never waits.
func (p *Pending[R]) Poll() (result R, r Receipt, done bool, err error) {
	if !p.isDone() {
		return result, p.receiptNow(), false, nil
	}
	return p.result, p.receipt, true, p.err
}

func (p *Pending[R]) isDone() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.finished.happened
}

func (p *Pending[R]) receiptNow() Receipt {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.receipt
}

// unapplied is the outcome for a caller whose context has ended before the result was there.
func (p *Pending[R]) unapplied(ctx context.Context) error {
	if r := p.receiptNow(); r.Index > 0 {
		return fmt.Errorf("%w: it is committed at index %d, and this host has not applied it yet: %w", ErrIndeterminate, r.Index, context.Cause(ctx))
	}
	return p.home.group.Indeterminate(ctx)
}

// moment is something that happens once to a Pending, under its lock. Most have one goroutine that waits, and
// no channel of their own: it borrows one.
type moment struct {
	happened bool
	waiter   chan struct{} // borrowed; it gets one token
	closed   chan struct{} // made when asked for
}

// happen wakes all that wait.
func (e *moment) happen() {
	if e.happened {
		return
	}
	e.happened = true
	if e.waiter != nil {
		e.waiter <- struct{}{}
		e.waiter = nil
	}
	if e.closed != nil {
		close(e.closed)
	}
}

// channel returns a channel that is closed when the event has happened.
func (e *moment) channel() <-chan struct{} {
	if e.closed == nil {
		if e.happened {
			return closedChannel
		}
		e.closed = make(chan struct{})
	}
	return e.closed
}

var closedChannel = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// home is what the Pendings of a node share.
type home[R any] struct {
	group   *host.Group
	results Codec[R] // nil: results are not kept

	lastBytes atomic.Int64 // the size of the last command

	// waiters are channels to borrow, each with a capacity of one. A channel returns here when no token is in
	// it and none comes. Each node has its own: a channel that was made in a bubble of testing/synctest must
	// not leave it.
	waiters sync.Pool
}

func (h *home[R]) waiter() chan struct{} {
	if w, ok := h.waiters.Get().(chan struct{}); ok {
		return w
	}
	return make(chan struct{}, 1)
}

// await waits for an event until ctx ends. It reports whether the event has happened, which wins over the end
// of the context.
func (p *Pending[R]) await(ctx context.Context, e *moment) bool {
	p.mu.Lock()
	if e.happened {
		p.mu.Unlock()
		return true
	}
	done, reached := timelimit.Split(ctx)
	if e.waiter != nil {
		c := e.channel()
		p.mu.Unlock()
		select {
		case <-c:
			return true
		case <-done:
		case <-reached:
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		return e.happened
	}
	w := p.home.waiter()
	e.waiter = w
	p.mu.Unlock()
	select {
	case <-w:
		p.home.waiters.Put(w)
		return true
	case <-done:
	case <-reached:
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.happened {
		<-w
	} else {
		e.waiter = nil
	}
	p.home.waiters.Put(w)
	return e.happened
}

// caller is the side of a Pending that the host sees: host.Caller. Each outcome is told once; the first that
// ends the wait stands.
type caller[R any] Pending[R]

// Committed implements host.Caller.
func (c *caller[R]) Committed(r outcome.Receipt) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.finished.happened {
		c.receipt = r
	}
	c.committed.happen()
	c.told = true
	(*Pending[R])(c).recycle()
}

// Failed implements host.Caller.
func (c *caller[R]) Failed(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.finished.happened {
		c.err = err
		c.finish()
	}
}

// Duplicate implements host.Caller: the command was applied before, when it was sent for the first time.
func (c *caller[R]) Duplicate(r outcome.Receipt, encoded []byte, kept bool) {
	err := error(&AlreadyAppliedError{r})
	var result R
	if kept && c.home.results != nil {
		if result, err = decodeApart(c.home.results, encoded); err != nil {
			err = fmt.Errorf("%w; its result was kept, and the codec cannot decode it: %w", &AlreadyAppliedError{r}, err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.finished.happened {
		c.receipt, c.result, c.err = r, result, err
		c.finish()
	}
}

// applied gives the result of this host's state machine. last says that the host has forgotten the call,
// unless its commit is still to be told.
func (c *caller[R]) applied(e *statemachine.Command, result R, outcomes *completion.Delivery[Completion[R]], last bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.finished.happened {
		return
	}
	if c.receipt.Index == 0 {
		c.receipt.Index, c.receipt.Pos, c.receipt.Term = e.Index, e.Pos, e.Term // Committed comes later
	}
	c.receipt.Applied = e.Handed
	c.result = result
	c.happen()
	if c.to != nil {
		outcomes.Add(c.to, c.complete())
	}
	c.forgotten = last
	(*Pending[R])(c).recycle()
}

// finish makes what is known the outcome. The caller holds mu.
func (c *caller[R]) finish() {
	c.happen()
	if c.to != nil {
		c.to.Add(c.complete())
	}
}

// happen wakes those who wait. The caller holds mu.
func (c *caller[R]) happen() {
	c.committed.happen()
	c.finished.happen()
	if c.session != nil {
		SessionMark{Number: c.call.Session.Number, of: c.session}.end(c.err)
	}
}

// complete returns the outcome for Completions. The caller holds mu.
func (c *caller[R]) complete() Completion[R] {
	return Completion[R]{Tag: c.tag, Result: c.result, Receipt: c.receipt, Err: c.err}
}
