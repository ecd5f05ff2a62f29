package bulk

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/internal/lock"
	"github.com/millrace/millrace/internal/repetition"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/transport"
)

// Transfers are those of a host. Snapshots travel between hosts in transfers (thesis §5.3). The core's
// message MsgSnap says only that a member needs one. The host keeps it, and offers its latest snapshot. The
// receiver asks for what it lacks. It steps MsgSnap into its own core when everything is on its disk and
// was checked (receiver.go; package host installs it).
//
//	sender                                     receiver
//	core sends MsgSnap: offer           ──►    asks for the manifest, then for the blocks that its disk lacks
//	reads and sends blocks              ◄──    ask, one window at a time (window)
//	                                    ──►    writes, verifies, publishes, installs
//	tells its core                      ◄──    end
//
// A break costs nothing but time: the receiver asks again, also after a restart of either side, also another
// member that has the same snapshot. So a sender remembers nothing that it cannot lose.
//
// A large object goes the same way; only the offer is missing, since the log says who lacks what.
//
// A host sends Class.MaxSendings of a class at a time, at the rate of the class. Others wait.
//
// Rejected: a stream that the sender pushes. It starts again from zero after each break, and it needs a
// second way to say what the receiver has already.
type Transfers struct {
	settings Settings
	wiring   Wiring
	active   atomic.Int32 // transfers: while there are any, the clock is not calm

	mu    lock.Mutex
	at    int64 // the tick of the latest beat, not missed, as of the last lock
	beats int64 // and of the last beat that was counted
	out   []*Sender
	in    []*Receiver

	classes []*Class

	topics      map[topic]*repetition.Gate // of lines in the log
	outgoing    []outgoing                 // to send,
	events      []event.Event              // to emit,
	afterUnlock []func()                   // and to call when mu is released
}

// Settings are the times of a host, in ticks.
type Settings struct {
	Self           uint64
	Heartbeat      int64
	Election       int64   // timeout
	TicksPerSecond float64 // of the clock
}

// Wiring is the host as transfers see it. Its methods may be called from any goroutine, and do not wait.
// Send and Emit are called without the lock, or with it only if nothing else is said.
type Wiring interface {
	Now() int64 // the tick of the latest beat, not missed
	Hasten()    // there are transfers again, so beats must come
	Send(to uint64, kind transport.Kind, body []byte) bool
	Emit(e event.Event)
	Warn(text string, args ...any)
	// Number returns a number that is greater than all that this host has used, in any of its lives.
	Number() uint64
	// Work makes work of a piece, for a lane that may wait for a disk. enqueue makes a lane run it, once
	// more if it runs already.
	Work(g Group, doing string, piece func() (more bool)) (enqueue func())
}

// Group is the member of this host in a group, as transfers see it. Two are equal if they are the same
// member. Its methods are called with the lock held, and do not wait.
type Group interface {
	ID() uint64
	Leads() bool
	// Content returns what the member has whose manifest has this hash; nil: nothing.
	Content(hash [32]byte) SentContent
	// SnapshotSent tells the core how the transfer has ended that it waits for.
	SnapshotSent(to uint64, status raft.SnapshotStatus)
}

// outgoing is a control record for another host.
type outgoing struct {
	to   uint64
	body []byte
}

// repeatTicks is how long a record goes unanswered before it is repeated, and idleTicks how long a transfer
// stands still before it ends.
func (t *Transfers) repeatTicks() int64 { return 2 * t.settings.Heartbeat }

func (t *Transfers) idleTicks() int64 { return 4 * t.settings.Election }

// Init prepares for transfers.
func (t *Transfers) Init(s Settings, w Wiring) { t.settings, t.wiring = s, w }

// Do calls f with the lock held. The methods that say so may be called in f, and nothing that waits.
func (t *Transfers) Do(f func()) {
	t.lock()
	defer t.unlock()
	f()
}

// Active returns how many transfers there are, in both directions.
func (t *Transfers) Active() int { return int(t.active.Load()) }

// In returns the transfers to this host. It is called in Do.
func (t *Transfers) In() []*Receiver { return slices.Clone(t.in) }

// Out returns the transfers from this host. It is called in Do.
func (t *Transfers) Out() []*Sender { return slices.Clone(t.out) }

// lock takes mu, and reads the clock.
func (t *Transfers) lock() {
	t.mu.Lock()
	t.at = max(t.at, t.wiring.Now())
}

// topic is what lines in the log are about: what another host does in a group makes it known once, and then
// at growing distances.
type topic struct {
	group, host uint64
	what        string
}

// maxTopics bounds the topics. More are those of many groups at once, and all begin again.
const maxTopics = 1024

// warn writes a line, unless its topic was written a moment ago. The caller holds mu.
func (t *Transfers) warn(about topic, text string, args ...any) {
	gate := t.topics[about]
	if gate == nil {
		if gate = new(repetition.Gate); t.topics == nil || len(t.topics) == maxTopics {
			t.topics = map[topic]*repetition.Gate{}
		}
		t.topics[about] = gate
	}
	if repeats, ok := gate.Admit(time.Duration(float64(t.at) / t.settings.TicksPerSecond * float64(time.Second))); ok {
		t.wiring.Warn(text, append(args, "group", about.group, "host", t.settings.Self, "repeats", repeats)...)
	}
}

// unlock releases mu, then says, emits and calls what is waiting for that.
func (t *Transfers) unlock() {
	says, events, tells := t.outgoing, t.events, t.afterUnlock
	t.outgoing, t.events, t.afterUnlock = nil, nil, nil
	was := t.active.Swap(int32(len(t.out) + len(t.in)))
	begins := was == 0 && len(t.out)+len(t.in) > 0
	t.mu.Unlock()
	if begins {
		t.wiring.Hasten()
	}
	for _, s := range says {
		t.wiring.Send(s.to, transport.Control, s.body)
	}
	for _, e := range events {
		t.wiring.Emit(e)
	}
	for _, tell := range tells {
		tell()
	}
}

func (t *Transfers) say(to uint64, body []byte) { t.outgoing = append(t.outgoing, outgoing{to, body}) }

// emit emits an event when mu is released, unless it is nil.
func (t *Transfers) emit(e event.Event) {
	if e != nil {
		t.events = append(t.events, e)
	}
}

// SayEnd tells a host that a transfer ends, or that there is none. It is called in Do.
func (t *Transfers) SayEnd(g Group, to uint64, hash [32]byte, why Why) {
	t.say(to, End{Group: g.ID(), Hash: hash, Why: why}.Encode())
}

// Beat is called at each beat of the host's clock, with the ticks that were not missed.
func (t *Transfers) Beat(now int64) {
	if t.active.Load() == 0 {
		return
	}
	t.lock()
	defer t.unlock()
	passed := min(now-t.beats, t.settings.Heartbeat) // it does not count while there is nothing to do
	t.beats = now
	for _, c := range t.classes {
		c.rate.advance(now)
	}
	for _, s := range slices.Clone(t.out) {
		s.beat()
	}
	t.beginWaiting()
	for _, r := range slices.Clone(t.in) {
		r.beat(passed)
	}
}

// Leave ends the transfers of a group that is closed.
func (t *Transfers) Leave(g Group) {
	t.lock()
	defer t.unlock()
	for _, s := range slices.Clone(t.out) {
		if s.group == g {
			s.stop(sendingGone)
		}
	}
	for _, r := range slices.Clone(t.in) {
		if r.group == g {
			r.Stop()
		}
	}
}

// StopSendingTo ends the transfers to a host that comes with another directory: the numbers of its asks begin
// again, with that.
func (t *Transfers) StopSendingTo(member uint64) {
	if t.active.Load() == 0 {
		return
	}
	t.lock()
	defer t.unlock()
	for _, s := range slices.Clone(t.out) {
		if s.to == member {
			s.stop(sendingGone)
		}
	}
}

// CloseAll releases all files, when no lane runs any more.
func (t *Transfers) CloseAll() {
	t.lock()
	defer t.unlock()
	for _, s := range slices.Clone(t.out) {
		s.running = false
		s.stop(sendingGone)
	}
	for _, r := range slices.Clone(t.in) {
		r.Stop()
	}
}

// countUnwanted counts a block that was not asked for. r is the transfer that it names; if that is nil it
// counts among those of the first class.
func (t *Transfers) countUnwanted(r *Receiver) {
	class := t.classes[0]
	if r != nil {
		class = r.class()
	}
	class.counts.Unwanted++
}

// Counts returns what is counted of a class.
func (t *Transfers) Counts(class *Class) Counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	return class.now()
}
