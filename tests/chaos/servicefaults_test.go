//go:build linux

package chaos

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"syscall"
	"time"
)

// The faults that need something of the service.

// makeServiceSlowDisk makes the disk of a host slow. A fault of the leader makes that host lead once more,
// because it was started again with the fault.
func makeServiceSlowDisk(e *episode, f fault) error {
	h, err := e.hold(f)
	if err != nil {
		return err
	}
	defer h.lock.Unlock()
	ctx, cancel := context.WithTimeout(e.ctx, f.lasts)
	defer cancel()
	if f.leader {
		go e.program.(*service).lead(ctx, h)
	}
	return e.slowDisk(f, h)
}

// lead asks the leader to hand over to a host until it has, or ctx ends.
func (s *service) lead(ctx context.Context, h *host) {
	for ctx.Err() == nil {
		_ = s.wait(200 * time.Millisecond)
		for _, other := range s.members() {
			st, err := s.status(other)
			switch {
			case err != nil || st.Leader != st.ID:
			case other == h:
				s.say("host %d leads with its slow disk", h.id)
				return
			default:
				_, _ = s.post(other, "/v3/maintenance/transfer-leadership", fmt.Sprintf(`{"targetID":"%d"}`, s.nameOf(h)))
			}
		}
	}
}

// nameOf returns what the service calls a host.
func (s *service) nameOf(h *host) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, id := range s.ids {
		if id == h.id {
			return name
		}
	}
	return 0
}

const (
	hogValueBytes = 900 << 10
	maxHogValues  = 50 // fewer bytes than the log has before the first snapshot, so that it begins with its first entry
)

// makeServiceFullDisk fills the small disk, and writes values that cannot be compressed until the host has no
// space for its state. It must say so, and may end then. With space it is started again, and must catch up.
func makeServiceFullDisk(e *episode, f fault) error {
	h := e.host(e.plan.disk)
	h.lock.Lock()
	defer h.lock.Unlock()
	h.wantEnd()
	if err := e.disk.fillRest(); err != nil {
		return err
	}
	full := func() bool { // of the state; or for the log or the start, if the host was just started
		return h.says("the disk of the database was full") != "" || h.says("the disk is full") != ""
	}
	if err := e.program.(*service).hog(h, full); err != nil {
		return err
	}
	if full() {
		e.hit(f.kind.name)
		e.say("the disk of host %d is full", h.id)
		_ = e.wait(second)
	}
	if !h.isUp() && !full() {
		return fmt.Errorf("host %d ended with %v when its disk was full, and does not say so\n%s", h.id, h.last().err, h.tail())
	}
	if err := e.disk.free(); err != nil {
		return err
	}
	if _, err := h.endBy(syscall.SIGTERM); err != nil { // its status says that its state was not written
		return err
	}
	return h.start()
}

// hog writes large values through other hosts until done, or until it has taken too long. Each has a key of
// its own, so that no compaction makes space.
func (s *service) hog(h *host, done func() bool) error {
	cl, err := s.connect(slices.DeleteFunc(s.memberIDs(), func(id int) bool { return id == h.id })...)
	if err != nil {
		return err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(s.ctx, maxWait)
	defer cancel()
	value := make([]byte, hogValueBytes)
	for n := 0; n < maxHogValues && ctx.Err() == nil && !done(); {
		_, _ = rand.Read(value)
		bounded, cancel := context.WithTimeout(ctx, 5*time.Second)
		if _, err := cl.Put(bounded, fmt.Sprint("hog/", n), string(value)); err == nil {
			n++
		}
		cancel()
	}
	for ctx.Err() == nil && !done() { // the host is behind
		_ = s.wait(100 * time.Millisecond)
	}
	if s.ctx.Err() != nil {
		return errEnded
	}
	return nil
}
