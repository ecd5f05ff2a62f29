package host

import (
	"context"
	"strings"
	"testing"
)

// A difference that the leader has found is a cause, and the page of a healthy group is two lines.
func TestExplainDivergence(t *testing.T) {
	l := openTestHost(t, 1)
	defer l.Close(context.Background())
	l.lead()
	if have, want := l.group.Explain().String(), "group 1, seen from host 1: healthy\n  leads in term 1; applied 3, committed 3, durable 3, last entry 3\n"; have != want {
		t.Errorf("have %q, want %q", have, want)
	}
	l.group.divergence.latest = &Diverged{Group: 1, In: DivergedState, Index: 9}
	d := l.group.Explain()
	if d.Healthy || !d.Has(CodeDiverged) || !strings.Contains(d.String(), "not healthy: members differ") {
		t.Error(d)
	}
}
