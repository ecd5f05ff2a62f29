package inspect

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/millrace/millrace/wal"
)

// DumpOptions select the records to show, and their form.
type DumpOptions struct {
	wal.InspectOptions
	Group    uint64 // only of this group, if ByGroup is set
	ByGroup  bool
	From, To uint64 // only records of a group with an index in [From, To]; 0 is no bound
	Limit    int64  // lines at most; 0 is no limit
	Data     string // hex, text or none: how to show an entry's data
	JSON     bool   // one object a line
	// Describe says in a few words what an entry with this type and data is; nil: the type is a number only.
	Describe func(entryType uint8, data []byte) string
}

// Validate reports what is wrong with the options, in one sentence.
func (o DumpOptions) Validate() error {
	switch {
	case o.Data != "hex" && o.Data != "text" && o.Data != "none":
		return fmt.Errorf("--data: %q is not known; use hex, text or none", o.Data)
	case o.Limit < 0:
		return fmt.Errorf("--limit: %d is negative; use 0 for no limit, or more", o.Limit)
	case o.To != 0 && o.From > o.To:
		return fmt.Errorf("--from %d is above --to %d: want --from at most --to", o.From, o.To)
	}
	return nil
}

// Line is one record of a dump.
type Line struct {
	File    string  `json:"file"`
	Offset  int64   `json:"offset"`
	Bytes   int64   `json:"bytes"`
	Kind    string  `json:"kind"` // "" at a place without a record
	Group   uint64  `json:"group"`
	Index   uint64  `json:"index"`
	Term    uint64  `json:"term"`
	Type    uint8   `json:"type"`
	What    string  `json:"what,omitempty"` // of an entry, in words
	Durable uint64  `json:"durable"`
	Begins  bool    `json:"begins,omitempty"` // the first record of a write
	Ends    bool    `json:"ends,omitempty"`   // the last record of a write
	Vote    *uint64 `json:"vote,omitempty"`
	Commit  *uint64 `json:"commit,omitempty"`
	Length  int     `json:"length"` // of the data
	Data    *string `json:"data,omitempty"`
	Flaw    string  `json:"flaw,omitempty"`
	Rule    string  `json:"rule,omitempty"`
}

// Dump writes records in order, one a line. Its memory is the largest record. Where the records of a
// segment do not end as they should, a line says so, and the dump continues with the next segment. Verify
// says what that means.
func Dump(ctx context.Context, opts DumpOptions, w io.Writer) error {
	if err := opts.Validate(); err != nil {
		return err
	}
	n := int64(0)
	out := bufio.NewWriterSize(w, windowBytes)
	err := ReadRecords(ctx, opts.InspectOptions, func(r Record) error {
		if !opts.wants(r) {
			return nil
		}
		if opts.Limit > 0 && n == opts.Limit {
			return ErrStop
		}
		n++
		return opts.write(out, r)
	})
	return errors.Join(err, out.Flush())
}

// windowBytes is how much output is written at a time.
const windowBytes = 64 << 10

// ofGroup reports whether a record of this kind belongs to a group, and whether it has an index.
func ofGroup(kind string) (group, index bool) {
	switch kind {
	case "link", "mark", "front":
		return false, false
	case "hard state", "void", "deletion":
		return true, false
	}
	return true, true
}

func (o DumpOptions) wants(r Record) bool {
	if r.Flaw != "" {
		return true // whatever was asked for may have been there
	}
	group, index := ofGroup(r.Kind)
	if o.ByGroup && (!group || r.Group != o.Group) {
		return false
	}
	if o.From == 0 && o.To == 0 {
		return true
	}
	return index && r.Index >= o.From && (o.To == 0 || r.Index <= o.To)
}

func (o DumpOptions) write(w io.Writer, r Record) error {
	if !o.JSON {
		_, err := io.WriteString(w, o.text(r))
		return err
	}
	l := Line{File: r.File, Offset: r.Offset, Bytes: r.Bytes, Kind: r.Kind, Group: r.Group, Index: r.Index, Term: r.Term, Type: r.Type,
		Durable: r.Durable, Begins: r.Begins, Ends: r.Ends, Length: len(r.Data), Flaw: r.Flaw, Rule: r.Rule}
	l.What = o.what(r)
	if r.Kind == "hard state" {
		l.Vote, l.Commit = &r.Vote, &r.Commit
	}
	if r.Data != nil && o.Data != "none" {
		data := string(r.Data)
		if o.Data == "hex" {
			data = hex.EncodeToString(r.Data)
		}
		l.Data = &data
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(l)
}

// edge shows where writes begin and end, in one character: a write of several records is a bracket over them.
func edge(r Record) string {
	switch {
	case r.Begins && r.Ends:
		return "="
	case r.Begins:
		return "/"
	case r.Ends:
		return `\`
	}
	return " "
}

// what says what an entry is.
func (o DumpOptions) what(r Record) string {
	if o.Describe == nil || r.Kind != "entry" && r.Kind != "moved entry" {
		return ""
	}
	return o.Describe(r.Type, r.Data)
}

// text is a record in words: where, what, whose.
func (o DumpOptions) text(r Record) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %10d %s ", r.File, r.Offset, edge(r))
	switch r.Kind {
	case "":
		fmt.Fprintf(&b, "NO RECORD (%s): %s", r.Rule, r.Flaw)
	case "hard state":
		fmt.Fprintf(&b, "%-11s  group %d  term %d  vote %d  commit %d", r.Kind, r.Group, r.Term, r.Vote, r.Commit)
	case "entry", "moved entry":
		fmt.Fprintf(&b, "%-11s  group %d  index %d  term %d  type %d", r.Kind, r.Group, r.Index, r.Term, r.Type)
		if what := o.what(r); what != "" {
			fmt.Fprintf(&b, " (%s)", what)
		}
		fmt.Fprintf(&b, "  %d B", len(r.Data))
	case "link":
		fmt.Fprintf(&b, "%-11s  after segment %d, which ends at %d", r.Kind, r.Index, r.Term)
	case "mark":
		fmt.Fprintf(&b, "%-11s  durable up to %d", r.Kind, r.Durable)
	case "front":
		fmt.Fprintf(&b, "%-11s  segments before %d are not needed", r.Kind, r.Index)
	case "void":
		fmt.Fprintf(&b, "%-11s  group %d  the write before it has no end and counts for nothing", r.Kind, r.Group)
	case "deletion":
		fmt.Fprintf(&b, "%-11s  group %d  is deleted, and its id is never reused", r.Kind, r.Group)
	case "truncation":
		fmt.Fprintf(&b, "%-11s  group %d  from index %d on", r.Kind, r.Group, r.Index)
	default: // base, reset
		fmt.Fprintf(&b, "%-11s  group %d  begins after index %d  term %d", r.Kind, r.Group, r.Index, r.Term)
	}
	switch {
	case len(r.Data) == 0 || o.Data == "none":
	case o.Data == "hex":
		fmt.Fprintf(&b, "  %x", r.Data)
	default:
		fmt.Fprintf(&b, "  %q", r.Data)
	}
	b.WriteByte('\n')
	return b.String()
}
