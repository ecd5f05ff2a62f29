package inspect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/millrace/millrace/wal"
)

// Verdict is the answer to Verify.
type Verdict struct {
	Dir      string         `json:"dir"`
	State    string         `json:"state"` // whole, torn, corrupt, unreadable
	InUse    bool           `json:"in_use"`
	Holder   int            `json:"holder_pid,omitempty"`
	Owner    uint64         `json:"owner"`
	Passes   int            `json:"passes"` // how often the log was read
	Checked  Checked        `json:"checked"`
	Findings []Judged       `json:"findings"`
	Fence    wal.FenceInfo  `json:"fence"`
	Missing  []wal.Hole     `json:"missing,omitempty"` // what a log with amnesia is known to lack
	Unknown  []wal.FileInfo `json:"unknown_files,omitempty"`

	use string
}

// Checked counts what was checked, with the rules of package record.
type Checked struct {
	Bytes    int64            `json:"bytes"`
	Segments int              `json:"segments"` // headers and ends: R10
	Records  int64            `json:"records"`  // R1 to R6, R11
	Kinds    map[string]int64 `json:"records_by_kind"`
	Links    int64            `json:"links"`  // R7, R8
	Groups   int              `json:"groups"` // R9
}

// Judged is a finding with what it means.
type Judged struct {
	wal.Finding
	Meaning string `json:"meaning"`
}

// Verify checks every rule of the format on all of a log. See wal.Inspect about logs that are in use.
func Verify(ctx context.Context, opts wal.InspectOptions) (_ *Verdict, err error) {
	in, err := wal.Inspect(ctx, opts)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	v := &Verdict{
		Dir: in.Dir, State: state(in.Findings), InUse: in.InUse(), Holder: in.Holder.PID, Owner: in.Owner, Passes: in.Passes,
		Findings: []Judged{}, Fence: in.Fence, Missing: in.Missing, Unknown: in.Others, use: use(in),
		Checked: Checked{Segments: len(in.Segments), Groups: len(in.Groups), Kinds: map[string]int64{}},
	}
	for _, s := range in.Segments {
		v.Checked.Bytes += s.Bytes
		for kind, n := range s.Records.Count {
			v.Checked.Kinds[kind] += n
			v.Checked.Records += n
		}
	}
	v.Checked.Links = v.Checked.Kinds["link"]
	for _, f := range in.Findings {
		v.Findings = append(v.Findings, Judged{Finding: f, Meaning: meaning(f, in)})
	}
	return v, nil
}

// state returns the worst of the findings in one word.
func state(findings []wal.Finding) string {
	worst := "whole"
	for _, f := range findings {
		switch {
		case f.Kind == wal.Damaged:
			return "corrupt"
		case f.Kind == wal.Unreadable:
			worst = "unreadable"
		case f.Kind == wal.TornEnd && worst == "whole":
			worst = "torn"
		}
	}
	return worst
}

// meaning returns what a finding says about the log, in a sentence or two.
func meaning(f wal.Finding, in *wal.Inspection) string {
	switch f.Kind {
	case wal.TornEnd:
		switch {
		case in.InUse():
			return "It is being written, or a crash cut it off."
		case f.Rule == "R11":
			return "A crash cut the write off before it was durable, which is no loss. The next start notes that it counts for nothing."
		}
		return "Probably a torn write: a crash cut it off before it was durable, which is no loss. A flipped bit in the last batch looks the same, " +
			"and then that batch is lost. The next start cuts it."
	case wal.Warned:
		if f.Rule == "disk" {
			return "Nothing is lost, but the disk may be failing."
		}
		return "Nothing is lost. The next start repairs it."
	case wal.Unreadable:
		return "It cannot be said whether the log is whole."
	}
	var b strings.Builder
	switch f.Rule {
	case "R9":
		b.WriteString("All records are valid, but some are missing: a file was removed, or the log has a bug.")
	case "R7":
		b.WriteString("Segments are missing before the first, and no record allows it: they were removed.")
	case "fence":
		b.WriteString("It is not known how often this log was opened, or whether it may vote.")
	case "disk":
		b.WriteString("The disk cannot read something that was durable. The host will not start.")
	case "R11":
		b.WriteString("The end of a write is missing, and something was written behind it: the disk or a program changed the log, or the log has a bug.")
	default:
		b.WriteString("Something durable is missing: the disk or a program changed it. The host will not start.")
	}
	if f.Durable > f.Offset {
		fmt.Fprintf(&b, " It is below the durable watermark, %d.", f.Durable)
	}
	return b.String()
}

// Exit implements Answer.
func (v *Verdict) Exit() int {
	switch v.State {
	case "corrupt":
		return ExitDamaged
	case "unreadable":
		return ExitCannot
	}
	if v.Fence.Amnesia {
		return ExitAmnesia
	}
	return ExitWhole
}

// WriteText implements Answer.
func (v *Verdict) WriteText(w io.Writer) error {
	var t text
	c := v.Checked
	t.line("log %s of host %d, %s", v.Dir, v.Owner, v.use)
	t.line("checked %s in %s, %s (R1-R6, R11), %s (R7, R8), %s (R9), the ends (R10), FENCE (R12)",
		size(c.Bytes), plural(c.Segments, "segment"), plural(c.Records, "record"), plural(c.Links, "link"), plural(c.Groups, "group"))
	for _, f := range v.Findings {
		t.line("")
		f.write(&t)
	}
	if len(v.Unknown) > 0 {
		t.line("")
	}
	for _, f := range v.Unknown {
		t.line("%s", unknownFile(f))
	}
	if v.Fence.Amnesia {
		t.line("")
		t.line("note: the log has amnesia: it may lack what it said it has")
		for _, h := range v.Missing {
			t.line("  %-8s %s", "missing", missing(h))
		}
	}
	t.line("")
	t.line("%s", v.conclusion())
	if v.Exit() == ExitAmnesia {
		wayOn(&t, v.Dir)
	}
	return t.to(w)
}

func (f Judged) write(t *text) {
	rule := f.Rule
	if rule != "" {
		rule = " " + rule
	}
	t.line("%s%s: %s at offset %d", strings.ToUpper(string(f.Kind)), rule, f.File, f.Offset)
	t.line("  what     %s", f.Reason)
	t.line("  means    %s", f.Meaning)
	unusable, gone := "unusable", "gone"
	switch f.Kind {
	case wal.TornEnd:
		unusable = "to cut"
		if f.Rule == "R11" {
			unusable = "to void"
		}
	case wal.Unreadable:
		gone = "not read"
	}
	if f.Bytes > 0 {
		t.line("  %-8s %d bytes", unusable, f.Bytes)
	}
	if len(f.Lost) > 0 {
		t.line("  %-8s entries of %s", gone, spans(f.Lost))
	}
	if len(f.LostStates) > 0 {
		t.line("  %-8s the last term and vote of group %s", gone, strings.Trim(strings.ReplaceAll(fmt.Sprint(f.LostStates), " ", ", "), "[]"))
	}
}

// missing writes what a group is known to lack.
func missing(h wal.Hole) string {
	what := fmt.Sprintf("of group %d", h.Group)
	if h.First <= h.Through {
		what += ": entries " + span(h.First, h.Through)
	}
	if h.State {
		what += fmt.Sprintf(", a term or vote (it was in term %d)", h.Term)
	}
	return what
}

func (v *Verdict) conclusion() string {
	switch v.State {
	case "corrupt":
		return fmt.Sprintf("corrupt: the host does not start. What a repair would keep and what it would cost: millrace wal repair %s", v.Dir)
	case "unreadable":
		return "unreadable: see above."
	}
	whole := "whole"
	if v.State == "torn" {
		whole = "whole, except for a torn end"
	}
	switch {
	case v.Fence.Amnesia:
		return whole + ", but must not vote before it has caught up."
	case v.State == "torn":
		return whole + ", which is probably no loss."
	}
	switch {
	case v.InUse:
		return "whole: every rule of the format holds."
	case v.Fence.Closed:
		return "whole: every rule of the format holds, and the log ends where it was closed."
	}
	return "whole: every rule of the format holds. The log was not closed, so records that are missing behind its end would leave no trace."
}
