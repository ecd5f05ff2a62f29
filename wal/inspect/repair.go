package inspect

import (
	"context"
	"fmt"
	"io"

	"github.com/millrace/millrace/wal"
)

// Mending is the answer to Repair.
type Mending struct {
	Dir     string `json:"dir"`
	Planned bool   `json:"planned"` // nothing was written
	*wal.Repair
}

// Repair plans a repair, or does it if opts.Write is set; see wal.RepairLog. If it fails on the way it returns both what
// it knows and the error.
func Repair(ctx context.Context, opts wal.RepairOptions) (*Mending, error) {
	r, err := wal.RepairLog(ctx, opts)
	if r == nil {
		return nil, err
	}
	return &Mending{Dir: opts.Dir, Planned: !opts.Write, Repair: r}, err
}

// Exit implements Answer.
func (m *Mending) Exit() int {
	switch {
	case m.Refused != "":
		return ExitCannot
	case m.Needed && !m.Done:
		return ExitDamaged
	}
	return ExitWhole
}

// WriteText implements Answer.
func (m *Mending) WriteText(w io.Writer) error {
	var t text
	switch {
	case m.Refused != "":
		t.line("log %s cannot be repaired: %s", m.Dir, m.Refused)
		return t.to(w)
	case !m.Needed:
		t.line("log %s needs no repair: nothing was changed", m.Dir)
		return t.to(w)
	case m.Done:
		t.line("log %s is repaired", m.Dir)
	case m.Planned:
		t.line("log %s: what a repair would do; nothing was changed", m.Dir)
	default:
		t.line("log %s: the repair was not finished; it can be repeated", m.Dir)
	}
	for _, f := range m.Findings {
		if f.Kind != wal.TornEnd {
			t.line("  damage  %s at offset %d: %s", f.File, f.Offset, f.Reason)
		}
	}
	for _, s := range m.Steps {
		switch s.Action {
		case "rename":
			t.line("  rename  %s to %s", s.File, s.To)
		case "remove":
			t.line("  remove  %s, which holds nothing", s.File)
		default:
			t.line("  %-6s  %s, %d bytes", s.Action, s.File, s.Bytes)
		}
	}
	m.writeLosses(&t)
	switch {
	case m.Fence.Amnesia:
		t.line("The log has amnesia: this host must not vote before it has caught up from its peers.")
	default:
		t.line("The loss is accepted: the log does not remember that it may lack something.")
	}
	if m.Planned {
		t.line("To do this: millrace wal repair --write %s", m.Dir)
	}
	return t.to(w)
}

func (m *Mending) writeLosses(t *text) {
	for _, l := range m.Losses {
		what := "no entry that is known of"
		if len(l.Lost) > 0 {
			what = "entries " + spans(l.Lost)[len(fmt.Sprintf("group %d: ", l.Group)):]
		}
		if l.StateLost {
			what += ", and its last term or vote"
		}
		t.line("  lost    of group %d: %s; it ends at %d, in term %d", l.Group, what, l.Through, l.StateIs.Term)
	}
	if len(m.Losses) == 0 {
		t.line("  lost    nothing that is known of")
	}
}
