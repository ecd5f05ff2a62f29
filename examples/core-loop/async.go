package main

import (
	"context"
	"sync"
	"time"

	"github.com/millrace/millrace/raft"
	pb "github.com/millrace/millrace/raft/raftpb"
)

// runAsync is the loop with asynchronous storage writes. It never waits for a disk or for the state machine:
//
//	an input → Ready ─┬─► to a peer              leaves at once
//	                  ├─► to LocalAppendThread   append goroutine: save, then deliver its Responses
//	                  └─► to LocalApplyThread    apply goroutine: apply, then deliver its Responses
//
// A Response goes to a peer directly, or to this member's own core through Step. Each goroutine works in
// order; there is no order between the two. There is no Advance.
func (m *member) runAsync(ctx context.Context) error {
	ctx, fail := context.WithCancelCause(ctx)
	appends, applies := make(chan pb.Message, 64), make(chan pb.Message, 64)
	answered := make(chan struct{}, 1)

	var storage sync.WaitGroup
	work := func(queue <-chan pb.Message, do func(pb.Message) error) {
		storage.Go(func() {
			for message := range queue {
				if err := do(message); err != nil {
					fail(err)
					return
				}
				m.deliver(message.Responses)
				select {
				case answered <- struct{}{}: // the core may have a Ready now
				default:
				}
			}
		})
	}
	work(appends, m.appendOne)
	work(applies, func(message pb.Message) error { return m.apply(message.Entries) })

	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for m.input(ctx, ticker.C, answered) {
		for {
			rd, ok := m.ready()
			if !ok {
				break
			}
			m.noteLeader(rd.SoftState)
			for _, message := range rd.Messages {
				switch message.To {
				case raft.LocalAppendThread:
					hand(ctx, appends, message)
				case raft.LocalApplyThread:
					hand(ctx, applies, message)
				default:
					m.net.send([]pb.Message{message})
				}
			}
		}
		if err := m.coreErr(); err != nil {
			fail(err)
		}
	}
	close(appends)
	close(applies)
	storage.Wait()
	return context.Cause(ctx)
}

// appendOne executes a MsgStorageAppend. What it writes is one write: after a crash the log must hold all of
// it or nothing of it. Without Responses nothing waits for its durability.
func (m *member) appendOne(message pb.Message) error {
	hard := pb.HardState{Term: message.Term, Vote: message.Vote, Commit: message.Commit}
	return m.log.save(hard, message.Entries, len(message.Responses) > 0)
}

// deliver sends the answers of a storage goroutine: to peers, and to the core itself.
func (m *member) deliver(responses []pb.Message) {
	for _, r := range responses {
		if r.To != m.id {
			m.net.send([]pb.Message{r})
			continue
		}
		m.mu.Lock()
		_ = m.core.Step(r)
		m.mu.Unlock()
	}
}

func (m *member) ready() (rd raft.Ready, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.core.HasReady() {
		return rd, false
	}
	return m.core.Ready(), true
}

func (m *member) coreErr() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.core.Err()
}

// hand puts a message into the queue of a storage goroutine. A full queue makes the loop wait: that bounds
// the queue.
func hand(ctx context.Context, queue chan<- pb.Message, message pb.Message) {
	select {
	case queue <- message:
	case <-ctx.Done():
	}
}
