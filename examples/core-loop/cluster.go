package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	pb "github.com/millrace/millrace/raft/raftpb"
)

// retryAfter is how long a client waits for its command to be applied before it offers it again: a leader
// that loses its office may drop a command without a word.
const retryAfter = 2 * time.Second

// cluster starts members and is their client.
type cluster struct {
	mode, kind, dir string
	net             *network
	members         map[uint64]*member

	ctx     context.Context
	cancel  context.CancelCauseFunc
	running sync.WaitGroup
}

// founders is the first configuration. Every member begins with it, also one that joins later: it applies the
// log from entry 1, with the change that adds it.
var founders = pb.ConfState{Voters: []uint64{1, 2, 3}}

func newCluster(mode, kind, dir string) (*cluster, error) {
	if !slices.Contains([]string{"sync", "async"}, mode) || !slices.Contains([]string{"memory", "wal"}, kind) {
		return nil, errNoMode
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	return &cluster{
		mode: mode, kind: kind, dir: dir, net: newNetwork(), members: map[uint64]*member{}, ctx: ctx, cancel: cancel,
	}, nil
}

func (c *cluster) start(ids ...uint64) error {
	for _, id := range ids {
		l, err := c.openLog(id)
		if err != nil {
			return err
		}
		m, err := newMember(id, c.mode, l, c.net)
		if err != nil {
			return errors.Join(err, l.close())
		}
		c.members[id] = m
		loop := m.runSync
		if c.mode == "async" {
			loop = m.runAsync
		}
		c.running.Go(func() {
			err := loop(c.ctx)
			if err = errors.Join(err, l.close()); err != nil && c.ctx.Err() == nil {
				c.cancel(fmt.Errorf("member %d: %w", id, err)) // this program ends with its first failure
			}
		})
	}
	return nil
}

func (c *cluster) openLog(id uint64) (memberLog, error) {
	if c.kind == "memory" {
		return newMemoryLog(founders), nil
	}
	return openDiskLog(filepath.Join(c.dir, fmt.Sprint(id)), founders)
}

// propose returns when the first member has applied the command.
func (c *cluster) propose(ctx context.Context, command string) error {
	return c.offer(ctx, proposal{command: []byte(command)}, func() bool {
		return slices.Contains(c.members[1].machine.commands, command)
	})
}

// addLearner returns when the first member has applied the change that makes id a learner.
func (c *cluster) addLearner(ctx context.Context, id uint64) error {
	change := pb.ConfChange{Type: pb.ConfChangeAddLearnerNode, NodeID: id}
	return c.offer(ctx, proposal{change: change}, func() bool {
		return slices.Contains(c.members[1].machine.conf.Learners, id)
	})
}

// offer offers p to the first member until applied holds. A follower passes proposals on to its leader.
func (c *cluster) offer(ctx context.Context, p proposal, applied func() bool) error {
	first := c.members[1]
	for {
		select {
		case <-first.leader:
		case <-c.ctx.Done():
			return context.Cause(c.ctx)
		case <-ctx.Done():
			return ctx.Err()
		}
		attempt, cancel := context.WithTimeout(ctx, retryAfter)
		_ = first.propose(attempt, p) // refused or not: only what is applied counts
		err := first.machine.until(attempt, applied)
		cancel()
		switch {
		case err == nil:
			return nil
		case c.ctx.Err() != nil:
			return context.Cause(c.ctx)
		case ctx.Err() != nil:
			return ctx.Err()
		}
	}
}

// stop ends all members and returns what failed, if anything did.
func (c *cluster) stop() error {
	err := context.Cause(c.ctx)
	c.cancel(nil)
	c.running.Wait()
	return err
}
