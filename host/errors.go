package host

import (
	"errors"
	"fmt"
)

// wrap returns err with its cause, unless the cause is err already.
func wrap(err, cause error) error {
	if cause == nil || errors.Is(cause, err) {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// refusedDirectoryError is why a group stops whose host comes with a directory that it must not have.
type refusedDirectoryError struct{ error }

func (e *refusedDirectoryError) Unwrap() error { return e.error }
