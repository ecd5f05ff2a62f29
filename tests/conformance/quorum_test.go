package conformance

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/millrace/millrace/raft/quorum"
)

// quorumCases plays
//
//	committed cfg=(ids) [cfgj=(ids)|cfgj=zero] idx=(index or _, ...)
//	vote      cfg=(ids) [cfgj=(ids)|cfgj=zero] votes=(y, n or _, ...)
//
// where indexes and votes belong to the voters in the order in which the voters are first named, and _ is
// none.
func quorumCases() player {
	return func(t *testing.T, d *datadriven.TestData) string {
		half, second := voters(t, d, "cfg"), voters(t, d, "cfgj")
		joint := quorum.JointConfig{majority(half), majority(second)}
		ids := unique(append(half, second...))
		switch d.Cmd {
		case "committed":
			acked := acks{}
			for i, word := range values(d, "idx") {
				if word != "_" {
					acked[ids[i]] = quorum.Index(number(t, d, word))
				}
			}
			return committed(joint, acked, d.HasArg("cfgj"))
		case "vote":
			votes := map[uint64]bool{}
			for i, word := range values(d, "votes") {
				if word != "_" {
					votes[ids[i]] = word == "y"
				}
			}
			return vote(joint, votes, d.HasArg("cfgj"))
		}
		d.Fatalf(t, "unknown command")
		return ""
	}
}

// committed asks the single or the joint configuration. A result that must be equal and is not is added to
// the output.
func committed(c quorum.JointConfig, acked acks, joint bool) string {
	if joint {
		return c.Describe(acked) + fmt.Sprintln(c.CommittedIndex(acked)) +
			unless(c.CommittedIndex(acked), quorum.JointConfig{c[1], c[0]}.CommittedIndex(acked), "halves exchanged")
	}
	want := c[0].CommittedIndex(acked)
	return c[0].Describe(acked) + fmt.Sprintln(want) +
		unless(want, c.CommittedIndex(acked), "joint with an empty half") +
		unless(want, quorum.JointConfig{c[0], c[0]}.CommittedIndex(acked), "joint with itself")
}

func vote(c quorum.JointConfig, votes map[uint64]bool, joint bool) string {
	if joint {
		return fmt.Sprintln(c.VoteResult(votes)) +
			unless(c.VoteResult(votes), quorum.JointConfig{c[1], c[0]}.VoteResult(votes), "halves exchanged")
	}
	return fmt.Sprintln(c[0].VoteResult(votes)) + unless(c[0].VoteResult(votes), c.VoteResult(votes), "joint with an empty half")
}

func unless[T comparable](want, have T, what string) string {
	if have == want {
		return ""
	}
	return fmt.Sprintf("%s: %v\n", what, have)
}

type acks map[uint64]quorum.Index

func (a acks) AckedIndex(id uint64) (quorum.Index, bool) { idx, ok := a[id]; return idx, ok }

func values(d *datadriven.TestData, key string) []string {
	var all []string
	for _, arg := range d.CmdArgs {
		if arg.Key == key {
			all = append(all, arg.Vals...)
		}
	}
	return all
}

// voters reads a set of voters; "zero" stands for the empty set.
func voters(t *testing.T, d *datadriven.TestData, key string) []uint64 {
	var ids []uint64
	for _, word := range values(d, key) {
		if word != "zero" {
			ids = append(ids, number(t, d, word))
		}
	}
	return ids
}

func number(t *testing.T, d *datadriven.TestData, word string) uint64 {
	n, err := strconv.ParseUint(word, 10, 64)
	if err != nil {
		d.Fatalf(t, "%v", err)
	}
	return n
}

func majority(ids []uint64) quorum.MajorityConfig {
	c := quorum.MajorityConfig{}
	for _, id := range ids {
		c[id] = struct{}{}
	}
	return c
}

// unique keeps the first of equal values.
func unique(ids []uint64) []uint64 {
	var first []uint64
	for _, id := range ids {
		if !slices.Contains(first, id) {
			first = append(first, id)
		}
	}
	return first
}
