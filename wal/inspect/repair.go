package inspect

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/millrace/millrace/wal"
)

// Mending is the answer to Repair.
type Mending struct {
	Dir     string `json:"dir"`
	Planned bool   `json:"planned"` // nothing was written
	*wal.Repair

	accept bool
}

// Repair plans a repair, or does it if opts.Write is set; see wal.RepairLog. If it fails on the way, it
// returns what it knows and the error.
func Repair(ctx context.Context, opts wal.RepairOptions) (*Mending, error) {
	r, err := wal.RepairLog(ctx, opts)
	if r == nil {
		return nil, err
	}
	return &Mending{Dir: opts.Dir, Planned: !opts.Write, Repair: r, accept: opts.AcceptLoss}, err
}

// Exit implements Answer.
func (m *Mending) Exit() int {
	switch {
	case m.Refused != "":
		return ExitCannot
	case m.Needed && !m.Done:
		return ExitDamaged
	case m.Fence.Amnesia:
		return ExitAmnesia
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
		if m.Fence.Amnesia {
			m.writeLosses(&t)
			t.line("The log has amnesia.")
			wayOn(&t, m.Dir)
		}
		return t.to(w)
	case m.Done:
		t.line("log %s is repaired", m.Dir)
	case m.Planned:
		t.line("log %s: what a repair would do; nothing was changed", m.Dir)
	default:
		t.line("log %s: the repair was not finished; it can be repeated", m.Dir)
	}
	for _, f := range m.Findings {
		if f.Kind != wal.TornEnd && f.Kind != wal.Warned {
			t.line("  damage  %s at offset %d: %s", f.File, f.Offset, f.Reason)
		}
	}
	for _, s := range m.Steps {
		switch s.Action {
		case "rename":
			t.line("  rename  %s to %s", s.File, s.To)
		case "remove":
			why := ""
			if strings.HasSuffix(s.File, ".wal") {
				why = ", which holds nothing"
			}
			t.line("  remove  %s%s", s.File, why)
		default:
			t.line("  %-6s  %s, %d bytes", s.Action, s.File, s.Bytes)
		}
	}
	m.writeLosses(&t)
	switch {
	case m.Fence.Amnesia && m.Planned:
		t.line("The log would have amnesia: it would open, and remember that it may lack something.")
		wayOn(&t, m.Dir)
	case m.Fence.Amnesia:
		t.line("The log has amnesia: it opens, and remembers that it may lack something.")
		wayOn(&t, m.Dir)
	case m.Planned:
		t.line("The loss would be accepted: the host would vote at once, as if nothing were missing.")
	default:
		t.line("The loss is accepted: the host votes at once, as if nothing were missing.")
	}
	if m.Planned {
		accept := ""
		if m.accept {
			accept = " --accept-loss"
		}
		t.line("To do what is planned here: millrace wal repair --write%s %s", accept, m.Dir)
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
	switch {
	case m.LossUnknown:
		t.line("  lost    what else is not known: the machine lost power in an unsafe mode, or the record of an earlier repair is gone")
	case len(m.Losses) == 0:
		t.line("  lost    nothing that is known of")
	}
}
