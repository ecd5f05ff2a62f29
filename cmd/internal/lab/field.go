package lab

import (
	"errors"
	"fmt"
	"os"
	"time"
)

// The two reasons to refuse a plan. Both are matters for the user, and no failure of a target.
var (
	// ErrInvalid is the reason when a value is out of bounds or makes no sense, on any machine.
	ErrInvalid = errors.New("invalid plan")
	// ErrCannot is the reason when this machine cannot do it: no such directory, a full disk, another kernel.
	ErrCannot = errors.New("cannot carry out the plan")
)

// FieldError refuses a plan for what one of its fields says. errors.Is finds ErrInvalid or ErrCannot in it.
type FieldError struct {
	Field  string // name of the exported Go field, such as "ValueBytes"; "Out" is the directory for results
	Reason string // one sentence that does not repeat the name; another field is in it as {Groups}
	kind   error
}

// Error names the field as the plan's type does. cmd/millrace replaces the name by a flag.
func (e *FieldError) Error() string { return e.Field + ": " + e.Reason }

// Unwrap returns ErrInvalid or ErrCannot.
func (e *FieldError) Unwrap() error { return e.kind }

// Invalid returns a FieldError for a value that is out of bounds.
func Invalid(field, format string, args ...any) error {
	return &FieldError{Field: field, Reason: fmt.Sprintf(format, args...), kind: ErrInvalid}
}

// Cannot returns a FieldError for a value that this machine cannot serve.
func Cannot(field, format string, args ...any) error {
	return &FieldError{Field: field, Reason: fmt.Sprintf(format, args...), kind: ErrCannot}
}

// Cause strips operation and path off an error of package os, for sentences that name the path already.
func Cause(err error) error {
	var path *os.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

// Bounds of all plans: generous, and far below where arithmetic or memory would fail.
const (
	MaxClients = 100_000
	MaxHosts   = 9

	maxRuns     = 100
	maxDuration = 24 * time.Hour
)

// ValidateWindows returns the first reason why points cannot be measured this long and this often. It wraps
// ErrInvalid and names the fields Duration, Warmup and Runs.
func ValidateWindows(duration, warmup time.Duration, runs int) error {
	switch {
	case duration <= 0 || duration > maxDuration:
		return Invalid("Duration", "%v is not between 1ns and %v", duration, maxDuration)
	case warmup < 0 || warmup > maxDuration:
		return Invalid("Warmup", "%v is not between 0 and %v", warmup, maxDuration)
	case runs < 1 || runs > maxRuns:
		return Invalid("Runs", "%d is not between 1 and %d", runs, maxRuns)
	}
	return nil
}
