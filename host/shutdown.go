package host

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/millrace/millrace/host/internal/sched"
	"github.com/millrace/millrace/host/outcome"
)

// parts returns the parts of a host except its log. They can stop in any order.
func (h *Host) parts() []part {
	parts := []part{{fixed("the transport, which may be writing the record of a peer"), h.network.transport.Close}}
	if h.reports.admin != nil {
		parts = append(parts, part{fixed("the admin socket"), h.reports.admin.Close})
	}
	for _, s := range h.shards {
		for _, w := range s.Workers() {
			parts = append(parts, part{doing(w), joined(w.Stop)})
		}
	}
	parts = append(parts, part{fixed("the goroutine that wakes subscribers"), joined(h.reports.subscribers.Stop)})
	parts = append(parts, h.reports.flight.parts()...)
	parts = append(parts, part{fixed("the append lane, which writes and syncs the log"), joined(h.storage.lane.Task().Stop)})
	for _, l := range h.storage.readers.All() {
		parts = append(parts, part{l.Doing, joined(l.Stop)})
	}
	for _, l := range h.appliers.All() {
		parts = append(parts, part{func() string {
			if group, is := l.Doing(); is {
				return fmt.Sprintf("the state machine of group %d, which is in Apply", group)
			}
			return "an apply lane"
		}, joined(l.Task().Stop)})
	}
	for _, l := range h.bulk.snapshotLanes.All() {
		parts = append(parts, part{l.Doing, joined(l.Task().Stop)})
	}
	return parts
}

// doing says what a worker of a shard is in the middle of.
func doing(w *sched.Worker) func() string {
	return func() string {
		if t := w.Turn(); t != nil {
			return fmt.Sprintf("the turn of group %d", seatedGroup(t).id)
		}
		return "a shard"
	}
}

// run stops the parts, then the log. all calls the given functions and returns when they have returned.
func (s *shutdown) run(h *Host, parts []part, all func([]func())) {
	var stops []func()
	for i := range parts {
		stops = append(stops, func() { s.stop(&parts[i]) })
	}
	all(stops)
	h.bulk.transfers.CloseAll()
	for _, g := range h.groups.all() {
		g.work.held.Alarm.Stop()
		g.proposals.alarm.Stop()
		g.snapshots.Close()
	}
	h.storage.lane.Close()
	log := []part{{fixed("the log, which syncs and closes its files"), h.storage.log.Close}}
	s.begin(log)
	s.stop(&log[0])
	s.stop(&part{fixed("the directory, which is unlocked"), h.trust.directory.Close})
	s.endListeners(h)
	close(s.done)
}

// endListeners passes the last events and log lines on. These are the user's functions, and may hang.
func (s *shutdown) endListeners(h *Host) {
	var last []part
	if h.reports.hook != nil {
		last = append(last, part{fixed("the function of WithEvents"), h.reports.hook.Close})
	}
	last = append(last, part{fixed("the logger"), h.reports.logWriter.Close}) // to which that function may still log
	s.begin(last)
	for i := range last {
		s.stop(&last[i])
	}
}

func (s *shutdown) begin(parts []part) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range parts {
		s.running = append(s.running, &parts[i])
	}
}

func (s *shutdown) stop(p *part) {
	err := p.stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running = slices.DeleteFunc(s.running, func(other *part) bool { return other == p })
	if err != nil {
		s.errs = append(s.errs, err)
	}
}

// wait returns the result of the shutdown, or an error that names what hangs when ctx ends.
func (s *shutdown) wait(ctx context.Context) error {
	select {
	case <-s.done:
		return errors.Join(s.errs...)
	default:
	}
	select {
	case <-s.done:
		return errors.Join(s.errs...)
	case <-ctx.Done():
		return fmt.Errorf("millrace: Close: still waiting for %s; every client was answered, but the directory stays locked: %w",
			strings.Join(s.waitsFor(), "; "), context.Cause(ctx))
	}
}

// waitsFor says what parts that have not stopped are in the middle of, and how many more there are.
func (s *shutdown) waitsFor() (doing []string) {
	s.mu.Lock()
	running := slices.Clone(s.running)
	s.mu.Unlock()
	for _, p := range running[:min(len(running), maxNamedParts)] {
		doing = append(doing, p.doing())
	}
	if more := len(running) - len(doing); more > 0 {
		doing = append(doing, fmt.Sprintf("and %d more", more))
	}
	return doing
}

// maxNamedParts bounds what an error of Close names: a thousand state machines may hang.
const maxNamedParts = 16

func oneByOne(stops []func()) {
	for _, stop := range stops {
		stop()
	}
}

func together(stops []func()) {
	var all sync.WaitGroup
	for _, stop := range stops {
		all.Go(stop)
	}
	all.Wait()
}

// Close stops the host. First the groups that lead here take no more commands and hand over. This takes two
// round trips if a member is level, and at most an election timeout. It is left out if ctx cannot end
// (context.Background). Then every waiting client is answered, with ErrStopped or ErrIndeterminate; then
// the transport, the turns and the lanes stop; then the log is synced and closed. If ctx ends earlier,
// Close returns an error that names what hangs and wraps the context's. What hangs is left running: the
// process can end, but nothing else should open the directory before that (its lock refuses it).
//
// Close may be called from anywhere except the state machine, concurrently and repeatedly: a later call waits
// for the same shutdown.
func (h *Host) Close(ctx context.Context) error {
	if h.shutdown.closing.CompareAndSwap(false, true) {
		if ctx.Done() != nil {
			h.handOverAll(ctx)
		}
		h.clock.ticker.Stop()
		h.network.peers.AwaitAdding()
		for _, g := range h.groups.close() {
			g.end(outcome.ErrStopped)
			g.abandon()
		}
		parts := h.parts()
		h.shutdown.begin(parts)
		if ctx.Done() == nil {
			h.shutdown.run(h, parts, oneByOne) // the simulator has one goroutine
		} else {
			go h.shutdown.run(h, parts, together)
		}
	}
	return h.shutdown.wait(ctx)
}
