package smtest

import (
	"fmt"
	"runtime/debug"

	"github.com/millrace/millrace"
)

// changeEvery is how many commands are between two changes of the members.
const changeEvery = 5

// memberships is the members by and by: a host is added, and leaves, and one becomes a learner.
var memberships = []millrace.Configuration{
	{Voters: []uint64{1, 2, 3}},
	{Voters: []uint64{1, 2, 3}, Learners: []uint64{4}},
	{Voters: []uint64{1, 2, 4}, Outgoing: []uint64{1, 2, 3}},
	{Voters: []uint64{1, 2, 4}},
	{Voters: []uint64{1, 4}, Outgoing: []uint64{1, 2, 4}, LearnersNext: []uint64{2}},
	{Voters: []uint64{1, 4}, Learners: []uint64{2}},
	{Voters: []uint64{1, 2, 3}, Outgoing: []uint64{1, 4}, Learners: []uint64{5}},
}

// changeBefore returns the change of the members whose entry is right before that of command i, if any.
func (k *kit[C, R]) changeBefore(i int) (c millrace.Configuration, is bool) {
	if i%changeEvery != 0 {
		return c, false
	}
	c = memberships[i/changeEvery%len(memberships)]
	if i > 0 {
		_, _, c.Time = logPosition(i - 1)
	}
	c.Index, c.Term, _ = logPosition(i)
	c.Index--
	c.Version = k.course.version(i)
	return c, true
}

// changeMembers tells a machine that learns of members of the change before command i, if any. It returns how
// many of the n commands behind that are in one batch.
func (k *kit[C, R]) changeMembers(sm millrace.StateMachine[C, R], i, n int) (_ int, err error) {
	observer, is := sm.(millrace.MembersObserver)
	if !is {
		return n, nil
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("MembersChanged panics before %s: %v\n%s", k.name(i), p, debug.Stack())
		}
	}()
	if c, is := k.changeBefore(i); is {
		if err := observer.MembersChanged(c); err != nil {
			return 0, fmt.Errorf("MembersChanged before %s returns an error, which halts the machine of this member, and of all members if all return it: %w", k.name(i), err)
		}
	}
	return min(n, changeEvery-i%changeEvery), nil
}
