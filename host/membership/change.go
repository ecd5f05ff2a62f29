package membership

import (
	"fmt"
	"slices"
	"strings"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
)

// Op is what one step does to one member.
type Op uint8

// The operations. The numbers are in the log.
const (
	// Add adds a member as a learner: it gets the log and does not vote.
	Add Op = 1 + iota
	// Promote makes a learner a voter, and Demote a voter a learner.
	Promote
	Demote
	// Remove removes a member, a voter or a learner.
	Remove
)

func (o Op) String() string {
	switch o {
	case Add:
		return "add"
	case Promote:
		return "promote"
	case Demote:
		return "demote"
	case Remove:
		return "remove"
	}
	return fmt.Sprintf("operation %d", uint8(o))
}

// Step is an operation on one member. Only Add uses more of the member than its id.
type Step struct {
	Op Op
	Member
	// Replaces is set when Add gives the id of a member that was removed to another directory.
	Replaces bool
	// Token is the join token that Add uses up; zero: an operator has named the member.
	Token TokenHash
}

func (s Step) String() string {
	switch {
	case s.Op == Add && s.Replaces:
		return fmt.Sprintf("add member %d again as a learner, with directory %v", s.ID, s.Incarnation)
	case s.Op == Add:
		return fmt.Sprintf("add member %d as a learner, with directory %v", s.ID, s.Incarnation)
	case s.Op == Promote:
		return fmt.Sprintf("make learner %d a voter", s.ID)
	case s.Op == Demote:
		return fmt.Sprintf("make voter %d a learner", s.ID)
	}
	return fmt.Sprintf("%v member %d", s.Op, s.ID)
}

// Describe says what steps do, in words.
func Describe(steps []Step) string {
	var texts []string
	for _, s := range steps {
		texts = append(texts, s.String())
	}
	return strings.Join(texts, ", ")
}

// Change is the context of an entry that changes the configuration.
type Change struct {
	// Base is Roster.Changed of the roster that the change was made for: it changes no other.
	Base uint64
	// Plan is the plan of which the change is a stage, and Stage the number of that, from 0.
	Plan  PlanID
	Stage int
	Steps []Step
}

// Entry returns the change as the core understands it, with the context.
func (c Change) Entry() raftpb.ConfChangeV2 {
	cc := raftpb.ConfChangeV2{Context: c.Encode()}
	for _, s := range c.Steps {
		single := raftpb.ConfChangeSingle{NodeID: s.ID, Type: raftpb.ConfChangeRemoveNode}
		switch s.Op {
		case Add, Demote:
			single.Type = raftpb.ConfChangeAddLearnerNode
		case Promote:
			single.Type = raftpb.ConfChangeAddNode
		}
		cc.Changes = append(cc.Changes, single)
	}
	return cc
}

// rejectChange says why a change does not follow this roster, or returns nil.
func (r *Roster) rejectChange(c Change) error {
	switch {
	case c.Base != r.Changed:
		return refuse("the change was made for version %d of the members, and they have version %d", c.Base, r.Changed)
	case r.IsJoint():
		return refuse("a change is under way: the configuration is joint")
	case r.Plan == nil:
		return refuse("no plan is under way, and the change is stage %d of plan %v", c.Stage, c.Plan)
	case c.Plan != r.Plan.ID || c.Stage != r.Plan.Done || c.Stage == len(r.Plan.Stages):
		return refuse("the change is stage %d of plan %v, and the next one is stage %d of plan %v", c.Stage, c.Plan, r.Plan.Done, r.Plan.ID)
	}
	return r.rejectSteps(c.Steps)
}

// rejectSteps says why steps cannot be taken at once, or returns nil.
func (r *Roster) rejectSteps(steps []Step) error {
	if len(steps) == 0 {
		return refuse("the change is empty")
	}
	seen := map[uint64]bool{}
	for i, s := range steps {
		for _, other := range steps[:i] {
			switch {
			case s.Op != Add || other.Op != Add:
			case s.Incarnation == other.Incarnation:
				return refuse("hosts %d and %d have the same directory, %v", other.ID, s.ID, s.Incarnation)
			case s.Addr != "" && s.Addr == other.Addr:
				return refuse("hosts %d and %d have the same address, %s", other.ID, s.ID, s.Addr)
			case !s.Token.IsZero() && s.Token == other.Token:
				return refuse("hosts %d and %d come with one join token, %v", other.ID, s.ID, s.Token)
			}
		}
		if seen[s.ID] {
			return refuse("one change names member %d twice", s.ID)
		}
		seen[s.ID] = true
		if err := r.rejectStep(s); err != nil {
			return err
		}
	}
	switch added, removed := count(steps, Add), count(steps, Remove); {
	case added > 0 && len(r.Members)+added > MaxMembers:
		return refuse("the group has %d members, and %d more are added; it has at most %d", len(r.Members), added, MaxMembers)
	case removed > 0 && len(r.Removed)+removed > MaxRemoved:
		// Otherwise no snapshot could be read that has the roster.
		return refuse("%d directories were removed, and %d more are; a group remembers at most %d: found a new group, or restore this one from a backup", len(r.Removed), removed, MaxRemoved)
	}
	return nil
}

func count(steps []Step, op Op) (n int) {
	for _, s := range steps {
		if s.Op == op {
			n++
		}
	}
	return n
}

func (r *Roster) rejectStep(s Step) error {
	role := r.Role(s.ID)
	if s.Op == Add {
		return r.rejectAdd(s)
	}
	switch {
	case role == None:
		return refuse("there is no member %d to %v; the members are %v", s.ID, s.Op, r.IDs())
	case s.Op == Promote && role != Learner:
		return refuse("member %d is no learner, it is a %v", s.ID, role)
	case s.Op == Demote && role != Voter:
		return refuse("member %d is no voter, it is a %v", s.ID, role)
	case s.Op > Remove:
		return refuse("%v is unknown; use a newer program", s.Op)
	}
	return nil
}

func (r *Roster) rejectAdd(s Step) error {
	if err := r.rejectToken(s); err != nil {
		return err
	}
	removed := slices.ContainsFunc(r.Removed, func(m Member) bool { return m.ID == s.ID })
	switch {
	case s.ID == 0:
		return refuse("a member's id is not 0")
	case r.Role(s.ID) != None:
		return refuse("member %d is there already, as a %v; promote a learner (PromoteMember), and replace a member whose directory is lost (ReplaceMember)", s.ID, r.Role(s.ID))
	case s.Incarnation == transport.Incarnation{} && s.Replaces:
		return refuse("it is not known which directory host %d has instead of its own; start it on an empty directory with Joins set, so that a member hears it", s.ID)
	case s.Incarnation == transport.Incarnation{}:
		return refuse("it is not known which directory host %d has; start it, or plan on a member that hears it", s.ID)
	case slices.ContainsFunc(r.Removed, func(m Member) bool { return m.Incarnation == s.Incarnation }):
		return refuse("directory %v of host %d was removed from this group, and is never a member again; start the host with an empty directory", s.Incarnation, s.ID)
	case removed && !s.Replaces:
		return refuse("host %d was a member and was removed; give the new member an id that was never used", s.ID)
	case !removed && s.Replaces:
		return refuse("host %d was never removed, so there is nothing to replace", s.ID)
	case len(r.Removed) >= MaxRemoved:
		return refuse("%d directories were removed, the most that a group remembers; found a new group, or restore this one from a backup", len(r.Removed))
	}
	for _, m := range r.Members {
		switch {
		case m.Incarnation == s.Incarnation:
			return refuse("directory %v is that of member %d", s.Incarnation, m.ID)
		case s.Addr != "" && m.Addr == s.Addr:
			return refuse("%s is the address of member %d; each member needs its own", s.Addr, m.ID)
		case m.Keys.HasAny(s.Keys):
			return refuse("%w", KeyTaken{s.ID, m.ID})
		}
	}
	return nil
}
