package etcdnode

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/raft/raftpb"
)

// Everything at once, for the race detector: three nodes with a consumer, a ticker and a receiver each, and
// many goroutines that propose and look. Time is virtual: it advances when all goroutines are blocked, so no
// leader is deposed and no command is lost.
func TestAClusterUsedByManyGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const nodes, proposers, each = 3, 4, 25
		ctx, stop := context.WithCancel(t.Context())
		apps := connect(t, nodes)
		var complete, all sync.WaitGroup
		complete.Add(nodes)
		for _, a := range apps {
			all.Go(func() { a.receive(ctx) })
			all.Go(func() { a.consume(ctx, nodes*proposers*each, complete.Done) })
			for p := range proposers {
				all.Go(func() {
					for k := range each {
						if err := a.Propose(ctx, fmt.Append(nil, a.Status().ID, p, k)); err != nil {
							t.Errorf("a proposal at a node of a cluster in order: %v", err)
						}
					}
				})
			}
		}
		complete.Wait()
		stop()
		all.Wait()
		for _, a := range apps {
			a.Stop()
			if !slices.Equal(a.applied, apps[0].applied) {
				t.Errorf("two nodes applied differently:\n%q\n%q", apps[0].applied, a.applied)
			}
		}
	})
}

// A member is an app with a network: a channel for what it is sent.
type member struct {
	*app
	inbox chan raftpb.Message
}

func connect(t *testing.T, nodes int) []*member {
	var members []*member
	for id := range uint64(nodes) {
		members = append(members, &member{app: found(t, id+1, nodes, nil), inbox: make(chan raftpb.Message, 1<<16)})
	}
	for _, from := range members {
		from.send = func(m raftpb.Message) {
			select {
			case members[m.To-1].inbox <- m:
			default: // lost
			}
		}
	}
	return members
}

func (m *member) receive(ctx context.Context) {
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			m.Tick()
		case message := <-m.inbox:
			_ = m.Step(ctx, message) // a refused message is lost
		case <-ctx.Done():
			return
		}
	}
}

// consume works like a loop of ported code. It reports when the given number of commands is applied, and
// continues: the others may still need this node to learn what is committed.
func (m *member) consume(ctx context.Context, commands int, complete func()) {
	for {
		select {
		case rd := <-m.Ready():
			before := len(m.applied)
			m.handle(rd)
			if before < commands && len(m.applied) >= commands {
				complete()
			}
		case <-ctx.Done():
			return
		}
	}
}
