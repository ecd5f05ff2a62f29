package conformance

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	theirraft "go.etcd.io/raft/v3"

	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
)

// The comparator of a duel. A difference that it finds is either excused by one of the exceptions of
// listed_test.go, or ends the test.

// sameView compares what two nodes show of themselves.
func (d *duel) sameView(t *twin) {
	ours, theirs := t.ours.view(), t.theirs.view()
	t.partedClocks()
	if ours.transferee != None || theirs.transferee != None {
		t.part(clockOfTransfer)
	}
	d.excuseView(t, &ours, &theirs)
	if ours.state != theirs.state || ours.transferee != theirs.transferee || !maps.Equal(ours.progress, theirs.progress) {
		d.differ(t, "status", ours, theirs)
	}
	if ours.role == leading {
		d.counts["a step of a leader"]++
	}
}

// sameConfig compares the configurations of two nodes. It runs when they may have changed, because it costs
// more than the rest.
func (d *duel) sameConfig(t *twin) {
	ours, theirs := t.ours.configuration(), t.theirs.configuration()
	if ours != theirs && !d.excuseConfig(ours, theirs) {
		d.differ(t, "the configuration", ours, theirs)
	}
}

// None is no node.
const None = raft.None

// sameError compares the kinds of the errors that an input returned.
func (d *duel) sameError(t *twin, ours, theirs error) {
	if kindOf(ours) == kindOf(theirs) || d.excuseError(t, ours, theirs) {
		return
	}
	d.differ(t, "error", fmt.Sprint(ours, t.ours.view()), fmt.Sprint(theirs, t.theirs.view()))
}

func kindOf(err error) string {
	for _, kind := range []struct {
		name         string
		ours, theirs error
	}{
		{"dropped", raft.ErrProposalDropped, theirraft.ErrProposalDropped},
		{"not found", raft.ErrStepPeerNotFound, theirraft.ErrStepPeerNotFound},
		{"local", raft.ErrStepLocalMsg, theirraft.ErrStepLocalMsg},
	} {
		if errors.Is(err, kind.ours) || errors.Is(err, kind.theirs) {
			return kind.name
		}
	}
	return fmt.Sprint(err)
}

// sameTurn compares two Readys and returns the messages that both have.
func (d *duel) sameTurn(t *twin, ours, theirs turn) []envelope {
	if fmt.Sprint(ours.soft) != fmt.Sprint(theirs.soft) {
		d.differ(t, "Ready.SoftState", ours.soft, theirs.soft)
	}
	d.sameConfig(t)
	if ours.hard != theirs.hard {
		d.differ(t, "Ready.HardState", ours.hard, theirs.hard)
	}
	if ours.mustSync != theirs.mustSync {
		d.differ(t, "Ready.MustSync", fmt.Sprintf("%+v", ours), fmt.Sprintf("%+v", theirs))
	}
	if a, b := written(&ours.snapshot), written(&theirs.snapshot); a != b {
		d.differ(t, "Ready.Snapshot", raft.DescribeSnapshot(ours.snapshot), raft.DescribeSnapshot(theirs.snapshot))
	}
	d.sameEntries(t, "Ready.Entries", ours.entries, theirs.entries)
	d.sameEntries(t, "Ready.CommittedEntries", ours.committed, theirs.committed)
	for _, context := range ours.dropped {
		d.dropped[string(context)] = true
		d.excuse(readTold)
	}
	d.sameReads(t, ours.reads, theirs.reads)
	return d.sameMessages(t, flat(ours.packets), flat(theirs.packets))
}

func (d *duel) sameEntries(t *twin, what string, ours, theirs []raftpb.Entry) {
	same := slices.EqualFunc(ours, theirs, func(a, b raftpb.Entry) bool { return written(&a) == written(&b) })
	if !same {
		d.differ(t, what, raft.DescribeEntries(ours, nil), raft.DescribeEntries(theirs, nil))
	}
}

// written is a value as our codec writes it, for comparison.
func written(v interface{ Marshal() ([]byte, error) }) string { return string(must(v.Marshal())) }

// flat returns what a Ready sends, with the workers' answers after the messages that may leave at once. The
// messages to the workers are in the Ready's other fields.
func flat(packets []packet) (all []packet) {
	var answers []packet
	for _, p := range packets {
		if raft.IsLocalMsgTarget(p.To) {
			answers = append(answers, p.responses...)
		} else {
			all = append(all, p)
		}
	}
	return append(all, answers...)
}

// readAnswered returns the context of the read that a message answers.
func readAnswered(p packet) string {
	if p.Reject {
		return string(p.Context)
	}
	return string(p.Entries[0].Data)
}

// sameReads compares the answers to reads of this node.
func (d *duel) sameReads(t *twin, ours, theirs []raft.ReadState) {
	for _, r := range ours {
		d.counts["a read answered"]++
		context := string(r.RequestCtx)
		d.answered[context] = true
		t.answers[context] = append(t.answers[context], r.Index)
		same := slices.ContainsFunc(theirs, func(b raft.ReadState) bool { return string(b.RequestCtx) == context && b.Index == r.Index })
		if !same && !d.excuseOurRead(t, context) {
			d.differ(t, fmt.Sprintf("a read %q", context), ours, theirs)
		}
	}
	for _, r := range theirs {
		context := string(r.RequestCtx)
		if !slices.Contains(t.answers[context], r.Index) && !d.excuseTheirRead(t, context) {
			d.differ(t, fmt.Sprintf("a read %q, answered here at %d", context, t.answers[context]), ours, theirs)
		}
	}
}

// sameMessages compares messages as one list for each receiver, and returns those that both sides have. A
// message of only one side is lost, if that is listed.
func (d *duel) sameMessages(t *twin, ours, theirs []packet) (both []envelope) {
	d.excuseOrder(ours, theirs)
	for _, p := range ours {
		switch {
		case p.Type == raftpb.MsgReadIndexResp && p.Reject:
			d.dropped[readAnswered(p)] = true
		case p.Type == raftpb.MsgReadIndexResp:
			d.answered[readAnswered(p)] = true
		}
	}
	for to := uint64(1); to <= everyone; to++ {
		mine, others := messagesTo(to, ours), messagesTo(to, theirs)
		for _, e := range align(mine, others) {
			switch {
			case e.ours != nil && e.theirs != nil:
				d.excuseFields(e.ours, e.theirs)
				both = append(both, envelope{*e.ours, *e.theirs})
			case e.ours != nil && !d.excuseOurs(t, *e.ours, others):
				d.differ(t, "only ours sends "+raft.DescribeMessage(e.ours.Message, nil), describe(mine)+t.ours.view().String(), describe(others)+t.theirs.view().String())
			case e.theirs != nil && !d.excuseTheirs(t, *e.theirs, mine):
				d.differ(t, "only theirs sends "+raft.DescribeMessage(e.theirs.Message, nil), describe(mine)+t.ours.view().String(), describe(others)+t.theirs.view().String())
			}
		}
	}
	return both
}

// aligned is a message of both sides, or of one side, and then the other is nil.
type aligned struct{ ours, theirs *packet }

// align finds the longest common subsequence of two lists of messages; of messages of equal essence it takes
// the last. A message that may have no twin has no weight beside one that must have a twin.
func align(ours, theirs []packet) []aligned {
	a, b := essences(ours), essences(theirs)
	longest := make([][]int, len(a)+1) // longest[i][j]: of the first i and the first j
	for i := range longest {
		longest[i] = make([]int, len(b)+1)
		for j := range b {
			switch {
			case i == 0:
			case a[i-1] == b[j] && mayBeAlone(theirs[j]):
				longest[i][j+1] = longest[i-1][j] + 1
			case a[i-1] == b[j]:
				longest[i][j+1] = longest[i-1][j] + 1 + len(a) + len(b)
			default:
				longest[i][j+1] = max(longest[i-1][j+1], longest[i][j])
			}
		}
	}
	var all []aligned
	for i, j := len(a), len(b); i > 0 || j > 0; {
		switch {
		case i > 0 && j > 0 && a[i-1] == b[j-1]:
			i, j = i-1, j-1
			all = append(all, aligned{&ours[i], &theirs[j]})
		case j > 0 && (i == 0 || longest[i][j-1] >= longest[i-1][j]):
			j--
			all = append(all, aligned{nil, &theirs[j]})
		default:
			i--
			all = append(all, aligned{&ours[i], nil})
		}
	}
	slices.Reverse(all)
	return all
}

// essences returns messages without the fields that may differ.
func essences(packets []packet) (all []string) {
	for _, p := range packets {
		m := p.Message
		clearDifferent(&m)
		all = append(all, written(&m))
	}
	return all
}

func messagesTo(id uint64, packets []packet) (some []packet) {
	for _, p := range packets {
		if p.To == id {
			some = append(some, p)
		}
	}
	slices.SortStableFunc(some, func(a, b packet) int { return cmp.Compare(apart(a), apart(b)) })
	return some
}

// apart moves requests for votes behind the rest; see excuseOrder.
func apart(p packet) int {
	if p.Type == raftpb.MsgVote {
		return 1
	}
	return 0
}

func describe(packets []packet) (lines string) {
	for _, p := range packets {
		lines += raft.DescribeMessage(p.Message, nil) + "\n"
	}
	return lines
}
