package leadership

import (
	"time"

	"github.com/millrace/millrace/host/internal/examination"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/raft/tracker"
)

// Leader is a member's watch on its own work while it leads (stall.go, machine.go), and what it hands over
// because a caller wants it (transfer.go). It belongs to the turn.
type Leader struct {
	settings Settings
	turn     Turn

	disk       examination.Standstill
	full       examination.Standstill
	machine    stuckMachine
	acks       Acks   // of the other members
	checkedAt  int64  // the tick in which it looked last
	restsUntil int64  // it hands nothing over before this tick
	askAfter   int64  // the others are not asked to write before this tick
	tried      uint64 // the term in which a hand-over was tried
	stepped    uint64 // the term in which it stepped down after that

	transfer *Transfer // under way, because a caller has asked for it; nil: none
}

// Settings are those of a group on a host. They do not change. Times are in ticks.
type Settings struct {
	Group, Self                uint64
	Heartbeat, Election, Stall int64
	Tick                       time.Duration
}

// Turn is what a leader asks of its group, in a turn.
type Turn interface {
	Core() LeaderCore
	Ticks() int64                                // that were missed count
	Disk() (busy bool, rounds uint64, full bool) // of the entries of this group
	Machine() (busy bool, progress uint64)       // with committed entries
	IsHalted() bool                              // the machine: nothing will be applied
	MachineApplied(index uint64) uint64          // of which the core knows index
	IsQuorum(is func(id uint64) bool) bool       // of the members that count
	Lacks(id uint64) string                      // something that a member must have before it leads; "": nothing
	Send(to uint64, body []byte)
	Refused(err error)                     // of the core
	IsThere(id uint64) bool                // a host was heard lately
	NotLeader(leads uint64) error          // for what only a leader does
	Transferred(term uint64)               // a transfer has begun in a term: placement rests
	GivenUp(term, to uint64, cause string) // to a member, or to none
}

// LeaderCore is what is called of the core of a leader: raft.RawNode.
type LeaderCore interface {
	Core
	TransferLeader(to uint64) error
	StepDown(quiet int)
	Step(m raftpb.Message) error
}

// Open begins the watch. It is called before anything else.
func (l *Leader) Open(s Settings, t Turn) { l.settings, l.turn = s, t }

// Acknowledged records that a member acknowledged an append of this term. A late one of an earlier term says
// nothing about the member's disk now.
func (l *Leader) Acknowledged(m *raftpb.Message) {
	if m.Type != raftpb.MsgAppResp || m.Reject || m.Index == 0 {
		return
	}
	if term, _, _ := l.turn.Core().Leadership(); m.Term != term {
		return
	}
	l.acks.Record(m.From, l.turn.Ticks())
}

// Rest makes the leader hand nothing over for two election timeouts: it has just done so.
func (l *Leader) Rest() { l.restsUntil = l.turn.Ticks() + 2*l.settings.Election }

// Rests reports whether it must not hand over.
func (l *Leader) Rests() bool { return l.turn.Ticks() < l.restsUntil }

// SteppedDown reports whether the leader of a term has stepped down because its own work stood still.
func (l *Leader) SteppedDown(term uint64) bool { return l.stepped == term }

// Successor returns the other member with most of the log among those that fit, or None. A member that is
// known to lack an object does not fit: commands may name it.
func (l *Leader) Successor(fits func(id uint64, pr tracker.Progress) bool) (target uint64) {
	most := uint64(0)
	l.turn.Core().WithProgress(func(id uint64, kind raft.ProgressType, pr tracker.Progress) {
		if hasAuthority(kind, &pr) && id != l.settings.Self && fits(id, pr) && l.turn.Lacks(id) == "" && (target == raft.None || pr.Match > most) {
			target, most = id, pr.Match
		}
	})
	return target
}

// hasAuthority reports whether a member may lead, as a leader sees it.
func hasAuthority(kind raft.ProgressType, pr *tracker.Progress) bool {
	return kind == raft.ProgressTypePeer && !pr.WithoutAuthority
}
