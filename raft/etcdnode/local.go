package etcdnode

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
)

// A Local is a RawNode behind a lock. Whoever has an input takes the lock, runs the core on its own goroutine, and leaves;
// if a Ready is wanted and there is something to say, it leaves a Ready in the channel, which has room for one (ready.go).
//
// There is no goroutine but the short one of a tick, so there is none to hand over to, to wait for, or to leak. The usual shape, a loop that
// selects over channels of inputs and a channel of Readys, was rejected: it costs two switches of goroutine for each
// input that waits for its result, and it must have a Ready in hand before it can offer one, so it either builds one
// after every event or holds one that grows stale.
//
// What the core does under the lock is one input's worth; it reads Storage there, so a call waits as long as Storage does.
// Only Tick does not (ticks.go).
//
// Invariant: the core is touched within run only, and never again by an input after the end.

// MaxBacklogBytes bounds the inputs that the consumer has not asked to hear of, since the last Ready: the encoded bytes of
// messages and proposals, each and each tick for at least inputBytes. Beyond it inputs are refused with ErrBehind. With the
// Ready that waits in the channel a node may so hold twice as much, and one message more. When the consumer has asked and
// there is nothing to say, nothing is held, and the count begins anew.
const MaxBacklogBytes = 64 << 20

// inputBytes is what any input may make a node say, about: a message's room in memory.
const inputBytes = 512

// ErrBehind: an input was refused because the consumer of Readys does not keep up. It may be tried again.
var ErrBehind = errors.New("raft/etcdnode: the consumer of Ready is behind")

// errPanicked ends a node whose core broke a rule, so that nobody who recovers goes on with it.
var errPanicked = errors.New("raft/etcdnode: stopped, because a call into the core panicked")

// Local is the Node of this process. Use Start or Restart to make one. Its methods may be called from any goroutine, but not
// from within its Logger or Storage.
type Local struct {
	id     uint64
	async  bool
	logger raft.Logger

	ready chan raft.Ready // room for one; sent to under mu only
	done  chan struct{}   // closed at the end
	ticks ticks

	mu     sync.Mutex // guards what follows
	core   *raft.RawNode
	inside bool  // the core is running; left true by a panic
	err    error // why the node has ended; not written again, so free to read once done is closed

	wanted       bool // the consumer has asked for a Ready that is not in the channel yet
	unadvanced   bool // synchronous mode: a Ready was handed out, and Advance has not come
	backlogBytes int  // inputs since the last Ready was built, or since there was nothing to build when one was wanted

	waiting waitingProposals
}

func newLocal(c *raft.Config, core *raft.RawNode) *Local {
	return &Local{
		id:     c.ID,
		async:  c.AsyncStorageWrites,
		logger: c.Logger,
		ready:  make(chan raft.Ready, 1),
		done:   make(chan struct{}),
		ticks:  ticks{maxOwed: 2 * min(c.ElectionTick, math.MaxInt32)},
		core:   core,
	}
}

// Done is closed when the node has ended, by Stop or by a failure. Err then says which.
func (n *Local) Done() <-chan struct{} { return n.done }

// Err is nil while the node runs, then raft.ErrStopped or the failure that ended it.
func (n *Local) Err() error {
	select {
	case <-n.done:
		return n.err
	default:
		return nil
	}
}

// Stop ends the node: raft.ErrStopped to all that wait and call. A second call does nothing.
func (n *Local) Stop() { n.within(func() { n.end(raft.ErrStopped) }) }

// Campaign starts an election now.
func (n *Local) Campaign(ctx context.Context) error {
	return n.input(ctx, inputBytes, func() error { return n.core.Campaign() })
}

// Step takes a message from a peer, or an answer of this node's own workers, which is never refused for want of room.
func (n *Local) Step(ctx context.Context, m raftpb.Message) error {
	bytes := 0
	if !n.isOwnAnswer(&m) {
		bytes = inputBytes + m.Size()
	}
	return n.input(ctx, bytes, func() error { return n.core.Step(m) })
}

// isOwnAnswer tells the answers of the workers, and those to itself that waited for the disk. They come once, and must be
// heard.
func (n *Local) isOwnAnswer(m *raftpb.Message) bool {
	return raft.IsLocalMsgTarget(m.From) || (m.From == n.id && raft.IsResponseMsg(m.Type))
}

// ForgetLeader makes a follower forget its leader, without a new term.
func (n *Local) ForgetLeader(ctx context.Context) error {
	return n.input(ctx, inputBytes, func() error { return n.core.ForgetLeader() })
}

// ReadIndex asks for an index at which a read may be served.
func (n *Local) ReadIndex(ctx context.Context, rctx []byte) error {
	return n.input(ctx, inputBytes+len(rctx), func() error { return n.core.ReadIndex(rctx) })
}

// TransferLeader asks that target become leader, like TransferLeadership, and returns raft.ErrTransferRefused, with the
// reason, if that was not even begun.
func (n *Local) TransferLeader(ctx context.Context, target uint64) error {
	return n.input(ctx, inputBytes, func() error { return n.core.TransferLeader(target) })
}

// TransferLeadership asks that transferee become leader. The second argument is not read.
func (n *Local) TransferLeadership(ctx context.Context, _, transferee uint64) {
	_ = n.TransferLeader(ctx, transferee) // the signature of ports has no room for it; BasicStatus.LeadTransferee tells
}

// ReportUnreachable tells the node that messages to a peer may have been lost.
func (n *Local) ReportUnreachable(id uint64) {
	n.report(func() { n.core.ReportUnreachable(id) })
}

// ReportSnapshot tells a leader what became of a snapshot that it sent.
func (n *Local) ReportSnapshot(id uint64, status raft.SnapshotStatus) {
	n.report(func() { n.core.ReportSnapshot(id, status) })
}

// ApplyConfChange makes a committed change take effect, and returns the configuration after it, also when the node has
// ended: the consumer may still be applying what it took.
func (n *Local) ApplyConfChange(cc raftpb.ConfChangeI) (cs *raftpb.ConfState) {
	n.within(func() { cs = n.core.ApplyConfChange(cc) })
	return cs
}

// Status returns a copy of what the node knows; after the end, of what it last knew.
func (n *Local) Status() (s raft.Status) {
	n.within(func() { s = n.core.Status() })
	return s
}

// input runs an input of so many bytes, unless it is refused. One of 0 bytes always has room.
func (n *Local) input(ctx context.Context, bytes int, run func() error) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	n.within(func() {
		if err = n.refuses(bytes); err == nil {
			n.backlogBytes += bytes
			err = run()
		}
	})
	return err
}

// report runs an input that has no answer and always has room, as it makes room elsewhere.
func (n *Local) report(run func()) {
	n.within(func() {
		if n.err == nil {
			run()
		}
	})
}

func (n *Local) refuses(bytes int) error {
	switch {
	case n.err != nil:
		return n.err
	case bytes > 0 && n.behind():
		return fmt.Errorf("%w: %d bytes came in since the last Ready, at most %d wait; receive from Ready, and Advance", ErrBehind, n.backlogBytes, MaxBacklogBytes)
	}
	return nil
}

func (n *Local) behind() bool { return n.backlogBytes >= MaxBacklogBytes }

// within takes the lock for what act does, and then for the ticks that came meanwhile.
func (n *Local) within(act func()) {
	n.mu.Lock()
	n.run(act)
	n.catchUp()
}

// run is the one critical section: it is entered locked, and left unlocked. Time comes first, then the act, then what
// follows from both.
func (n *Local) run(act func()) {
	n.inside = true
	defer n.leave()
	n.runTicks()
	act()
	if n.err == nil {
		n.settle()
	}
	n.inside = false
}

func (n *Local) leave() {
	if n.inside {
		n.inside = false
		n.end(errPanicked)
	}
	n.mu.Unlock()
}

// settle looks at what an input has done to the core.
func (n *Local) settle() {
	if err := n.core.Err(); err != nil {
		n.end(err)
		return
	}
	if n.waiting.led != nil && n.core.BasicStatus().Lead != raft.None {
		n.waiting.wake()
	}
	n.offer()
}

// end is final; the first cause stands.
func (n *Local) end(cause error) {
	if n.err != nil {
		return
	}
	n.err = cause
	close(n.done)
	n.withdraw()
}
