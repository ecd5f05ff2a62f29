package host

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/millrace/millrace/host/internal/appendlane"
	"github.com/millrace/millrace/host/session"
	"github.com/millrace/millrace/host/statemachine"
)

// A session that is drawn on a host that has just started, and has not applied its log yet, is not old: its
// first command is applied.
func TestNewSessionBeforeTheLogIsApplied(t *testing.T) {
	l := openTestHost(t, 1)
	defer l.Close(context.Background())
	open := func() *Group {
		t.Helper()
		g, err := l.OpenGroup(t.Context(), GroupConfig{ID: 2}, Commands(&echoMachine{}, statemachine.CommandOptions{}))
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	call := func(g *Group, command []byte, m *session.Mark) error {
		t.Helper()
		e := newEchoCaller()
		c := e.call(string(command))
		c.Session = m
		if err := g.Call(c); err != nil {
			t.Fatal(err)
		}
		l.manual.runIdle()
		select {
		case <-e.result:
			return nil
		case err := <-e.failed:
			return err
		default:
			return errors.New("no outcome")
		}
	}
	g := open()
	l.manual.runIdle()
	l.leadGroup(g)
	large := bytes.Repeat([]byte{'x'}, appendlane.MaxSilentBytes) // with each the commit index reaches the disk
	for _, passed := range []time.Duration{2 * time.Hour, 2 * time.Hour, time.Minute} {
		l.manual.now += passed
		if err := call(g, large, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.Close(over()); err != nil && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	l.manual.runIdle()

	g = open()
	if s := g.Status(); s.Applied > 0 || s.Committed != begun+2 {
		t.Fatalf("want a host that has applied nothing and knows two commands to be committed: %+v", s)
	}
	id := g.NewSession()
	l.manual.runIdle()
	g.Campaign()
	l.manual.runIdle()
	if err := call(g, []byte("first"), &session.Mark{ID: id, Number: 1, Low: 1}); err != nil {
		t.Errorf("the first command of a new session, born at %v of log time: %v; the log time was %v", id.Birth, err, g.machine.apply.Time.Last())
	}
}
