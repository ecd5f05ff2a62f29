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

// A Local is a RawNode behind a lock. A goroutine with an input takes the lock, runs the core itself, and
// unlocks. If a Ready is wanted and there is something to report, it leaves a Ready in the channel, which has
// space for one (ready.go).
//
// The only goroutine is the short-lived one of a tick, so there is no handover between goroutines, nothing to
// wait for, and nothing to leak. Rejected: the usual form, a loop that selects over channels of inputs and a
// channel of Readys. It costs two switches of goroutine for each input that waits for its result. It also
// must hold a Ready before it can offer one, so it either builds a Ready after every event or holds one that
// becomes stale.
//
// Under the lock the core handles one input. It may read Storage there, so a call takes as long as Storage
// does. Only Tick does not wait for it (ticks.go).
//
// Invariant: only run touches the core, and after the end no input does.

// MaxBacklogBytes bounds the input accepted since the last Ready, while the consumer has not asked for
// another. Every message, proposal and tick counts its encoded size, but at least inputBytes. Beyond the
// limit inputs are refused with ErrBehind. Including the Ready that waits in the channel, a node holds at
// most twice this much plus one message. When the consumer has asked and there is nothing to report, the node
// holds nothing, and the count starts again at zero.
const MaxBacklogBytes = 64 << 20

// inputBytes is about the memory that any input may cause a node to hold: the size of one message.
const inputBytes = 512

// ErrBehind: the input was refused because the consumer of Readys does not keep up. The caller may try again.
var ErrBehind = errors.New("raft/etcdnode: the consumer of Ready is behind")

// errPanicked ends a node whose core broke an invariant, so that a program that recovers from the panic
// cannot use it any more.
var errPanicked = errors.New("raft/etcdnode: stopped, because a call into the core panicked")

// Local implements Node within this process. Use Start or Restart to make one. Any goroutine may call its
// methods, but not from within its Logger or Storage.
type Local struct {
	id     uint64
	async  bool
	logger raft.Logger

	ready chan raft.Ready // capacity 1; only sent to under mu
	done  chan struct{}   // closed at the end
	ticks ticks

	mu     sync.Mutex // guards what follows
	core   *raft.RawNode
	inside bool  // the core is running; stays true after a panic
	err    error // why the node has ended; written once, so it may be read without mu when done is closed

	wanted     bool // the consumer has asked for a Ready that is not in the channel yet
	unadvanced bool // synchronous mode: a Ready was handed out, and Advance has not been called
	// backlogBytes counts the input since the last Ready was built, or since one was wanted and there was
	// nothing to build.
	backlogBytes int

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

// Done is closed when the node has ended, by Stop or by a failure. Err tells which.
func (n *Local) Done() <-chan struct{} { return n.done }

// Err returns nil while the node runs, then raft.ErrStopped or the failure that ended it.
func (n *Local) Err() error {
	select {
	case <-n.done:
		return n.err
	default:
		return nil
	}
}

// Stop ends the node: every waiting and every later call returns raft.ErrStopped. A second call does nothing.
func (n *Local) Stop() { n.within(func() { n.end(raft.ErrStopped) }) }

// Campaign starts an election now.
func (n *Local) Campaign(ctx context.Context) error {
	return n.input(ctx, inputBytes, func() error { return n.core.Campaign() })
}

// Step handles a message from a peer, or an answer of this node's own workers. Such an answer is never
// refused for lack of space.
func (n *Local) Step(ctx context.Context, m raftpb.Message) error {
	bytes := 0
	if !n.isOwnAnswer(&m) {
		bytes = inputBytes + m.Size()
	}
	return n.input(ctx, bytes, func() error { return n.core.Step(m) })
}

// isOwnAnswer reports whether m is an answer of a storage worker, or an answer of this node to itself that
// waited for its disk. These arrive only once and must not be lost.
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

// TransferLeader asks that target become leader, like TransferLeadership. It returns raft.ErrTransferRefused,
// with the reason, if the transfer was not even begun.
func (n *Local) TransferLeader(ctx context.Context, target uint64) error {
	return n.input(ctx, inputBytes, func() error { return n.core.TransferLeader(target) })
}

// TransferLeadership asks that transferee become leader. The second argument is not used.
func (n *Local) TransferLeadership(ctx context.Context, _, transferee uint64) {
	// This signature has no error; BasicStatus.LeadTransferee shows the transfer.
	_ = n.TransferLeader(ctx, transferee)
}

// ReportUnreachable tells the node that messages to a peer may have been lost.
func (n *Local) ReportUnreachable(id uint64) {
	n.report(func() { n.core.ReportUnreachable(id) })
}

// EntriesArrived tells the node that Storage can return entries for which it answered ErrEntriesPending; see
// raft.RawNode.EntriesArrived.
func (n *Local) EntriesArrived(reader uint64) {
	n.report(func() { n.core.EntriesArrived(reader) })
}

// ReportSnapshot tells a leader what happened to a snapshot that it sent to a member.
func (n *Local) ReportSnapshot(id uint64, status raft.SnapshotStatus) {
	n.report(func() { n.core.ReportSnapshot(id, status) })
}

// ApplyConfChange makes a committed change take effect, and returns the configuration after it. It works
// after the end of the node too, because the consumer may still be applying a Ready.
func (n *Local) ApplyConfChange(cc raftpb.ConfChangeI) (cs *raftpb.ConfState) {
	n.within(func() { cs = n.core.ApplyConfChange(cc) })
	return cs
}

// Status returns a copy of what the node knows; after the end, of what it last knew.
func (n *Local) Status() (s raft.Status) {
	n.within(func() { s = n.core.Status() })
	return s
}

// input runs an input of the given size, unless it is refused. An input of 0 bytes is not refused for lack of
// space.
func (n *Local) input(ctx context.Context, bytes int, run func() error) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	n.within(func() {
		if err = n.rejectInput(bytes); err == nil {
			n.backlogBytes += bytes
			err = run()
		}
	})
	return err
}

// report runs an input that has no answer. It is not refused for lack of space, because it frees space
// elsewhere.
func (n *Local) report(run func()) {
	n.within(func() {
		if n.err == nil {
			run()
		}
	})
}

func (n *Local) rejectInput(bytes int) error {
	switch {
	case n.err != nil:
		return n.err
	case bytes > 0 && n.behind():
		return fmt.Errorf("%w: %d bytes of input since the last Ready, at most %d may wait; receive from Ready, and call Advance", ErrBehind, n.backlogBytes, MaxBacklogBytes)
	}
	return nil
}

func (n *Local) behind() bool { return n.backlogBytes >= MaxBacklogBytes }

// within takes the lock, runs act, and then runs the ticks that arrived meanwhile.
func (n *Local) within(act func()) {
	n.mu.Lock()
	n.run(act)
	n.catchUp()
}

// run is the only critical section. The caller holds the lock, and run unlocks it. It runs the waiting ticks
// first, then act, and then publishes what both have changed.
func (n *Local) run(act func()) {
	n.inside = true
	defer n.leave()
	n.runTicks()
	act()
	if n.err == nil {
		n.publish()
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

// publish makes visible what an input has changed in the core: a failure ends the node, a known leader wakes
// the waiting proposals, and a wanted Ready is offered.
func (n *Local) publish() {
	if err := n.core.Err(); err != nil {
		n.end(err)
		return
	}
	if n.waiting.led != nil && n.core.BasicStatus().Lead != raft.None {
		n.waiting.wake()
	}
	n.offer()
}

// end ends the node for good. The first cause wins.
func (n *Local) end(cause error) {
	if n.err != nil {
		return
	}
	n.err = cause
	close(n.done)
	n.withdraw()
}
