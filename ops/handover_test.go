package ops

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/millrace/millrace"
)

// A leader that is told to end hands its leadership over while it still serves its clients: they feel no
// election. The order is that of Run.
func TestRunHandsOver(t *testing.T) {
	members := map[uint64]string{}
	for id := uint64(1); id <= 3; id++ {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		members[id] = l.Addr().String()
		l.Close()
	}
	type member struct {
		node   *millrace.Node[int64, int64]
		stop   context.CancelFunc
		ended  chan error
		silent chan struct{} // closed when no client is served any more
	}
	all := map[uint64]member{}
	for id := range members {
		c := millrace.Config{ID: id, Dir: filepath.Join(t.TempDir(), "d"), Members: members, HeartbeatInterval: 20 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)}
		node, err := millrace.Open(t.Context(), c, millrace.InMemory(&counterMachine{}, millrace.Binary[int64]()))
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		m := member{node, stop, make(chan error, 1), make(chan struct{})}
		go func() {
			m.ended <- Run(ctx, node, Service{StopDelay: time.Second, Stopped: func() { close(m.silent) }})
		}()
		all[id] = m
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	leader, err := all[1].node.WaitLeader(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := all[leader.ID].node.Propose(ctx, 1); err != nil {
		t.Fatal(err)
	}
	old := all[leader.ID]
	old.stop()
	for old.node.Status().Leader == leader.ID {
		select {
		case err := <-old.ended:
			t.Fatalf("the process ended as the leader: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
	select {
	case <-old.silent:
		t.Error("the leadership was handed over after the end of service")
	default:
	}
	if sum, err := old.node.Propose(ctx, 1); err != nil || sum != 2 { // its clients are still served
		t.Errorf("%d, %v", sum, err)
	}
	if err := <-old.ended; err != nil {
		t.Error(err)
	}
	<-old.silent
	for id, m := range all {
		if id != leader.ID {
			m.stop()
			if err := <-m.ended; err != nil {
				t.Error(err)
			}
		}
	}
}
