package pulse

import (
	"slices"
	"sync/atomic"

	"github.com/millrace/millrace/internal/lock"
)

// Receiver is what this host has heard in pulses of other hosts.
type Receiver struct {
	follow func(line Line, leader uint64, c *Cover) bool

	mu    lock.Mutex
	peers map[uint64]*peerState
}

// peerState is what one host has said.
type peerState struct {
	list    *PeerPulses // the latest; nil: none
	latest  versionName // of its pulses
	answers bool        // it is not answered yet
}

// versionName names a version of a list.
type versionName struct{ life, version uint64 }

// PeerPulses are the pulses of a list of groups, and when the host that leads them was heard last.
type PeerPulses struct {
	from uint64
	name versionName
	n    atomic.Int64 // pulses so far
	at   atomic.Int64 // when the latest came, in ticks that were not missed

	mu       lock.Mutex
	excluded []uint64 // groups in it that do not follow; they stay, since an answer may be lost
}

// NewReceiver returns one that has heard nothing. It calls follow for each group of a new list. follow
// makes the group rely on the list (Subscription.Begin) if the group follows its leader and lacks nothing,
// and reports whether it did.
func NewReceiver(follow func(line Line, leader uint64, c *Cover) bool) *Receiver {
	return &Receiver{follow: follow, peers: map[uint64]*peerState{}}
}

// Receive receives what a record says of the groups that its sender leads. now is the time in ticks,
// without the missed ticks.
func (h *Receiver) Receive(from uint64, r Record, now int64) {
	if !r.Pulses {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	f := h.peers[from]
	if f == nil {
		f = &peerState{}
		h.peers[from] = f
	}
	name := versionName{r.Life, r.Version}
	if l := f.list; l != nil && l.name.life == name.life && l.name.version > name.version {
		return // it comes late
	}
	f.latest, f.answers = name, true
	switch l := f.list; {
	case l != nil && l.name == name:
		l.hear(now)
	case r.HasList:
		f.list = h.newList(from, name, r.Lines, now)
	}
}

// Forget forgets what a host has said. Groups that rely on it go on: its list is silent.
func (h *Receiver) Forget(id uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.peers, id)
}

// newList makes those groups of a list that follow rely on it.
func (h *Receiver) newList(from uint64, name versionName, lines []Line, now int64) *PeerPulses {
	l := &PeerPulses{from: from, name: name}
	l.hear(now)
	covers := make([]Cover, len(lines))
	for i, line := range lines {
		covers[i] = Cover{l, line.Term}
		if !h.follow(line, from, &covers[i]) {
			l.exclude(line.Group)
		}
	}
	return l
}

// hear notes a pulse. The clock of a process that was paused is late, so the number of pulses says whether
// there was one.
func (l *PeerPulses) hear(now int64) {
	l.at.Store(now)
	l.n.Add(1)
}

// From is the host that leads the groups of the list.
func (l *PeerPulses) From() uint64 { return l.from }

// Count is how many pulses came so far.
func (l *PeerPulses) Count() int64 { return l.n.Load() }

// At is when the latest came, in ticks that were not missed.
func (l *PeerPulses) At() int64 { return l.at.Load() }

// Answer returns the answer to the latest pulse of a host, if there was one since the last call.
func (h *Receiver) Answer(peer uint64) (a Answer, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f := h.peers[peer]
	if f == nil || !f.answers {
		return a, false
	}
	f.answers = false
	a.Life, a.Version = f.latest.life, f.latest.version
	if l := f.list; l != nil && l.name == f.latest {
		a.Known, a.Excluded = true, l.exclusions()
	}
	return a, true // or the leader's host sends the list again
}

func (l *PeerPulses) exclude(group uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.excluded = append(l.excluded, group)
}

// exclusions returns the excluded groups, in ascending order.
func (l *PeerPulses) exclusions() []uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	slices.Sort(l.excluded)
	l.excluded = slices.Compact(l.excluded)
	return slices.Clone(l.excluded)
}
