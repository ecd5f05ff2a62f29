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
	Unknown  []wal.FileInfo `json:"unknown_files,omitempty"`

	use string
}

// Checked is how much was checked by which rules of the format.
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
		Findings: []Judged{}, Fence: in.Fence, Unknown: in.Others, use: use(in),
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

// state is the worst of the findings in a word.
func state(findings []wal.Finding) string {
	worst := "whole"
	for _, f := range findings {
		switch {
		case f.Kind == wal.Damaged:
			return "corrupt"
		case f.Kind == wal.Unreadable:
			worst = "unreadable"
		case worst == "whole":
			worst = "torn"
		}
	}
	return worst
}

// meaning is what a finding says about the log, in a sentence or two.
func meaning(f wal.Finding, in *wal.Inspection) string {
	switch f.Kind {
	case wal.TornEnd:
		if f.Rule == "R11" && !in.InUse() {
			return "A crash cut the write off; nobody was told that it is durable. The next start writes down that it counts for nothing. No loss."
		}
		if in.InUse() {
			return "It is being written, or was cut off; nobody was told that it is durable. No loss."
		}
		return "A crash cut a write off; nobody was told that it is durable. The next start cuts it. No loss."
	case wal.Unreadable:
		return "It cannot be said whether the log is whole."
	}
	var b strings.Builder
	switch f.Rule {
	case "R9":
		b.WriteString("All records are right, but some are missing: somebody removed a file, or we have a bug.")
	case "R7":
		b.WriteString("Segments are missing before the first, and no record allows it: somebody removed them.")
	case "fence":
		b.WriteString("It is not known how often this log was opened, and whether it may vote.")
	case "R11":
		b.WriteString("The end of a write is missing, and something was written behind it: the disk, or somebody, changed the log, or we have a bug.")
	default:
		b.WriteString("Something that was durable is not there any more: the disk, or somebody, changed it. The host will not start.")
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
	return ExitWhole
}

// WriteText implements Answer.
func (v *Verdict) WriteText(w io.Writer) error {
	var t text
	c := v.Checked
	t.line("log %s of host %d, %s", v.Dir, v.Owner, v.use)
	t.line("checked %s in %s, %s (R1-R6, R11), %s (R7, R8), %s (R9), the ends (R10)",
		size(c.Bytes), plural(c.Segments, "segment"), plural(c.Records, "record"), plural(c.Links, "link"), plural(c.Groups, "group"))
	for _, f := range v.Findings {
		t.line("")
		f.write(&t)
	}
	if len(v.Unknown) > 0 {
		t.line("")
	}
	for _, f := range v.Unknown {
		t.line("%s", stranger(f))
	}
	if v.Fence.Amnesia {
		t.line("")
		t.line("note: the log has amnesia: it may lack what it said it has, and must not vote before it has caught up from its peers")
	}
	t.line("")
	t.line("%s", v.conclusion())
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

func (v *Verdict) conclusion() string {
	switch v.State {
	case "corrupt":
		return "corrupt: do not let this host vote with less than it had. Restore it from its peers, or see what \"millrace wal repair\" would keep."
	case "unreadable":
		return "unreadable: see above."
	case "torn":
		return "whole, but for a torn end, which is no loss."
	}
	return "whole: every rule of the format holds."
}
