package host_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/pipeline"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/vfs/crashfs"
)

// closeWhileHung closes a host that hangs in one of its parts. The waiting client is answered at once, Close
// says what hangs when its context ends, and a later Close succeeds once the part has returned.
func closeWhileHung(t *testing.T, h *host.Host, waits host.Pending, hangs string, release func()) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	tired, said := errors.New("the operator is tired"), make(chan error)
	go func() { said <- h.Close(ctx) }()
	if _, err := waits.Wait(deadline(t)); !outcome.MayHaveCommitted(err) || !errors.Is(err, outcome.ErrStopped) {
		t.Errorf("the client was told %v", err)
	}
	if _, err := h.Group(theGroup).Propose(deadline(t), []byte("late")); !errors.Is(err, outcome.ErrStopped) || outcome.MayHaveCommitted(err) {
		t.Errorf("a late client was told %v", err)
	}
	cancel(tired)
	if err := <-said; !errors.Is(err, tired) || !strings.Contains(err.Error(), hangs) {
		t.Errorf("Close says %q, want that it waits for %q", err, hangs)
	}
	release()
	if err := h.Close(deadline(t)); err != nil {
		t.Errorf("Close, when nothing hangs any more: %v", err)
	}
}

// A disk that hangs in a sync holds up only the part that waits for it.
func TestCloseWithAHungDisk(t *testing.T) {
	for _, p := range pipeline.All {
		t.Run(p.Name(), func(t *testing.T) {
			c := openMemoryCluster(t, p)
			h := c.leader(t)
			g := c.hosts[h].Group(theGroup)
			for s := g.Status(); s.Durable < s.LastIndex; s = g.Status() {
				runtime.Gosched() // or its disk hangs before the command's turn
			}
			release, hung, once := make(chan struct{}), make(chan struct{}), sync.Once{}
			for i, disk := range c.disks {
				disk.SetHook(func(op crashfs.Op) error {
					if op.Kind == crashfs.OpSync {
						if i == h {
							once.Do(func() { close(hung) })
						}
						<-release
					}
					return nil
				})
			}
			waits, err := g.Submit([]byte("x"))
			if err != nil {
				t.Fatal(err)
			}
			<-hung
			hangs := "the append lane"
			if p.Name() != "async" {
				hangs = "the turn of group 1"
			}
			closeWhileHung(t, c.hosts[h], waits, hangs, func() { close(release) })
		})
	}
}

// blocked is a state machine that hangs in its first call.
type blocked struct{ entered, release chan struct{} }

func (b *blocked) Apply([]statemachine.Entry) error {
	close(b.entered)
	<-b.release
	return nil
}

func TestCloseWithAStuckStateMachine(t *testing.T) {
	b := &blocked{make(chan struct{}), make(chan struct{})}
	disk := crashfs.New()
	h, err := openOne(soloConfig(t), b, host.WithFS(disk), host.WithLogger(quiet))
	if err != nil {
		t.Fatal(err)
	}
	h.Group(theGroup).Campaign()
	if _, err := h.Group(theGroup).WaitLeader(deadline(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Group(theGroup).Propose(deadline(t), []byte("hangs in Apply")); err != nil {
		t.Fatal(err)
	}
	<-b.entered
	hung, release, once := make(chan struct{}), make(chan struct{}), sync.Once{}
	disk.SetHook(func(op crashfs.Op) error {
		if op.Kind == crashfs.OpSync {
			once.Do(func() { close(hung) })
			<-release
		}
		return nil
	})
	waits, err := h.Group(theGroup).Submit([]byte("is not answered before Close"))
	if err != nil {
		t.Fatal(err)
	}
	<-hung
	closeWhileHung(t, h, waits, "the state machine of group 1", func() { close(release); close(b.release) })
}

// stuckLog is a log handler that hangs in the line that says why a group has stopped.
type stuckLog struct {
	slog.Handler
	entered, release chan struct{}
}

func (l *stuckLog) Enabled(context.Context, slog.Level) bool { return true }

func (l *stuckLog) Handle(_ context.Context, r slog.Record) error {
	if r.Level == slog.LevelError {
		close(l.entered)
		<-l.release
	}
	return nil
}

// broken is a state machine that refuses every command.
type broken struct{}

func (broken) Apply([]statemachine.Entry) error { return errors.New("no such thing") }

// A log line that hangs must not keep a client or Close waiting.
func TestCloseWithAStuckLogger(t *testing.T) {
	log := &stuckLog{quiet.Handler(), make(chan struct{}), make(chan struct{})}
	h, err := openOne(soloConfig(t), broken{}, host.WithFS(crashfs.New()), host.WithLogger(slog.New(log)))
	if err != nil {
		t.Fatal(err)
	}
	h.Group(theGroup).Campaign()
	if _, err := h.Group(theGroup).WaitLeader(deadline(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Group(theGroup).Submit([]byte("cannot be applied")); err != nil {
		t.Fatal(err)
	}
	<-log.entered
	late, err := h.Group(theGroup).Submit([]byte("late"))
	if err == nil {
		_, err = late.Wait(deadline(t))
	}
	if !errors.Is(err, outcome.ErrMachineHalted) {
		t.Errorf("a late client was told %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	said := make(chan error, 1)
	go func() {
		err := h.Close(ctx)
		for err != nil && !strings.HasPrefix(err.Error(), "millrace: Close: still waiting for the logger; every client was answered") {
			runtime.Gosched()
			err = h.Close(ctx) // until the rest has stopped
		}
		said <- err
	}()
	select {
	case err := <-said:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Close says %v", err)
		}
	case <-deadline(t).Done():
		t.Error("Close waits for more than the log line, or beyond its context")
	}
	close(log.release)
	if err := h.Close(deadline(t)); err != nil {
		t.Error(err)
	}
}

// A cluster that works is stopped, one host after the other: no host warns of that. They have seconds until a
// peer that is away is a warning.
func TestStopWarnsOfNothing(t *testing.T) {
	ps := parties(t, 3)
	for _, p := range ps {
		p.open(listOf(ps...))
	}
	write(t, ps, "it works")
	for _, p := range ps {
		for len(p.lines) > 0 {
			<-p.lines // of the start, which is another matter
		}
	}
	ps[0].close()
	write(t, ps[1:], "without the first") // which may need an election
	for _, p := range ps[1:] {
		p.waitUntil("that the first is not connected", func() bool { return p.Metrics().Transport.PeersUp == 1 && p.Metrics().Transport.DialFailures > 0 })
	}
	for _, p := range ps[1:] {
		p.close()
	}
	for _, p := range ps {
		for len(p.lines) > 0 {
			line := <-p.lines
			if !strings.Contains(line, "a turn of a group takes long") { // of a busy machine
				t.Errorf("host %d warns: %s", p.id, line)
			}
		}
	}
}
