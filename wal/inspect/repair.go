package inspect

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/millrace/millrace/wal"
)

// RepairAnswer is the answer to Repair.
type RepairAnswer struct {
	Dir     string `json:"dir"`
	Planned bool   `json:"planned"` // nothing was written
	*wal.Repair

	accept bool
}

// Repair plans a repair, or does it if opts.Write is set; see wal.RepairLog. If it fails on the way, it
// returns what it knows and the error.
func Repair(ctx context.Context, opts wal.RepairOptions) (*RepairAnswer, error) {
	r, err := wal.RepairLog(ctx, opts)
	if r == nil {
		return nil, err
	}
	return &RepairAnswer{Dir: opts.Dir, Planned: !opts.Write, Repair: r, accept: opts.AcceptLoss}, err
}

// Exit implements Answer.
func (a *RepairAnswer) Exit() int {
	switch {
	case a.Refused != "":
		return ExitCannot
	case a.Needed && !a.Done:
		return ExitDamaged
	case a.Fence.Amnesia:
		return ExitAmnesia
	}
	return ExitWhole
}

// WriteText implements Answer.
func (a *RepairAnswer) WriteText(w io.Writer) error {
	var t text
	switch {
	case a.Refused != "":
		t.line("log %s cannot be repaired: %s", a.Dir, a.Refused)
		return t.to(w)
	case !a.Needed:
		t.line("log %s needs no repair: nothing was changed", a.Dir)
		if a.Fence.Amnesia {
			a.writeLosses(&t)
			t.line("The log has amnesia.")
			wayOn(&t, a.Dir)
		}
		return t.to(w)
	case a.Done:
		t.line("log %s is repaired", a.Dir)
	case a.Planned:
		t.line("log %s: what a repair would do; nothing was changed", a.Dir)
	default:
		t.line("log %s: the repair was not finished; it can be repeated", a.Dir)
	}
	for _, f := range a.Findings {
		if f.Kind != wal.TornEnd && f.Kind != wal.Warned {
			t.line("  damage  %s at offset %d: %s", f.File, f.Offset, f.Reason)
		}
	}
	for _, s := range a.Steps {
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
	a.writeLosses(&t)
	switch {
	case a.Fence.Amnesia && a.Planned:
		t.line("The log would have amnesia: it would open, and remember that it may lack something.")
		wayOn(&t, a.Dir)
	case a.Fence.Amnesia:
		t.line("The log has amnesia: it opens, and remembers that it may lack something.")
		wayOn(&t, a.Dir)
	case a.Planned:
		t.line("The loss would be accepted: the host would vote at once, as if nothing were missing.")
	default:
		t.line("The loss is accepted: the host votes at once, as if nothing were missing.")
	}
	if a.Planned {
		accept := ""
		if a.accept {
			accept = " --accept-loss"
		}
		t.line("To do what is planned here: millrace wal repair --write%s %s", accept, a.Dir)
	}
	return t.to(w)
}

func (a *RepairAnswer) writeLosses(t *text) {
	for _, l := range a.Losses {
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
	case a.LossUnknown:
		t.line("  lost    what else is not known: the machine lost power in an unsafe mode, or the record of an earlier repair is gone")
	case len(a.Losses) == 0:
		t.line("  lost    nothing that is known of")
	}
}
