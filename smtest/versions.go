package smtest

import (
	"fmt"

	"github.com/millrace/millrace"
)

// course says at which version each command is applied: the first at from, and those from change on at to.
type course struct {
	from, to uint32
	change   int // the first command at to
}

// maxVersions bounds the versions that are tested: the last ones.
const maxVersions = 8

// courses returns those of a machine: each version alone, and the change from each to the next, in the middle
// of the commands. A group may leave a version out, so there is also the change from the first to the last.
func courses(can millrace.Versions, commands int) (all []course) {
	lowest := can.Lowest
	if can.Highest-lowest >= maxVersions {
		lowest = can.Highest - maxVersions + 1
	}
	middle := (commands + 1) / 2
	for v := lowest; ; v++ {
		if all = append(all, course{v, v, 0}); v == can.Highest {
			break
		}
		all = append(all, course{v, v + 1, middle})
	}
	if can.Highest-lowest > 1 {
		all = append(all, course{lowest, can.Highest, middle})
	}
	return all
}

// version returns the version of a command.
func (c course) version(i int) uint32 {
	if i >= c.change {
		return c.to
	}
	return c.from
}

// cut returns how many of the n commands behind the first ones are in one batch: a batch has one version.
func (c course) cut(first, n int) int {
	if first < c.change && c.from != c.to {
		return min(n, c.change-first)
	}
	return n
}

// wrap says in an error which versions it is about, if there are several.
func (c course) wrap(can millrace.Versions, err error) error {
	switch {
	case err == nil || can.Lowest == can.Highest:
		return err
	case c.from == c.to:
		return fmt.Errorf("at version %d: %w", c.to, err)
	}
	return fmt.Errorf("with %d commands at version %d, and then version %d: %w", c.change, c.from, c.to, err)
}
