package outcome

import (
	"errors"
	"fmt"

	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/host/membership"
)

// ErrMembersUnchanged is wrapped by errors that refuse a plan. Reasons are a second plan under way, members
// that have changed since the plan, an unknown directory, an address of another member, or no quorum left.
// The error says which.
var ErrMembersUnchanged = membership.ErrRefused

// ErrPlanCancelled: the plan was cancelled before its last stage. What was in force by then stays.
var ErrPlanCancelled = errors.New("millrace: the plan was cancelled")

// ErrNotFounded: the group is not founded, so it takes no commands. A NotFoundedError says what is missing.
var ErrNotFounded = errors.New("millrace: the group is not founded")

// NotFoundedError says why a group takes no commands yet. errors.Is finds ErrNotFounded in it.
type NotFoundedError struct {
	Group uint64
	diagnosis.Founding
}

// Error says what is missing, and what can be done.
func (e *NotFoundedError) Error() string {
	return fmt.Sprintf("millrace: group %d %v", e.Group, &e.Founding)
}

// Is makes errors.Is(err, ErrNotFounded) hold.
func (e *NotFoundedError) Is(target error) bool { return target == ErrNotFounded }
