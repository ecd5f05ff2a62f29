package node

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/millrace/millrace/raft/raftpb"
)

// Everything at once, for the race detector: three nodes with a consumer, a ticker and a receiver each, and many who propose
// and look. The time is virtual: it moves when all rest, so no leader is deposed and no command lost.
func TestAClusterUsedByManyGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const nodes, proposers, each = 3, 4, 25
		ctx, stop := context.WithCancel(t.Context())
		apps := connect(t, nodes)
		var consumers, all sync.WaitGroup
		for _, a := range apps {
			all.Go(func() { a.receive(ctx) })
			consumers.Go(func() { a.consume(nodes * proposers * each) })
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
		consumers.Wait()
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
	inbox chan pb.Message
}

func connect(t *testing.T, nodes int) []*member {
	var members []*member
	for id := range uint64(nodes) {
		members = append(members, &member{app: found(t, id+1, nodes, nil), inbox: make(chan pb.Message, 1<<16)})
	}
	for _, from := range members {
		from.send = func(m pb.Message) {
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
			_ = m.Step(ctx, message) // what is refused is lost
		case <-ctx.Done():
			return
		}
	}
}

// consume works as a ported loop does, until so many commands are applied.
func (m *member) consume(commands int) {
	for len(m.applied) < commands {
		select {
		case rd := <-m.Ready():
			m.handle(rd)
		case <-m.Done():
			return
		}
	}
}
