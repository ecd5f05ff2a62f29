package host_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/internal/scratch"
	"github.com/millrace/millrace/transport/loopback"
)

// blocks is a state machine that blocks in its first call, although it was declared NonBlocking.
type blocks struct{ entered, release chan struct{} }

func (b *blocks) Apply([]statemachine.Entry) error {
	select {
	case b.entered <- struct{}{}:
		<-b.release
	default:
	}
	return nil
}

// A turn that hangs costs its group and no other: the shard goes on without it, with an event. When the turn
// returns, the group goes on too. Groups of one shard are closed, and the host, whatever hangs.
func TestHungTurnIsLeftBehind(t *testing.T) {
	network := loopback.NewNetwork()
	e := env.Real()
	e.Parallelism = 1 // one shard
	stalled := make(chan event.TurnStalled, 100)
	h, err := host.Open(t.Context(), host.Config{ID: 1, Dir: scratch.Dir(t), Members: map[uint64]string{1: "a"}, HeartbeatInterval: 5 * time.Millisecond, SegmentBytes: 1 << 20},
		host.WithEnv(e), host.WithTransport(network.Host(1)), host.WithLogger(quiet),
		host.WithEvents(func(e event.Event) {
			if s, ok := e.(event.TurnStalled); ok {
				stalled <- s
			}
		}))
	if err != nil {
		t.Fatal(err)
	}
	bad := &blocks{make(chan struct{}), make(chan struct{})}
	groups := map[uint64]*host.Group{}
	for id := uint64(1); id <= 4; id++ {
		c := host.GroupConfig{ID: id, NonBlocking: true}
		var machine statemachine.Machine = newJournal()
		if id == 1 {
			machine = bad
		}
		if groups[id], err = h.OpenGroup(t.Context(), c, machine); err != nil {
			t.Fatal(err)
		}
		groups[id].Campaign()
		if _, err := groups[id].WaitLeader(deadline(t)); err != nil {
			t.Fatal(err)
		}
	}
	first, err := groups[1].Submit([]byte("one"))
	if err != nil {
		t.Fatal(err)
	}
	<-bad.entered
	for id := uint64(2); id <= 4; id++ {
		for i := range 20 {
			if _, err := groups[id].Propose(deadline(t), []byte(fmt.Sprint(i))); err != nil {
				t.Fatalf("group %d beside a hung turn: %v", id, err)
			}
		}
	}
	select {
	case s := <-stalled:
		if s.Group != 1 {
			t.Errorf("group %d is said to hang", s.Group)
		}
	case <-deadline(t).Done():
		t.Fatal("no event says that a turn hangs")
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := groups[1].Close(over); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "its turn") {
		t.Errorf("Close of the group that hangs says %v", err)
	}
	if err := groups[4].Close(deadline(t)); err != nil {
		t.Error(err)
	}
	close(bad.release)
	if err := groups[1].Close(deadline(t)); err != nil {
		t.Errorf("the turn has returned, and Close says %v", err)
	}
	if _, err := first.Wait(deadline(t)); err != nil && !outcome.MayHaveCommitted(err) {
		t.Errorf("the command of the closed group: %v", err)
	}
	again, err := h.OpenGroup(t.Context(), host.GroupConfig{ID: 1, NonBlocking: true}, newJournal())
	if err != nil {
		t.Fatal(err)
	}
	again.Campaign()
	if _, err := again.WaitLeader(deadline(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := again.Propose(deadline(t), []byte("two")); err != nil {
		t.Error(err)
	}
	if err := h.Close(deadline(t)); err != nil {
		t.Error(err)
	}
}
