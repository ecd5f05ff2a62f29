package membership

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/millrace/millrace/raft/confchange"
	"github.com/millrace/millrace/raft/quorum"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/raft/tracker"
	"github.com/millrace/millrace/transport"
)

// Roster says who the members of a group are after some entry of its log. It is immutable.
type Roster struct {
	// Version is the index of the entry that has changed the roster last; 0: it is as the group was founded.
	// Changed is the index of the last entry that has changed the members or the plan under way. Plans and
	// stages name it, and change no roster with another. Tokens and keys change the version only.
	Version, Changed uint64
	// Time is the highest log time that an entry of the roster has named.
	Time time.Duration
	// Conf is the configuration of the core.
	Conf raftpb.ConfState
	// Members are all members, voters and learners, by ascending id.
	Members []Member
	// Removed are the directories that were removed, by ascending id of their member. Directories of one
	// member are in the order of their removal. An id is given again only to replace a directory
	// (Want.Replace), and never to one of these.
	Removed []Member
	// Plan is the plan under way; nil: there is none. Ended are those that have ended last, the latest last,
	// at most MaxEnded.
	Plan  *Plan
	Ended []Ended
	// Tokens are the join tokens that were not used, in the order in which they were made.
	Tokens []Token
}

// Member is a member and the directory that it is bound to.
type Member struct {
	ID          uint64
	Incarnation transport.Incarnation
	// Addr is where the member was reached when it was added: a hint. It may be empty.
	Addr string
	// Keys are the public keys with which the member may prove its id; without any, its certificate is not
	// compared (key.go).
	Keys Keys
}

// Role is what a member does in its group.
type Role uint8

// The roles. A member that is Incoming or Outgoing is a voter of one half of a joint configuration. It is
// on its way to becoming a voter, or to being none any more.
const (
	None Role = iota
	Learner
	Voter
	Incoming
	Outgoing
)

var roleNames = [...]string{"no member", "learner", "voter", "incoming voter", "outgoing voter"}

func (r Role) String() string { return roleNames[min(r, Outgoing)] }

// MarshalText writes the role in words, as String does.
func (r Role) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads what MarshalText has written.
func (r *Role) UnmarshalText(text []byte) error {
	i := slices.Index(roleNames[:], string(text))
	if i < 0 {
		return fmt.Errorf("%w: %.80q is no role of a member", ErrFormat, text)
	}
	*r = Role(i)
	return nil
}

// Founded returns the roster of a group that was founded with these members, which ascend, all as voters.
func Founded(members []Member) *Roster {
	r := &Roster{Members: members}
	for _, m := range members {
		r.Conf.Voters = append(r.Conf.Voters, m.ID)
	}
	return r
}

// Member returns the member with an id.
func (r *Roster) Member(id uint64) (m Member, ok bool) { return find(r.Members, id) }

// Was reports whether a directory of a member was removed.
func (r *Roster) Was(id uint64, i transport.Incarnation) bool {
	return slices.ContainsFunc(r.Removed, func(m Member) bool { return m.ID == id && m.Incarnation == i })
}

// Replaced reports whether a directory of a member was removed before another one became that of the member.
func (r *Roster) Replaced(id uint64, i, by transport.Incarnation) bool {
	was := false
	for _, m := range r.Removed {
		switch {
		case m.ID != id:
		case m.Incarnation == i:
			was = true
		case m.Incarnation == by && was:
			return true
		}
	}
	m, ok := r.Member(id)
	return was && ok && m.Incarnation == by
}

func find(members []Member, id uint64) (Member, bool) {
	i := sort.Search(len(members), func(i int) bool { return members[i].ID >= id })
	if i == len(members) || members[i].ID != id {
		return Member{}, false
	}
	return members[i], true
}

// IDs returns the ids of all members, in ascending order.
func (r *Roster) IDs() []uint64 {
	ids := make([]uint64, len(r.Members))
	for i, m := range r.Members {
		ids[i] = m.ID
	}
	return ids
}

// Role returns the role of a member.
func (r *Roster) Role(id uint64) Role {
	in, out := slices.Contains(r.Conf.Voters, id), slices.Contains(r.Conf.VotersOutgoing, id)
	switch {
	case in && (out || len(r.Conf.VotersOutgoing) == 0):
		return Voter
	case in:
		return Incoming
	case out:
		return Outgoing
	case slices.Contains(r.Conf.Learners, id):
		return Learner
	}
	return None
}

// Votes reports whether a member is a voter of any half of the configuration.
func (r *Roster) Votes(id uint64) bool { return r.Role(id) >= Voter }

// Voters returns the voters of both halves of the configuration, in ascending order.
func (r *Roster) Voters() []uint64 {
	if !r.IsJoint() {
		return r.Conf.Voters
	}
	all := slices.Concat(r.Conf.Voters, r.Conf.VotersOutgoing)
	slices.Sort(all)
	return slices.Compact(all)
}

// IsJoint reports whether a transition through a joint configuration is under way.
func (r *Roster) IsJoint() bool { return len(r.Conf.VotersOutgoing) > 0 }

// Spare returns how many more voters may fail before the group has no quorum, if those for which is returns
// true work now. It is negative if they are no quorum.
func (r *Roster) Spare(works func(id uint64) bool) int { return spare(r.Conf, works) }

func spare(conf raftpb.ConfState, works func(id uint64) bool) int {
	left := half(conf.Voters, works)
	if len(conf.VotersOutgoing) > 0 {
		left = min(left, half(conf.VotersOutgoing, works))
	}
	return left
}

func half(voters []uint64, works func(id uint64) bool) int {
	n := 0
	for _, id := range voters {
		if works(id) {
			n++
		}
	}
	return n - quorum.Size(len(voters))
}

// ErrRefused is wrapped by every error that refuses a change or a plan.
var ErrRefused = errors.New("the members are not changed")

// Refusal refuses something, and says what. errors.Is finds ErrRefused in it: callers ask whether anything
// has changed, and readers want to know what has not.
type Refusal string

const (
	ErrNotUpgraded Refusal = "the group is not upgraded"
	ErrNotSkipped  Refusal = "the command is not skipped"
)

func (r Refusal) Error() string { return string(r) }

// Is makes errors.Is(err, ErrRefused) hold.
func (Refusal) Is(target error) bool { return target == ErrRefused }

func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrRefused}, args...)...)
}

// Next returns the roster after an entry with a change of the configuration, or why the entry changes
// nothing. It is the same on every member.
func (r *Roster) Next(index uint64, cc raftpb.ConfChangeV2) (*Roster, error) {
	next := *r
	next.Version, next.Changed = index, index
	if len(cc.Context) == 0 {
		if !cc.LeaveJoint() {
			return nil, refuse("entry %d changes the configuration and does not say which directories its members have", index)
		}
	} else {
		c, err := DecodeChange(cc.Context)
		if err != nil {
			return nil, err
		}
		if err := r.rejectChange(c); err != nil {
			return nil, err
		}
		if want := c.Entry(); want.Transition != cc.Transition || !slices.Equal(want.Changes, cc.Changes) {
			return nil, refuse("entry %d changes the configuration by %v, and its context says %v", index, cc.Changes, want.Changes)
		}
		next.Members = after(r.Members, c.Steps)
		next.Tokens = without(r.Tokens, c.Steps)
		next.advance()
	}
	conf, err := nextConf(r.Conf, cc)
	if errors.Is(err, confchange.ErrRemovesVoters) {
		return nil, refuse("%w; a group keeps one voter at least: close it on all hosts to end it (Host.RemoveGroup)", err)
	}
	if err != nil {
		return nil, refuse("%w", err)
	}
	next.Conf = conf
	next.dropRemoved()
	return &next, nil
}

// after returns the members with those that the steps add. Removed ones are still there.
func after(members []Member, steps []Step) []Member {
	for _, s := range steps {
		if s.Op != Add {
			continue
		}
		at := sort.Search(len(members), func(i int) bool { return members[i].ID >= s.ID })
		members = slices.Insert(slices.Clip(members), at, s.Member)
	}
	return members
}

// dropRemoved moves those that are not in the configuration any more to Removed.
func (r *Roster) dropRemoved() {
	in := func(id uint64) bool { return r.Role(id) != None || slices.Contains(r.Conf.LearnersNext, id) }
	if !slices.ContainsFunc(r.Members, func(m Member) bool { return !in(m.ID) }) {
		return
	}
	members, removed := []Member(nil), slices.Clone(r.Removed)
	for _, m := range r.Members {
		if in(m.ID) {
			members = append(members, m)
			continue
		}
		m.Addr, m.Keys = "", Keys{}
		at := sort.Search(len(removed), func(i int) bool { return removed[i].ID > m.ID })
		removed = slices.Insert(removed, at, m)
	}
	r.Members, r.Removed = members, removed
}

// nextConf returns the configuration after a change.
func nextConf(conf raftpb.ConfState, cc raftpb.ConfChangeV2) (raftpb.ConfState, error) {
	empty := confchange.Changer{Tracker: tracker.MakeProgressTracker(1, 0)}
	config, views, err := confchange.Restore(empty, conf)
	if err != nil {
		return conf, err
	}
	t := tracker.MakeProgressTracker(1, 0)
	t.Config, t.Progress = config, views
	changer := confchange.Changer{Tracker: t}
	switch autoLeave, joint := cc.EnterJoint(); {
	case cc.LeaveJoint():
		config, _, err = changer.LeaveJoint()
	case joint:
		config, _, err = changer.EnterJoint(autoLeave, cc.Changes...)
	default:
		config, _, err = changer.Simple(cc.Changes...)
	}
	if err != nil {
		return conf, err
	}
	return config.ConfState(), nil
}
