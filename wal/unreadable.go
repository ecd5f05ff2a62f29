package wal

import (
	"errors"
	"slices"
)

// isUnreadable reports whether a read failed because the disk cannot return these blocks: what it holds elsewhere can be
// read.
func isUnreadable(err error) bool {
	return slices.ContainsFunc(mediumErrors, func(medium error) bool { return errors.Is(err, medium) })
}
