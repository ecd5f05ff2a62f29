package main

import (
	"context"
	"slices"
	"sync"

	pb "github.com/millrace/millrace/raft/raftpb"
)

// machine is the replicated state machine: the list of commands in the order of the log. A client that gets
// no answer offers its command again, so a command may be in the log twice; the machine keeps the first one.
type machine struct {
	mu       sync.Mutex
	commands []string
	conf     pb.ConfState
	changed  chan struct{} // closed and replaced at each change
}

func newMachine() *machine { return &machine{changed: make(chan struct{})} }

func (s *machine) apply(command string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.commands, command) {
		s.commands = append(s.commands, command)
	}
	s.tell()
}

func (s *machine) configure(conf pb.ConfState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conf = conf
	s.tell()
}

func (s *machine) tell() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// until waits until done holds, and returns the error of ctx if that ends first. done is called with mu held.
func (s *machine) until(ctx context.Context, done func() bool) error {
	for {
		s.mu.Lock()
		is, changed := done(), s.changed
		s.mu.Unlock()
		if is {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// wait returns the commands as soon as there are n.
func (s *machine) wait(ctx context.Context, n int) (commands []string, err error) {
	err = s.until(ctx, func() bool {
		commands = slices.Clone(s.commands)
		return len(commands) >= n
	})
	return commands, err
}
