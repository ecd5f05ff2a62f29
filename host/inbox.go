package host

import (
	"slices"
	"time"

	"github.com/millrace/millrace/host/batches"
	"github.com/millrace/millrace/host/internal/appendlane"
	"github.com/millrace/millrace/host/internal/leadership"
	"github.com/millrace/millrace/host/internal/placement"
	"github.com/millrace/millrace/host/internal/proposals"
	"github.com/millrace/millrace/host/internal/storage"
	"github.com/millrace/millrace/host/internal/workqueue"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/internal/lock"
	"github.com/millrace/millrace/raft/raftpb"
)

// init prepares the inbox of a group, whose shard has the lock of what is given.
func (b *inbox) init(h *Host, given *lock.Mutex) {
	b.memory, b.now, b.given = &h.memory.memory, h.env.env.Clock.Now, given
}

func (in *inputs) resetCommands() {
	clear(in.proposals)
	in.proposals, in.since = in.proposals[:0], 0
}

// reset keeps the arrays. What they point to must not be kept alive by the spare.
func (in *givenInputs) reset() {
	clear(in.fetched)
	clear(in.answers)
	clear(in.messages)
	clear(in.forwards)
	*in = givenInputs{
		fetched:     in.fetched[:0],
		answers:     in.answers[:0],
		messages:    in.messages[:0],
		unreachable: in.unreachable[:0],
		forwards:    in.forwards[:0],
		refusals:    in.refusals[:0],
		snapshots:   in.snapshots[:0],
		replaced:    in.replaced[:0],
	}
}

// enqueueProposal enqueues a command, and reports whether the group must be woken for it.
func (b *inbox) enqueueProposal(p proposals.Proposal) (wakes bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed:
		return false, outcome.ErrStopped
	case !b.memory.waiting.Reserve(b.proposalBytes+b.forwardBytes.Load(), p.Bytes()):
		return false, outcome.ErrOverloaded
	}
	b.proposalBytes += p.Bytes()
	b.register(append(b.waiting.proposals, p))
	return b.mustWake(), nil
}

// mustWake reports whether the group must be woken for commands that have just come: once for all that come
// before its next turn begins. So a thousand clients do not queue at the lock of the shard.
func (b *inbox) mustWake() bool { return b.due.Load() && !b.woken.Load() && !b.woken.Swap(true) }

// fill locks what is no command, for something that the next turn must find.
func (b *inbox) fill() {
	b.lockGiven()
	b.filled.Store(true)
}

func (b *inbox) lockGiven()   { b.given.Lock() }
func (b *inbox) unlockGiven() { b.given.Unlock() }

// enqueueProposals takes commands, or the first of them, and says why not all.
func (b *inbox) enqueueProposals(batch []proposals.Proposal) (taken int, wakes bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return 0, false, outcome.ErrStopped
	}
	for _, p := range batch {
		if !b.memory.waiting.Reserve(b.proposalBytes+b.forwardBytes.Load(), p.Bytes()) {
			err = outcome.ErrOverloaded
			break
		}
		b.proposalBytes += p.Bytes()
		taken++
	}
	if taken == 0 {
		return 0, false, err
	}
	b.register(append(b.waiting.proposals, batch[:taken]...))
	return taken, b.mustWake(), err
}

// register changes the commands that wait, because some have come.
func (b *inbox) register(all []proposals.Proposal) {
	if before, n := len(b.waiting.proposals), len(all); b.arrivals.Reads(before, n) {
		b.arrivals.Came(before, n, b.now())
	}
	b.setProposals(all)
}

// setProposals changes the commands that wait.
func (b *inbox) setProposals(all []proposals.Proposal) {
	b.waiting.proposals = all
	b.commands.Store(int64(len(all)))
	b.setDue()
}

// setVerdict says how many commands must wait for the group to be woken. It reports whether so many wait:
// those that have come since the rule was asked may not have woken the group, by the verdict before. It
// takes no lock if both verdicts say the same.
func (b *inbox) setVerdict(v batches.Verdict) (due bool) {
	if v.Wake == b.verdict.Wake && v.WakeBytes == b.verdict.WakeBytes { // only the turn writes them
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.verdict = v
	b.setDue()
	return b.due.Load()
}

// setDue notes whether as many commands wait as must wake the group.
func (b *inbox) setDue() {
	n := len(b.waiting.proposals)
	b.due.Store(n > 0 && (n >= b.verdict.Wake || b.proposalBytes >= b.verdict.WakeBytes || b.isFull()))
}

// isFull reports whether so much waits that no command is held for a larger batch. A group alone gets half of
// the share, and others may need it. And followers with as little memory could not take larger appends: they
// would drop them.
func (b *inbox) isFull() bool {
	return b.proposalBytes >= min(b.memory.waiting.Max/8, b.memory.received.Max/16) || b.memory.waiting.Used() >= b.memory.waiting.Max/2
}

// enqueueMessages enqueues all messages or none, and returns how many were dropped.
func (b *inbox) enqueueMessages(messages []raftpb.Message, bytes int64) (dropped int) {
	b.fill()
	defer b.unlockGiven()
	if b.closed || !b.memory.received.Reserve(b.messageBytes, bytes) && !b.memory.received.ReserveLarge(bytes) {
		return len(messages)
	}
	b.messageBytes += bytes
	b.waiting.messages = append(b.waiting.messages, messages...)
	b.answered.Store(true)
	return 0
}

// isClosed reports whether the group takes nothing more, because it stops.
func (b *inbox) isClosed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed
}

// recordReplaced records that a peer comes with another directory than before, and drops its messages.
func (b *inbox) recordReplaced(peer uint64) {
	b.fill()
	defer b.unlockGiven()
	if !slices.Contains(b.waiting.replaced, peer) {
		b.waiting.replaced = append(b.waiting.replaced, peer)
	}
	b.waiting.messages = slices.DeleteFunc(b.waiting.messages, func(m raftpb.Message) bool {
		drop := m.From == peer
		if drop {
			b.messageBytes -= heldBytes(m)
			b.memory.received.Give(heldBytes(m))
		}
		return drop
	})
	b.answered.Store(len(b.waiting.answers)+len(b.waiting.messages) > 0)
}

// putAnswers enqueues answers of a lane. The caller holds the lock of what is given.
func (b *inbox) putAnswers(answers []raftpb.Message) {
	b.filled.Store(true)
	b.waiting.answers = append(b.waiting.answers, answers...)
	b.answered.Store(true)
}

func (b *inbox) recordUnreachable(peer uint64) {
	b.fill()
	defer b.unlockGiven()
	for _, id := range b.waiting.unreachable {
		if id == peer {
			return
		}
	}
	b.waiting.unreachable = append(b.waiting.unreachable, peer)
}

func (b *inbox) enqueueSnapshotStatus(s snapshotStatus) {
	b.fill()
	defer b.unlockGiven()
	if !b.closed {
		b.waiting.snapshots = append(b.waiting.snapshots, s)
	}
}

// enqueueApplied enqueues a question or an answer. The latest of each host replaces the one before.
func (b *inbox) enqueueApplied(r leadership.AppliedRecord, isQuestion bool) {
	b.fill()
	defer b.unlockGiven()
	to := &b.waiting.applied
	if isQuestion {
		to = &b.waiting.questions
	}
	for i := range *to {
		if (*to)[i].From == r.From {
			(*to)[i] = r
			return
		}
	}
	if !b.closed {
		*to = append(*to, r)
	}
}

func (b *inbox) orderCampaign() {
	b.fill()
	b.waiting.campaign = true
	b.unlockGiven()
}

func (b *inbox) orderHandOver() {
	b.fill()
	b.waiting.handOver = true
	b.unlockGiven()
}

func (b *inbox) recordNotCovered() {
	b.fill()
	b.waiting.notCovered = true
	b.unlockGiven()
}

func (b *inbox) enqueueFetched(f storage.Result) {
	b.fill()
	defer b.unlockGiven()
	if !b.closed {
		b.waiting.fetched = append(b.waiting.fetched, f)
	}
}

func (b *inbox) recordForgot(o appendlane.Outcome) {
	b.fill()
	b.waiting.forgot = o
	b.unlockGiven()
}

// begin swaps what waits for an empty spare, except the commands. A turn gets at most about maxBytes of
// messages, since everything that a turn hears becomes one write. It gets at least one. Turner.Begin calls it
// with the lock of what is given, so what comes after it wakes the group. It costs nothing if only commands
// wait.
func (b *inbox) begin(spare *givenInputs, maxBytes int64) {
	spare.reset() // again, if the turn before has not ended well
	b.woken.Store(false)
	if !b.filled.Load() {
		return
	}
	b.waiting.givenInputs, *spare = *spare, b.waiting.givenInputs
	var messageBytes int64
	spare.messages, b.waiting.messages, messageBytes = split(spare.messages, b.waiting.messages, b.messageBytes, maxBytes, heldBytes)
	spare.more = messageBytes > 0
	b.answered.Store(len(b.waiting.messages) > 0)
	b.filled.Store(len(b.waiting.messages) > 0)
	b.memory.waiting.Give(b.forwardBytes.Swap(0))
	b.memory.received.Give(b.messageBytes - messageBytes)
	b.messageBytes = messageBytes
}

// dequeueCommands takes commands, if ask says that a batch begins with those that wait. A turn gets at most
// about maxBytes, but at least one. Of a group of calls (call.go) it gets callBytes at most, and maybe
// none: the verdict is zero then. The spare has none before. dequeueCommands reports whether more are left
// that may follow at once.
func (b *inbox) dequeueCommands(spare *inputs, maxBytes, callBytes int64, now time.Duration, ask func(batches.State) batches.Verdict) (v batches.Verdict, more bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	waiting := b.waiting.proposals
	n := len(waiting)
	blocked := n > 0 && (b.paused || callBytes < maxBytes && waiting[0].Bytes() > callBytes)
	if blocked { // the rule knows nothing of them, or it would measure a batch that does not begin
		ask(batches.State{Now: now})
	} else {
		v = ask(batches.State{Now: now, Waiting: n, Bytes: b.proposalBytes, Full: b.isFull(), Waited: b.arrivals.Waited(n, now)})
	}
	b.verdict = v
	b.setDue()
	if !v.Begins {
		return v, false
	}
	taken, left, bytes := split(waiting, spare.proposals, b.proposalBytes, min(maxBytes, callBytes), proposals.Proposal.Bytes)
	spare.proposals, spare.since = taken, b.arrivals.First()
	b.arrivals.Left(len(left), now)
	b.memory.waiting.Give(b.proposalBytes - bytes)
	b.proposalBytes = bytes
	b.setProposals(left)
	return v, bytes > 0 && callBytes >= maxBytes
}

// pause makes dequeueCommands leave commands where they are, or no longer. It reports whether that is new.
func (b *inbox) pause(on bool) (changed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	changed = b.paused != on
	b.paused = on
	return changed
}

const (
	// maxTurnBytes bounds the commands, and separately the messages, that one turn takes. A round of the
	// append lane writes as much.
	maxTurnBytes = workqueue.MaxRoundBytes
	// maxCrowdedTurnBytes is the bound while other groups of the shard wait.
	maxCrowdedTurnBytes = 256 << 10
)

// split leaves one turn's worth in taken and moves the rest into left, which is empty. It returns the bytes
// of the rest.
func split[T any](taken, left []T, bytes, maxBytes int64, of func(T) int64) (_, _ []T, rest int64) {
	if bytes <= maxBytes {
		return taken, left, 0
	}
	n, rest := 0, bytes
	for n < len(taken) && (n == 0 || bytes-rest+of(taken[n]) <= maxBytes) {
		rest -= of(taken[n])
		n++
	}
	left = append(left, taken[n:]...)
	clear(taken[n:])
	return taken[:n], left, rest
}

func heldBytes(m raftpb.Message) int64 { return workqueue.MessageBytes(&m) }

// peek returns how many commands wait, and whether anything waits that must not wait for more commands.
func (b *inbox) peek() (commands int, urgent bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lockGiven()
	defer b.unlockGiven()
	in := &b.waiting
	return len(in.proposals), in.campaign || in.handOver || in.transfer != nil || in.forgot != appendlane.NotAsked || len(in.messages) > 0
}

// hasAnswers reports whether answers or messages wait. It takes no lock.
func (b *inbox) hasAnswers() bool { return b.answered.Load() }

// maxFrames bounds the forward frames, and the refusals, that wait for a turn, besides their bytes.
const maxFrames = 4096

// reserveForward reserves space for a forward frame.
func (b *inbox) reserveForward(bytes int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lockGiven()
	defer b.unlockGiven()
	if b.closed || len(b.waiting.forwards) >= maxFrames || !b.memory.waiting.Reserve(b.proposalBytes+b.forwardBytes.Load(), bytes) {
		return false
	}
	b.forwardBytes.Add(bytes)
	return true
}

// enqueueForward enqueues a frame for which space was reserved, or that is refused.
func (b *inbox) enqueueForward(f proposals.Frame) {
	b.fill()
	defer b.unlockGiven()
	if !b.closed && len(b.waiting.forwards) < 2*maxFrames {
		b.waiting.forwards = append(b.waiting.forwards, f)
	}
}

// enqueueRefusal enqueues the answer to a forward frame.
func (b *inbox) enqueueRefusal(r proposals.Refusal) {
	b.fill()
	defer b.unlockGiven()
	if !b.closed && len(b.waiting.refusals) < maxFrames {
		b.waiting.refusals = append(b.waiting.refusals, r)
	}
}

// firstProposal returns the bytes of the command that waits for longest, if one waits and is not held.
func (b *inbox) firstProposal() (bytes int64, waits bool) {
	if !b.hasProposals() {
		return 0, false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.paused || !b.due.Load() {
		return 0, false
	}
	return b.waiting.proposals[0].Bytes(), true
}

// waitingCommands returns how many commands wait, and their bytes.
func (b *inbox) waitingCommands() (commands int, bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.waiting.proposals), b.proposalBytes
}

// space returns how many bytes of commands this inbox would take now.
func (b *inbox) space() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.memory.waiting.Max - b.memory.waiting.Used() - b.proposalBytes - b.forwardBytes.Load()
}

// hasProposals reports whether commands wait. It takes no lock.
func (b *inbox) hasProposals() bool { return b.commands.Load() > 0 }

// dequeueIf takes the commands that wait and for which goes returns true.
func (b *inbox) dequeueIf(goes func(proposals.Proposal) bool) (gone []proposals.Proposal) {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.waiting.proposals
	kept := all[:0]
	for _, p := range all {
		if !goes(p) {
			kept = append(kept, p)
			continue
		}
		gone = append(gone, p)
		b.proposalBytes -= p.Bytes()
		b.memory.waiting.Give(p.Bytes())
	}
	clear(all[len(kept):])
	if len(gone) > 0 {
		b.arrivals.Withdrawn(len(all), len(kept), b.now())
	}
	b.setProposals(kept)
	return gone
}

// shrink releases the arrays, if nothing waits.
func (b *inbox) shrink() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lockGiven()
	defer b.unlockGiven()
	w := &b.waiting
	if len(w.answers)+len(w.messages)+len(w.proposals)+len(w.unreachable)+len(w.fetched)+len(w.forwards)+len(w.refusals) == 0 {
		w.answers, w.messages, w.proposals, w.unreachable, w.fetched, w.forwards, w.refusals = nil, nil, nil, nil, nil, nil, nil
	}
}

// close makes the inbox refuse commands from now on, and returns the commands that still wait.
func (b *inbox) close() []proposals.Proposal {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lockGiven()
	defer b.unlockGiven()
	b.closed = true
	left := b.waiting.proposals
	b.setProposals(nil)
	b.waiting.messages, b.waiting.fetched, b.waiting.forwards = nil, nil, nil
	b.memory.waiting.Give(b.proposalBytes + b.forwardBytes.Swap(0))
	b.memory.received.Give(b.messageBytes)
	b.proposalBytes, b.messageBytes = 0, 0
	return left
}

// dropProposals returns the commands that wait for a turn, and forgets them.
func (b *inbox) dropProposals() []proposals.Proposal {
	b.mu.Lock()
	defer b.mu.Unlock()
	left := b.waiting.proposals
	b.setProposals(nil)
	b.memory.waiting.Give(b.proposalBytes)
	b.proposalBytes = 0
	return left
}

// leaveWish leaves a wish for the next turn. A later one replaces it.
func (b *inbox) leaveWish(w *placement.Wish) {
	b.fill()
	defer b.unlockGiven()
	if !b.closed {
		b.waiting.wish = w
	}
}

// leaveTransfer leaves a transfer for the next turn. One that waits there already is replaced, and returned.
func (b *inbox) leaveTransfer(t *leadership.Transfer) (replaced *leadership.Transfer) {
	b.fill()
	defer b.unlockGiven()
	replaced, b.waiting.transfer = b.waiting.transfer, t
	return replaced
}
