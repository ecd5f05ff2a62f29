package host

import (
	"context"
	"strings"
	"testing"

	"github.com/millrace/millrace/host/diagnosis"
)

// A paused process is a warning: the group is healthy, and the page says both.
func TestExplainWarns(t *testing.T) {
	l := openTestHost(t, 1)
	defer l.Close(context.Background())
	l.lead()
	l.manual.tickLate(10 * l.config.electionTicks())
	d := l.group.Explain()
	if !d.Healthy || len(d.Causes) > 0 || len(d.Warnings) != 1 || !d.Has(diagnosis.CodePaused) {
		t.Fatalf("a process that was paused: %+v", d)
	}
	page := d.String()
	if !strings.Contains(page, "seen from host 1: healthy, with a warning\n") || !strings.Contains(page, "\nwarning: process paused\n   what is seen: in the last 20s") {
		t.Errorf("the page is\n%s", page)
	}
	l.silence(l.timeouts(l.config.bounds().Paused()))
	if d := l.group.Explain(); len(d.Warnings) > 0 {
		t.Errorf("the pause is long ago: %v", d)
	}
}

// A difference that the leader has found is a cause, and the page of a healthy group is two lines.
func TestExplainDivergence(t *testing.T) {
	l := openTestHost(t, 1)
	defer l.Close(context.Background())
	l.lead()
	if have, want := l.group.Explain().String(), "group 1, seen from host 1: healthy\n  leads in term 1; applied 3, committed 3, durable 3, last entry 3\n"; have != want {
		t.Errorf("have %q, want %q", have, want)
	}
	l = openLeader(t)
	l.compares(9, 1)
	d := l.group.Explain()
	if d.Healthy || !d.Has(diagnosis.CodeDiverged) || !strings.Contains(d.String(), "not healthy: members differ") {
		t.Error(d)
	}
}
