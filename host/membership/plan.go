package membership

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/raft/raftpb"
)

// PlanID names a plan: 128 random bits.
type PlanID [16]byte

func (p PlanID) String() string { return hex.EncodeToString(p[:4]) }

// Plan is a way from one roster to another, in stages. It is in the log, so every member knows it, and any
// leader continues with it.
type Plan struct {
	ID PlanID
	// Base is what Roster.Changed must be when it begins.
	Base uint64
	// Time is the log time at which it was proposed, if it uses tokens: none of them may have expired.
	Time time.Duration
	// Stages are the changes, one after the other. A stage that promotes a learner waits until the learner
	// has caught up.
	Stages [][]Step
	// Done is how many stages are in force. When all are, the plan is under way until an entry behind them is
	// (End).
	Done int
}

// Ended is a plan that has ended.
type Ended struct {
	ID PlanID
	// Index is the entry with which it has ended.
	Index uint64
	// Cancelled is set if it was cancelled before its last stage, with Done stages in force.
	Cancelled bool
	Done      int
}

// MaxEnded bounds the plans of which a roster knows how they have ended.
const MaxEnded = 32

// HowEnded returns how a plan has ended, if that is known.
func (r *Roster) HowEnded(id PlanID) (e Ended, ok bool) {
	for _, e := range r.Ended {
		if e.ID == id {
			return e, true
		}
	}
	return e, false
}

// Want is what a caller wants of one member. The zero values of Learner and of what Op does not use are right
// for most.
type Want struct {
	Op Op // Add, Promote, Demote, Remove
	Member
	// Learner makes an added member stay a learner.
	Learner bool
	// Replace gives the id of an existing member to another directory: Op is Add.
	Replace bool
	// Token is the join token by which a member is added; zero: none.
	Token TokenHash
}

// Make returns the stages that lead from a roster to what is wanted, or why that cannot be.
func (r *Roster) Make(wants []Want) ([][]Step, error) {
	switch {
	case len(wants) == 0:
		return nil, refuse("no change is named")
	case len(wants) > MaxSteps:
		return nil, refuse("%d changes at once, want at most %d", len(wants), MaxSteps)
	case r.Plan != nil:
		return nil, refuse("plan %v is under way, at stage %d of %d; wait for it, or cancel it", r.Plan.ID, r.Plan.Done+1, len(r.Plan.Stages))
	case r.IsJoint():
		return nil, refuse("a change is under way: the configuration is joint")
	}
	var demote, leave, add, last []Step
	named := map[uint64]bool{}
	for _, w := range wants {
		if named[w.ID] {
			return nil, refuse("one plan names member %d twice", w.ID)
		}
		named[w.ID] = true
		m := Member{ID: w.ID}
		switch {
		case w.Op == Add && w.Replace:
			role := r.Role(w.ID)
			if role == None {
				return nil, refuse("there is no member %d to replace; the members are %v: name one of these, or add host %d (AddMember)", w.ID, r.IDs(), w.ID)
			}
			if role != Learner {
				demote = append(demote, Step{Op: Demote, Member: m})
			}
			leave = append(leave, Step{Op: Remove, Member: m})
			add = append(add, Step{Op: Add, Member: w.Member, Replaces: true, Token: w.Token})
			if role != Learner && !w.Learner {
				last = append(last, Step{Op: Promote, Member: m})
			}
		case w.Op == Add:
			add = append(add, Step{Op: Add, Member: w.Member, Token: w.Token})
			if !w.Learner {
				last = append(last, Step{Op: Promote, Member: m})
			}
		default:
			last = append(last, Step{Op: w.Op, Member: m})
		}
	}
	var promote []Step
	if r.takesAll(slices.Concat(demote, last)) {
		promote, last = split(last)
	}
	var stages [][]Step
	for _, steps := range [][]Step{demote, leave, add, promote, last} {
		if len(steps) > 0 {
			stages = append(stages, steps)
		}
	}
	if err := r.rejectStages(stages); err != nil {
		return nil, err
	}
	return stages, nil
}

// takesAll reports whether steps take the votes of all present voters. Their leader could hand over to none
// of them, so the new voters are promoted in a stage of their own.
func (r *Roster) takesAll(steps []Step) bool {
	return !slices.ContainsFunc(r.Conf.Voters, func(id uint64) bool { return !Takes(steps, id) })
}

// split returns the steps that promote, and the others.
func split(steps []Step) (promote, others []Step) {
	for _, s := range steps {
		if s.Op == Promote {
			promote = append(promote, s)
		} else {
			others = append(others, s)
		}
	}
	return promote, others
}

// rejectStages plays stages, and says which of them cannot be.
func (r *Roster) rejectStages(stages [][]Step) error {
	_, err := r.Play(stages)
	return err
}

// Play returns the rosters that stages lead to: after each stage, the joint configuration on the way before
// it if there is one.
func (r *Roster) Play(stages [][]Step) (rosters []*Roster, err error) {
	at := *r
	at.Plan = &Plan{Stages: stages}
	next := &at
	for i, steps := range stages {
		c := Change{Base: next.Changed, Stage: i, Steps: steps}
		index := next.Version + 1
		if next, err = next.Next(index, c.Entry()); err != nil {
			return nil, err
		}
		rosters = append(rosters, next)
		if next.IsJoint() {
			if next, err = next.Next(index+1, leaveJoint); err != nil {
				return nil, err
			}
			rosters = append(rosters, next)
		}
	}
	return rosters, nil
}

// leaveJoint is the entry that the core proposes to leave a joint configuration.
var leaveJoint = raftpb.ConfChangeV2{}

// advance notes that a stage is in force.
func (r *Roster) advance() {
	p := *r.Plan
	p.Done++
	r.Plan = &p
}

// Ends reports whether all stages of a plan are in force and the entry that ends it is next.
func (r *Roster) Ends() bool {
	return r.Plan != nil && r.Plan.Done == len(r.Plan.Stages) && !r.IsJoint()
}

// End returns the roster after the entry that ends a plan whose stages are all in force, or why the entry
// changes nothing. The leader proposes this entry only after the last stage is committed. So members that
// hold this entry durably hold durably that the last stage is committed. A quorum that had forgotten it
// would count by the configuration before, and wait for members that the plan has removed, and whose disks
// may be gone.
func (r *Roster) End(index uint64, id PlanID) (*Roster, error) {
	if !r.Ends() || r.Plan.ID != id {
		return nil, refuse("plan %v does not end here", id)
	}
	next := *r
	next.finish(index, false)
	return &next, nil
}

func (r *Roster) finish(index uint64, cancelled bool) {
	r.Version, r.Changed = index, index
	ended := append(slices.Clone(r.Ended), Ended{ID: r.Plan.ID, Index: index, Cancelled: cancelled, Done: r.Plan.Done})
	r.Ended = ended[max(0, len(ended)-MaxEnded):]
	r.Plan = nil
}

// Begin returns the roster after an entry that begins a plan, or why the entry changes nothing.
func (r *Roster) Begin(index uint64, p Plan) (*Roster, error) {
	switch {
	case p.Base != r.Changed:
		return nil, refuse("the plan was made for version %d of the members, and they have version %d; look at them, and plan again", p.Base, r.Changed)
	case r.Plan != nil:
		return nil, refuse("plan %v is under way, at stage %d of %d; wait for it, or cancel it", r.Plan.ID, r.Plan.Done+1, len(r.Plan.Stages))
	case r.IsJoint():
		return nil, refuse("a change is under way: the configuration is joint")
	case len(p.Stages) == 0:
		return nil, refuse("the plan is empty")
	}
	at := *r
	at.Time = max(r.Time, p.Time)
	if err := at.rejectTokens(p.Stages); err != nil {
		return nil, err
	}
	if err := r.rejectStages(p.Stages); err != nil {
		return nil, err
	}
	next := at
	next.Version, next.Changed = index, index
	p.Done = 0
	next.Plan = &p
	return &next, nil
}

// RejectAsked says why a leader must not begin this plan when another member asks for it, or returns nil.
// Only a leader that has seen the proof of a token names the token, and the log time. The log time counts
// for the roster from then on, and no open token would outlive a made-up time.
func (p Plan) RejectAsked() error {
	names := func(s Step) bool { return !s.Token.IsZero() }
	if p.Time != 0 || slices.ContainsFunc(p.Stages, func(steps []Step) bool { return slices.ContainsFunc(steps, names) }) {
		return refuse("the plan names a join token, or the log time %v; only a leader makes such a plan, for a host that proves that it has the token", p.Time)
	}
	return nil
}

// Cancel returns the roster after an entry that cancels a plan, or why the entry changes nothing. Stages that
// are in force stay so. The tokens that the plan would have used are void: their hosts would come back with
// them at once.
func (r *Roster) Cancel(index uint64, id PlanID) (*Roster, error) {
	if r.Plan == nil || r.Plan.ID != id {
		return nil, refuse("plan %v is not under way", id)
	}
	if r.Plan.Done == len(r.Plan.Stages) {
		return nil, refuse("all stages of plan %v are in force", id)
	}
	next := *r
	next.Tokens = r.withoutTokensOf(r.Plan)
	next.finish(index, true)
	return &next, nil
}

// NextStage returns the stage that comes next, if a plan is under way.
func (r *Roster) NextStage() (c Change, ok bool) {
	if r.Plan == nil || r.IsJoint() || r.Ends() {
		return c, false
	}
	return Change{Base: r.Changed, Plan: r.Plan.ID, Stage: r.Plan.Done, Steps: r.Plan.Stages[r.Plan.Done]}, true
}

// Takes reports whether steps take the vote of a member.
func Takes(steps []Step, id uint64) bool {
	return slices.ContainsFunc(steps, func(s Step) bool { return s.ID == id && (s.Op == Remove || s.Op == Demote) })
}

func (p *Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "plan %v, %d of %d stages done", p.ID, p.Done, len(p.Stages))
	for i, steps := range p.Stages {
		fmt.Fprintf(&b, "; %d. %s", i+1, Describe(steps))
	}
	return b.String()
}
