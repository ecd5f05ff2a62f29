//go:build linux

package chaos

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/millrace/millrace/tests/history"
	"github.com/millrace/millrace/wal"
	"github.com/millrace/millrace/wal/inspect"
)

// What must hold when all faults have ended: within these times every member runs, they agree on a leader, a
// write commits, every member answers a linearizable read with it, and all have the same state.
const (
	leaderWithin = 15 * time.Second
	writeWithin  = 5 * time.Second
	readWithin   = 10 * time.Second
	levelWithin  = 30 * time.Second
)

// heal waits for all of it. The load runs on until the reads are answered.
func (e *episode) heal() error {
	began := time.Now()
	if len(e.memberIDs()) != e.plan.hosts {
		return fmt.Errorf("the members are %v, want %d", e.memberIDs(), e.plan.hosts)
	}
	for _, h := range e.members() {
		if !h.isUp() {
			return fmt.Errorf("host %d does not run\n%s", h.id, h.tail())
		}
	}
	if _, err := e.waitLeader(leaderWithin); err != nil {
		return err
	}
	e.tally.leader = time.Since(began)
	if err := e.writeAndRead(); err != nil {
		return err
	}
	e.load.stop()
	if err := e.level(); err != nil {
		return err
	}
	e.tally.level = time.Since(began)
	if err := e.readSums(); err != nil {
		return err
	}
	return e.sameStates()
}

// readSums reads the counters of the clients.
func (e *episode) readSums() error {
	k := &client{load: e.load, id: clients}
	e.load.final = map[string]int{}
	for _, s := range e.load.sums {
		err := e.eventually(readWithin, s.key+" is read", func() error {
			a := k.ask(e.ctx, e.memberIDs()[0], request{method: http.MethodGet, key: s.key}, "")
			if a.outcome != history.Answered || a.code != http.StatusOK && a.code != http.StatusNotFound {
				return fmt.Errorf("status %d: %s", a.code, a.body)
			}
			if a.code == http.StatusOK {
				n, err := strconv.Atoi(a.body)
				e.load.final[s.key] = n
				return err
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// writeAndRead writes a value and reads it from every member.
func (e *episode) writeAndRead() error {
	value := fmt.Sprintf("mended-%d", e.seed)
	k := &client{load: e.load, id: clients}
	err := e.eventually(writeWithin, "a write commits", func() error {
		ctx, cancel := context.WithTimeout(e.ctx, writeWithin)
		defer cancel()
		a := k.ask(ctx, e.memberIDs()[0], request{method: http.MethodPut, key: "mended", body: value}, "")
		if a.outcome != history.Answered || a.code != http.StatusOK {
			return fmt.Errorf("status %d: %s", a.code, a.body)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, id := range e.memberIDs() {
		err := e.eventually(readWithin, fmt.Sprintf("host %d answers a linearizable read", id), func() error {
			ctx, cancel := context.WithTimeout(e.ctx, readWithin)
			defer cancel()
			a := k.ask(ctx, id, request{method: http.MethodGet, key: "mended"}, "")
			if a.outcome == history.Answered && a.body != value {
				e.fail(fmt.Errorf("host %d answered a linearizable read with %q, want %q", id, a.body, value))
			}
			if a.outcome != history.Answered {
				return fmt.Errorf("status %d: %s", a.code, a.body)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// level waits until all members have applied the same, and agree on who they are.
func (e *episode) level() error {
	return e.eventually(levelWithin, "all members are level", func() error {
		var first status
		for i, h := range e.members() {
			s, err := h.status()
			if err != nil {
				return err
			}
			m, err := h.members()
			if err != nil {
				return err
			}
			if i == 0 {
				first = s
			}
			if s.Applied != first.Applied || s.Applied != s.Committed || s.Keys != first.Keys || s.Bytes != first.Bytes {
				return fmt.Errorf("%+v and %+v", first, s)
			}
			if m.Plan != "" || len(m.Voters) != e.plan.hosts {
				return fmt.Errorf("host %d sees voters %v and plan %q", h.id, m.Voters, m.Plan)
			}
		}
		return nil
	})
}

// sameStates reads every key of the clients on every member, as it is there, and compares values and
// versions.
func (e *episode) sameStates() error {
	keys := map[string]bool{"mended": true, "hog": true}
	for _, o := range e.load.recorder.History() {
		keys[o.Key] = true
	}
	for _, s := range e.load.sums {
		keys[s.key] = true
	}
	todo := make(chan string, len(keys))
	for key := range keys {
		todo <- key
	}
	close(todo)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for key := range todo {
				if e.ctx.Err() == nil {
					e.fail(e.sameKey(key))
				}
			}
		})
	}
	all.Wait()
	e.tally.compared = len(keys)
	return e.failure()
}

// sameKey compares one key.
func (e *episode) sameKey(key string) error {
	var first string
	for i, h := range e.members() {
		r, err := plain.Get("http://" + e.net.client(h.place) + "/keys/" + key + "?consistency=local")
		if err != nil {
			return err
		}
		body, err := io.ReadAll(r.Body)
		r.Body.Close()
		have := fmt.Sprintf("%d %s %s", r.StatusCode, r.Header.Get("ETag"), body)
		if i == 0 {
			first = have
		}
		switch {
		case err != nil:
			return err
		case r.StatusCode != http.StatusOK && r.StatusCode != http.StatusNotFound:
			return fmt.Errorf("host %d: %s: %s", h.id, key, have)
		case have != first:
			return fmt.Errorf("key %s is %.100q on host %d and %.100q on host %d", key, first, e.members()[0].id, have, h.id)
		}
	}
	return nil
}

// endAll stops all members in good order and looks at what they leave on their disks: every rule of the
// format is kept in every log, also of hosts that were removed, and no two logs of members part where they
// must not.
func (e *episode) endAll() error {
	members := e.members()
	for _, h := range members {
		if err := h.terminate(); err != nil {
			return err
		}
	}
	for _, h := range e.hosts {
		v, err := inspect.Verify(context.Background(), h.log())
		if err != nil {
			return fmt.Errorf("the log of host %d: %w", h.id, err)
		}
		if v.State != "whole" && v.State != "torn" {
			return fmt.Errorf("the log of host %d is %s: %+v", h.id, v.State, v.Findings)
		}
		e.tally.records += v.Checked.Records
	}
	for _, h := range members[1:] {
		c, err := inspect.Diff(context.Background(), members[0].log(), h.log())
		if err != nil {
			return fmt.Errorf("the logs of hosts %d and %d: %w", members[0].id, h.id, err)
		}
		if c.Worst == inspect.VerdictDamaged || c.Worst == inspect.VerdictViolation {
			return fmt.Errorf("the logs of hosts %d and %d: %s: %+v", members[0].id, h.id, c.Worst, c.Groups)
		}
	}
	return nil
}

func (h *host) log() wal.InspectOptions {
	return wal.InspectOptions{Dir: filepath.Join(h.dir, "log")}
}
