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
