package versions

import (
	"errors"
	"strings"
	"testing"

	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/host/statemachine"
)

// A leader decides when all members have answered its question, and names those that cannot, or are silent.
// An answer to an earlier question does not count.
func TestDecide(t *testing.T) {
	var g Group
	can := func(highest uint32) Said { return Said{Can: statemachine.Versions{Highest: highest}} }
	u := Upgrade{To: 2, From: 1, Self: 1, Can: statemachine.Versions{Highest: 3}, Members: []uint64{1, 2, 3}, Now: 100, Patience: 20}
	early, _ := g.Ask(0, 5)
	for _, id := range u.Members {
		g.Take(id, Record{Number: early, Said: can(2)})
	}
	if err := g.Decide(u); !errors.Is(err, ErrWaits) {
		t.Fatalf("answers of before: %v", err)
	}
	number, due := g.Ask(1, 5)
	if !due || number != early+1 {
		t.Fatalf("question %d, %t", number, due)
	}
	g.Take(2, Record{Number: number, Said: can(2)})
	g.Take(3, Record{Number: early, Said: can(2)})
	if err := g.Decide(u); !errors.Is(err, ErrWaits) {
		t.Errorf("host 3 has not answered: %v", err)
	}
	u.Now = 115
	_ = g.Decide(u) // a caller asks again and again
	u.Now = 121
	if err := g.Decide(u); !errors.Is(err, membership.ErrRefused) || !strings.Contains(err.Error(), "host 3 did not say") {
		t.Errorf("host 3 is silent: %v", err)
	}
	if err := g.Decide(u); !errors.Is(err, ErrWaits) {
		t.Errorf("another attempt: %v", err)
	}
	number, _ = g.Ask(200, 5)
	g.Take(2, Record{Number: number, Said: can(2)})
	g.Take(3, Record{Number: number, Said: can(1)})
	if err := g.Decide(u); !errors.Is(err, membership.ErrRefused) || !strings.Contains(err.Error(), "the program of host 3 can do versions 0 to 1") || strings.Contains(err.Error(), "host 2") {
		t.Errorf("host 3 cannot: %v", err)
	}
	_ = g.Decide(u)
	number, _ = g.Ask(300, 5)
	g.Take(2, Record{Number: number, Said: can(2)})
	g.Take(3, Record{Number: number, Said: can(5)})
	if err := g.Decide(u); err != nil {
		t.Errorf("all can: %v", err)
	}
	if u.To = 0; !errors.Is(g.Decide(u), membership.ErrRefused) {
		t.Error("the group goes back")
	}
	if g.Keep([]uint64{1, 2}); len(g.answers) != 2 {
		t.Errorf("%d answers are kept", len(g.answers))
	}
}

// The bytes of the records are exact.
func TestRecords(t *testing.T) {
	said := Said{statemachine.Versions{Lowest: 2, Highest: 300}, 7}
	for _, body := range [][]byte{EncodeQuestion(9, 500), EncodeAnswer(9, 500, said)} {
		r, err := Decode(body)
		if err != nil || r.Group != 9 || r.Number != 500 || control.Validate(0, body) == nil {
			t.Errorf("%+v, %v", r, err)
		}
		if body[0] == control.VersionAnswer && r.Said != said {
			t.Errorf("%+v", r.Said)
		}
		if _, err := Decode(append(body, 0)); !errors.Is(err, control.ErrBad) {
			t.Errorf("a byte too many: %v", err)
		}
	}
	bad := EncodeAnswer(9, 1, Said{statemachine.Versions{Lowest: 4, Highest: 3}, 0})
	if _, err := Decode(bad); !errors.Is(err, control.ErrBad) {
		t.Errorf("versions 4 to 3: %v", err)
	}
}
