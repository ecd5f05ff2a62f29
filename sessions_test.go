package millrace_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/millrace/millrace"
)

// Machine.Sessions bounds what is remembered of sessions: the one that was idle for longest is forgotten
// first, its command is not applied again, and Metrics counts it.
func TestSessionsAreBounded(t *testing.T) {
	m := millrace.InMemory[int64, int64](&nilMachine[int64]{}, millrace.Binary[int64]()).Sessions(millrace.SessionOptions{MaxBytes: 8 << 10})
	c := alone(t)
	n := open(t, c, m)
	first := n.NewSession().ID()
	once := func(s millrace.SessionID) error {
		_, err := n.Propose(t.Context(), 1, millrace.InSession(millrace.SessionMark{Session: s, Number: 1}))
		return err
	}
	if err := errors.Join(once(first), once(n.NewSession().ID())); err != nil {
		t.Fatal(err)
	}
	if err := once(first); !errors.Is(err, millrace.ErrAlreadyApplied) {
		t.Fatalf("while there is space: %v", err)
	}
	for n.Metrics().Calls.SessionsEvicted < 7 {
		// One that is born within 10 ms of log time of a forgotten one counts as forgotten, too.
		if err := once(n.NewSession().ID()); err != nil && !errors.Is(err, millrace.ErrSessionExpired) {
			t.Fatal(err)
		}
	}
	if err := once(first); !errors.Is(err, millrace.ErrSessionExpired) {
		t.Errorf("when 7 are forgotten: %v", err)
	}
	if calls := n.Metrics().Calls; calls.Sessions != 25 {
		t.Errorf("%d sessions of 320 bytes are known, want 25", calls.Sessions)
	}
	if _, err := n.TakeSnapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := n.Close(context.Background()); err != nil {
		t.Fatal(err)
	}

	// The snapshot keeps the group from starting with other bounds.
	other := m.Sessions(millrace.SessionOptions{MaxBytes: 16 << 10})
	if _, err := millrace.Open(t.Context(), c, other, quiet()); err == nil || !strings.Contains(err.Error(), "Machine.Sessions") {
		t.Errorf("with other bounds than the snapshot: %v", err)
	}
	if err := open(t, c, m).Close(context.Background()); err != nil {
		t.Error(err)
	}
	if _, err := millrace.Open(t.Context(), alone(t), m.Sessions(millrace.SessionOptions{Expiry: 1}), quiet()); err == nil || !strings.Contains(err.Error(), "sessions expire after 1ns, want at least 1s (Machine.Sessions)") {
		t.Errorf("an expiry of 1 ns: %v", err)
	}
}

// TestSessionMarkText: the text of a mark is read as the same mark, and nothing else is read as one.
func TestSessionMarkText(t *testing.T) {
	const id = "0123456789abcdef0123456789abcdef.70"
	for text, want := range map[string]string{
		id + ":1":                      id + ":1",
		id + ":7:7":                    id + ":7",
		id + ":7:3":                    id + ":7:3",
		id + ":18446744073709551615:1": id + ":18446744073709551615:1",
	} {
		m, err := millrace.ParseSessionMark(text)
		if err != nil || m.String() != want {
			t.Errorf("%s: %v, %v; want %s", text, m, err, want)
		}
	}
	for _, text := range []string{"", ":", id, id + ":", id + ":0", id + ":1:0", id + ":1:2", id + ":1:1:1", id + ":-1", id + ":1:", "x:1", id + ":18446744073709551616", strings.Repeat("x", 1000)} {
		m, err := millrace.ParseSessionMark(text)
		if err == nil || !strings.Contains(err.Error(), "want SESSION:NUMBER") || len(err.Error()) > 400 {
			t.Errorf("%.100q: %v, %v", text, m, err)
		}
	}
	s := alone(t)
	n := open(t, s, millrace.InMemory[int64, int64](&nilMachine[int64]{}, millrace.Binary[int64]()))
	session := n.NewSession()
	first, second := session.Next(), session.Next()
	session.End(first)
	if got, err := millrace.ParseSessionMark(second.String()); err != nil || got.Number != 2 || got.Low != 2 || got.Session != session.ID() {
		t.Errorf("%v is read as %v (%v)", second, got, err)
	}
}
