package raft

import "fmt"

// BrokenInvariant is the value of the only panic in this package. It means a bug in Millrace, or a caller
// that broke the storage contract; no input from a peer causes it.
type BrokenInvariant struct{ Rule string }

func (b *BrokenInvariant) Error() string { return "raft: broken invariant: " + b.Rule }

// invariant panics if a rule of this package does not hold, and names the rule and its numbers. The numbers
// are boxed at every call, which allocates. On the path of a proposal the code therefore tests the rule
// first, and calls invariant with false.
func invariant(holds bool, rule string, numbers ...any) {
	if !holds {
		panic(&BrokenInvariant{Rule: fmt.Sprintf(rule, numbers...)})
	}
}

// checkCursors asserts the order of the cursors (ARCHITECTURE.md, "The contracts"). It is cheap, and runs
// after every input.
func (r *raft) checkCursors() {
	l := &r.log
	if l.applied > l.applying || l.applying > l.committed || l.committed > l.lastIndex() || l.applied > l.durable() && !l.aheadOfDisk() {
		invariant(false, "applied %d <= applying %d <= committed %d <= last %d, and applied <= durable %d (or no membership entry between; the next one is %d)",
			l.applied, l.applying, l.committed, l.lastIndex(), l.durable(), l.changes.next(l.durable()+1))
	}
	if (r.role == StateLeader) != (r.leader != nil) {
		invariant(false, "leader state exists exactly in a leader (role %v)", r.role)
	}
}

// aheadOfDisk reports whether entries in (durable, applied] are allowed: the state machine is volatile, and
// none of them is a membership entry.
func (l *raftLog) aheadOfDisk() bool {
	return l.applyUnstable && l.changes.next(l.durable()+1) > l.applied
}
