package inspect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/wal"
)

// Three rules of Raft decide what a difference between two hosts' logs of a group means:
//
//   - Log matching: entries with the same index and term are the same, and so are all entries before them.
//     So the logs agree from the beginning up to some entry, and differ from there on.
//   - Committed entries are the same everywhere. So the logs cannot part at or below the smaller of the two
//     commit indexes. If they do, that is a violation of safety, by our code or by a disk, and neither log
//     may be written to before it is understood.
//   - Entries that are not committed may differ: a former leader left them behind, and the next one
//     overwrites them.
//
// A commit index on disk is at most the one that was known in memory, and may be older. So a violation that
// is found is real, and one may be overlooked.

// chunkBytes is how much of each log is compared at a time.
const chunkBytes = 4 << 20

// Comparison is the answer to Diff.
type Comparison struct {
	A      Side        `json:"a"`
	B      Side        `json:"b"`
	Groups []GroupDiff `json:"groups"`
	Worst  string      `json:"worst"` // of the groups' verdicts
}

// Side is one of the logs.
type Side struct {
	Dir     string `json:"dir"`
	Owner   uint64 `json:"owner"`
	State   string `json:"state"` // as Verdict.State
	Amnesia bool   `json:"amnesia"`
	InUse   bool   `json:"in_use"`
}

// refusal returns in one word why the host of the log does not start, or "" if it starts.
func (s Side) refusal() string {
	switch {
	case s.State == "corrupt" || s.State == "unreadable":
		return s.State
	case s.Amnesia:
		return "amnesia"
	}
	return ""
}

// The verdicts of a comparison, the best first.
const (
	VerdictSame      = "same"      // the same entries
	VerdictPrefix    = "prefix"    // one is the beginning of the other, or continues where it has been compacted
	VerdictApart     = "apart"     // they have no index in common, so nothing was compared
	VerdictMissing   = "missing"   // only one of them has the group
	VerdictTail      = "tail"      // they part above the smaller commit index
	VerdictDamaged   = "damaged"   // one cannot be read where they would have to be compared
	VerdictViolation = "violation" // they part where they must not
)

var verdicts = []string{VerdictSame, VerdictPrefix, VerdictApart, VerdictMissing, VerdictTail, VerdictDamaged, VerdictViolation}

// GroupDiff is how the logs of one group differ.
type GroupDiff struct {
	Group   uint64         `json:"group"`
	A       *wal.GroupInfo `json:"a,omitempty"`
	B       *wal.GroupInfo `json:"b,omitempty"`
	Common  *IndexRange    `json:"common,omitempty"`    // compared, and the same
	Parted  uint64         `json:"parted_at,omitempty"` // the first index where they differ; 0 if they do not
	TermA   uint64         `json:"term_a,omitempty"`    // there
	TermB   uint64         `json:"term_b,omitempty"`
	OnlyA   *IndexRange    `json:"only_a,omitempty"` // what the other does not have: above its end, or from where they part
	OnlyB   *IndexRange    `json:"only_b,omitempty"`
	Verdict string         `json:"verdict"`
	Meaning string         `json:"meaning"`
}

// IndexRange is a range of indexes, both ends included.
type IndexRange struct {
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
}

func rangeOf(first, last uint64) *IndexRange {
	if first > last {
		return nil
	}
	return &IndexRange{first, last}
}

// Diff compares the logs of two hosts, group by group. Diff calls a.Progress during both scans.
func Diff(ctx context.Context, a, b wal.InspectOptions) (_ *Comparison, err error) {
	inA, err := wal.Inspect(ctx, a)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, inA.Close()) }()
	inB, err := wal.Inspect(ctx, b)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, inB.Close()) }()
	c := &Comparison{A: sideOf(inA), B: sideOf(inB), Groups: []GroupDiff{}, Worst: VerdictSame}
	for _, pair := range pairUp(inA.Groups, inB.Groups) {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		d, err := c.compare(ctx, inA, inB, pair)
		if err != nil {
			return nil, err
		}
		c.Groups = append(c.Groups, d)
		if rank(d.Verdict) > rank(c.Worst) {
			c.Worst = d.Verdict
		}
	}
	return c, nil
}

func rank(verdict string) int {
	for i, v := range verdicts {
		if v == verdict {
			return i
		}
	}
	return len(verdicts)
}

func sideOf(in *wal.Inspection) Side {
	return Side{Dir: in.Dir, Owner: in.Owner, State: state(in.Findings), Amnesia: in.Fence.Amnesia, InUse: in.InUse()}
}

// pairUp merges two lists of groups, each in order of ids.
func pairUp(a, b []wal.GroupInfo) (pairs []GroupDiff) {
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(b) == 0 || len(a) > 0 && a[0].ID < b[0].ID:
			pairs, a = append(pairs, GroupDiff{Group: a[0].ID, A: &a[0]}), a[1:]
		case len(a) == 0 || b[0].ID < a[0].ID:
			pairs, b = append(pairs, GroupDiff{Group: b[0].ID, B: &b[0]}), b[1:]
		default:
			pairs, a, b = append(pairs, GroupDiff{Group: a[0].ID, A: &a[0], B: &b[0]}), a[1:], b[1:]
		}
	}
	return pairs
}

// compare fills in d.
func (c *Comparison) compare(ctx context.Context, inA, inB *wal.Inspection, d GroupDiff) (GroupDiff, error) {
	if d.A == nil || d.B == nil {
		d.Verdict = VerdictMissing
		d.Meaning = "Only one of the hosts has this group: the other is new, was removed, or lost it."
		_, deletedA := slices.BinarySearch(inA.Deleted, d.Group)
		if _, deletedB := slices.BinarySearch(inB.Deleted, d.Group); deletedA || deletedB {
			d.Meaning = "One of the hosts has deleted this group, for good."
		}
		return d, nil
	}
	a, b := d.A, d.B
	// The last compacted entry's term is known as well: it counts as one that can be compared.
	lo, hi := max(a.Snapshot.Index, b.Snapshot.Index), min(a.Last, b.Last)
	if lo > hi {
		d.OnlyA, d.OnlyB = rangeOf(a.First, a.Last), rangeOf(b.First, b.Last)
		d.Verdict = VerdictApart
		d.Meaning = "One log ends before the other begins, so nothing was compared: the one that is behind needs a snapshot."
		return d, nil
	}
	parted, err := d.part(ctx, inA.Group(d.Group), inB.Group(d.Group), lo, hi)
	var corrupt *wal.CorruptError
	if errors.As(err, &corrupt) {
		d.Verdict = VerdictDamaged
		d.Meaning = fmt.Sprintf("The logs agree up to %d and cannot be compared further: in %s, %s.", max(corrupt.Index, 1)-1, corrupt.File, corrupt.Reason)
		return d, nil
	}
	if err != nil {
		return d, err
	}
	end := hi
	if d.Parted = parted; parted > 0 {
		end = parted - 1
	}
	d.Common = rangeOf(max(lo, 1), end)
	d.OnlyA, d.OnlyB = rangeOf(end+1, a.Last), rangeOf(end+1, b.Last)
	d.judge(c.A, c.B)
	return d, nil
}

// part returns the first index in [lo, hi] where the logs differ, or 0. At lo only the terms need to be
// known.
func (d *GroupDiff) part(ctx context.Context, a, b *wal.Group, lo, hi uint64) (uint64, error) {
	termA, err := a.Term(lo)
	if err != nil {
		return 0, err
	}
	termB, err := b.Term(lo)
	if err != nil {
		return 0, err
	}
	if termA != termB {
		d.TermA, d.TermB = termA, termB
		return lo, nil
	}
	for i := max(lo, d.A.First, d.B.First); i <= hi; {
		if err := context.Cause(ctx); err != nil {
			return 0, err
		}
		as, err := a.Entries(i, hi+1, chunkBytes)
		if err != nil {
			return 0, err
		}
		bs, err := b.Entries(i, hi+1, chunkBytes)
		if err != nil {
			return 0, err
		}
		for k := range min(len(as), len(bs)) {
			if !same(as[k], bs[k]) {
				d.TermA, d.TermB = as[k].Term, bs[k].Term
				return i + uint64(k), nil
			}
		}
		i += uint64(min(len(as), len(bs)))
	}
	return 0, nil
}

func same(a, b raftpb.Entry) bool {
	return a.Term == b.Term && a.Type == b.Type && bytes.Equal(a.Data, b.Data)
}

// judge sets the verdict that Raft's rules give. a and b are the logs.
func (d *GroupDiff) judge(a, b Side) {
	low, high := min(d.A.Commit, d.B.Commit), max(d.A.Commit, d.B.Commit)
	switch {
	case d.Parted == 0 && d.A.Last == d.B.Last:
		d.Verdict, d.Meaning = VerdictSame, "Both hold the same entries, as far back as both hold any."
	case d.Parted == 0:
		behind := a
		if d.B.Last < d.A.Last {
			behind = b
		}
		d.Verdict, d.Meaning = VerdictPrefix, "One log is the beginning of the other: its host is behind, and the leader will send it the rest."
		if behind.refusal() != "" {
			d.Meaning = fmt.Sprintf("One log is the beginning of the other. The end of log %s may be lost: see \"millrace wal verify\".", behind.Dir)
		}
	case d.TermA == d.TermB:
		d.Verdict = VerdictViolation
		d.Meaning = fmt.Sprintf("SAFETY VIOLATION: entry %d has term %d in both logs and is not the same. One term's leader makes one entry at an index: "+
			"a vote or a log was lost, or a disk changed it. Stop both hosts and keep their directories.", d.Parted, d.TermA)
	case d.Parted <= low:
		d.Verdict = VerdictViolation
		d.Meaning = fmt.Sprintf("SAFETY VIOLATION: the logs differ at %d, which both hosts knew to be committed (%d and %d). "+
			"Stop both and keep their directories.", d.Parted, d.A.Commit, d.B.Commit)
	case d.Parted <= high:
		behind := a
		if d.B.Commit < d.A.Commit {
			behind = b
		}
		d.Verdict = VerdictTail
		d.Meaning = fmt.Sprintf("The host that knows only %d to be committed has other entries from %d on, where the other host's are committed: "+
			"they were never committed", low, d.Parted)
		if behind.refusal() == "" {
			d.Meaning += ", and the leader will overwrite them"
		}
		d.Meaning += "."
	default:
		d.Verdict = VerdictTail
		d.Meaning = fmt.Sprintf("The logs differ from %d on, above what either host knew to be committed (%d and %d). That is allowed: "+
			"a leader that lost its office left one of the two behind, and the next leader overwrites it.", d.Parted, d.A.Commit, d.B.Commit)
	}
}

// Exit implements Answer.
func (c *Comparison) Exit() int {
	refusals := []string{c.A.refusal(), c.B.refusal()}
	switch {
	case c.Worst == VerdictViolation || slices.Contains(refusals, "corrupt"):
		return ExitDamaged
	case c.Worst == VerdictDamaged || slices.Contains(refusals, "unreadable"):
		return ExitCannot
	case slices.Contains(refusals, "amnesia"):
		return ExitAmnesia
	case rank(c.Worst) >= rank(VerdictApart):
		return ExitDiffers
	}
	return ExitWhole
}

// WriteText implements Answer.
func (c *Comparison) WriteText(w io.Writer) error {
	var t text
	for i, s := range []Side{c.A, c.B} {
		more := ""
		if s.Amnesia {
			more += ", with amnesia"
		}
		if s.InUse {
			more += ", in use"
		}
		t.line("%c  log %s of host %d, %s%s", 'A'+i, s.Dir, s.Owner, s.State, more)
	}
	if c.A.Owner == c.B.Owner {
		t.line("note: both are logs of host %d: one is a copy, or was made later", c.A.Owner)
	}
	for _, side := range []Side{c.A, c.B} {
		if side.State == "corrupt" {
			t.line("note: %s is corrupt, and only what can be read of it was compared; see \"millrace wal verify\"", side.Dir)
		}
		if side.Amnesia {
			t.line("note: %s has amnesia: it may lack what it said it has; see \"millrace wal verify\"", side.Dir)
		}
	}
	for _, d := range c.Groups {
		t.line("")
		d.write(&t)
	}
	t.line("")
	t.line("%s", c.conclusion())
	return t.to(w)
}

func (c *Comparison) conclusion() string {
	word, found := "differ", "the logs differ only where they may."
	switch c.Worst {
	case VerdictViolation:
		return "violation: the logs differ where they must not."
	case VerdictDamaged:
		return "damaged: not everything could be compared."
	case VerdictSame, VerdictPrefix:
		word, found = "agree", "as far as both logs go, they are the same."
	case VerdictApart:
		word, found = "apart", "one group could not be compared at all; the rest is the same."
	}
	a, b := c.A.refusal(), c.B.refusal()
	switch {
	case a != "" && b != "":
		return fmt.Sprintf("%s and %s: neither host starts. Otherwise, %s", a, b, found)
	case a != "":
		return fmt.Sprintf("%s: the host of %s does not start. Otherwise, %s", a, c.A.Dir, found)
	case b != "":
		return fmt.Sprintf("%s: the host of %s does not start. Otherwise, %s", b, c.B.Dir, found)
	}
	return word + ": " + found
}

func (d GroupDiff) write(t *text) {
	t.line("group %d: %s", d.Group, d.Verdict)
	for i, g := range []*wal.GroupInfo{d.A, d.B} {
		if g == nil {
			t.line("  %c       has no such group", 'A'+i)
			continue
		}
		t.line("  %c       entries %s, term %d, vote %d, commit %d", 'A'+i, held(g), g.Term, g.Vote, g.Commit)
	}
	if d.Common != nil {
		t.line("  common  %s", span(d.Common.First, d.Common.Last))
	}
	if d.Parted != 0 {
		t.line("  part at %d: term %d in A, term %d in B", d.Parted, d.TermA, d.TermB)
	}
	if d.OnlyA != nil {
		t.line("  only A  %s", span(d.OnlyA.First, d.OnlyA.Last))
	}
	if d.OnlyB != nil {
		t.line("  only B  %s", span(d.OnlyB.First, d.OnlyB.Last))
	}
	t.line("  %s", d.Meaning)
}

// held writes which entries a group has.
func held(g *wal.GroupInfo) string {
	if g.First > g.Last {
		return fmt.Sprintf("none after %d", g.Last)
	}
	return span(g.First, g.Last)
}
