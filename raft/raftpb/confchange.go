package raftpb

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Membership changes in the form in which a proposer writes them, and configurations in the form in which
// storage keeps them. What a change does to a configuration is the subject of raft/confchange.

// ConfChangeI is what a proposer may pass: a ConfChange or a ConfChangeV2. (The name is etcd-io/raft's.)
type ConfChangeI interface {
	// AsV2 returns the change in the newer form, which can express every change.
	AsV2() ConfChangeV2
	// AsV1 returns the change in the older form, if it was written in that form.
	AsV1() (ConfChange, bool)
}

// AsV2 returns c as a list of one change.
func (c ConfChange) AsV2() ConfChangeV2 {
	return ConfChangeV2{Changes: []ConfChangeSingle{{Type: c.Type, NodeID: c.NodeID}}, Context: c.Context}
}

// AsV1 returns c itself.
func (c ConfChange) AsV1() (ConfChange, bool) { return c, true }

// AsV2 returns c itself.
func (c ConfChangeV2) AsV2() ConfChangeV2 { return c }

// AsV1 returns false, whatever c holds: the type of an entry says how its data was written.
func (c ConfChangeV2) AsV1() (ConfChange, bool) { return ConfChange{}, false }

// EnterJoint reports whether c passes through a joint configuration (thesis §4.3), and whether the leader
// then leaves that configuration by itself. More than one change always goes through a joint configuration,
// even where the current configuration would allow a simple change. The answer depends on c alone, so every
// node gives the same answer.
//
// A transition without a name counts as explicit. That is safe, and nothing more happens until the
// application asks for it. Peers can send such a number, so it is no reason to panic.
func (c ConfChangeV2) EnterJoint() (autoLeave bool, ok bool) {
	if c.Transition == ConfChangeTransitionAuto && len(c.Changes) <= 1 {
		return false, false
	}
	return c.Transition == ConfChangeTransitionAuto || c.Transition == ConfChangeTransitionJointImplicit, true
}

// LeaveJoint reports whether c is the change that leaves a joint configuration: the empty one, with any
// Context.
func (c ConfChangeV2) LeaveJoint() bool {
	return c.Transition == ConfChangeTransitionAuto && len(c.Changes) == 0
}

// MarshalConfChange returns the type and the data of the entry that carries c, in the form in which c was
// written. The error is always nil. A nil c is the change that leaves a joint configuration; it has no data,
// so that no limit on sizes ever refuses it.
func MarshalConfChange(c ConfChangeI) (EntryType, []byte, error) {
	if c == nil {
		return EntryConfChangeV2, nil, nil
	}
	if v1, ok := c.AsV1(); ok {
		data, err := v1.Marshal()
		return EntryConfChange, data, err
	}
	v2 := c.AsV2()
	data, err := v2.Marshal()
	return EntryConfChangeV2, data, err
}

// Equivalent returns nil if both values describe the same configuration, in whatever order they list its
// members, and otherwise an error that shows both.
func (c ConfState) Equivalent(other ConfState) error {
	same := c.AutoLeave == other.AutoLeave &&
		sameMembers(c.Voters, other.Voters) &&
		sameMembers(c.Learners, other.Learners) &&
		sameMembers(c.VotersOutgoing, other.VotersOutgoing) &&
		sameMembers(c.LearnersNext, other.LearnersNext)
	if same {
		return nil
	}
	return fmt.Errorf("configurations differ: have %+v, want %+v", c, other)
}

func sameMembers(a, b []uint64) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// changeLetters are the letters of the notation "v1 l2 r3 u4": make 1 a voter and 2 a learner, remove 3,
// update 4.
var changeLetters = map[ConfChangeType]string{
	ConfChangeAddNode:        "v",
	ConfChangeAddLearnerNode: "l",
	ConfChangeRemoveNode:     "r",
	ConfChangeUpdateNode:     "u",
}

// ConfChangesFromString reads changes in the notation "v1 l2 r3 u4", with one space between them.
func ConfChangesFromString(s string) ([]ConfChangeSingle, error) {
	s = strings.TrimSpace(s)
	if s == "" {
		return nil, nil
	}
	var changes []ConfChangeSingle
	for word := range strings.SplitSeq(s, " ") {
		change, err := parseChange(word)
		if err != nil {
			return nil, err
		}
		changes = append(changes, change)
	}
	return changes, nil
}

func parseChange(word string) (ConfChangeSingle, error) {
	for kind, letter := range changeLetters {
		digits, ok := strings.CutPrefix(word, letter)
		if !ok || digits == "" {
			continue
		}
		id, err := strconv.ParseUint(digits, 10, 64)
		if err != nil {
			return ConfChangeSingle{}, fmt.Errorf("change %q: %w", word, err)
		}
		return ConfChangeSingle{Type: kind, NodeID: id}, nil
	}
	return ConfChangeSingle{}, fmt.Errorf("change %q: want v, l, r or u and a number", word)
}

// ConfChangesToString writes the notation that ConfChangesFromString reads. A kind without a letter is
// written as "unknown".
func ConfChangesToString(changes []ConfChangeSingle) string {
	words := make([]string, len(changes))
	for i, change := range changes {
		letter, ok := changeLetters[change.Type]
		if !ok {
			letter = "unknown"
		}
		words[i] = letter + strconv.FormatUint(change.NodeID, 10)
	}
	return strings.Join(words, " ")
}
