//go:build linux

package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/tests/history/pki"
)

// episode is one cluster: founded, loaded, disturbed, mended and judged.
type episode struct {
	seed         uint64
	plan         schedule
	program      program
	dir          string
	binary       string
	net          network
	links        *cutter
	certificates *pki.Files
	cluster      uint64 // its number
	founders     []int
	load         *load
	disk         *smallDisk // of one host, or nil
	began        time.Time
	journal      *os.File
	plans        sync.Mutex // for one change of the members, or one lost directory, at a time

	stood atomic.Int64 // nanoseconds in which the machine ran nothing of this process

	ctx  context.Context // ends with the first failure
	stop context.CancelFunc

	mu      sync.Mutex
	hosts   map[int]*host
	current []int // ids of the members
	err     error
	tally   tally
	busy    map[string]int // faults under way, by kind
}

// newEpisode makes the directory, the certificates and the hosts of an episode. Nothing runs yet.
func newEpisode(base, binary string, net network, s schedule, of func(*episode) program) (*episode, error) {
	e := &episode{
		seed: s.seed, plan: s, dir: filepath.Join(base, fmt.Sprintf("seed-%d", s.seed)), binary: binary, net: net,
		links: &cutter{net: net, limits: map[int][]int{}}, hosts: map[int]*host{}, busy: map[string]int{}, began: time.Now(),
		tally: tally{made: map[string]int{}, hit: map[string]int{}},
	}
	e.program = of(e)
	e.ctx, e.stop = context.WithCancel(context.Background())
	if err := os.RemoveAll(e.dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(e.dir, "certificates"), 0o700); err != nil {
		return nil, err
	}
	var err error
	if e.journal, err = os.Create(filepath.Join(e.dir, "episode.log")); err != nil {
		return nil, err
	}
	fmt.Fprintf(e.journal, "%v\nreplay: %s\n", s, e.program.command(s.seed))
	ids := make([]int, maxHosts)
	for i := range ids {
		ids[i] = i + 1
	}
	if e.certificates, err = pki.New(filepath.Join(e.dir, "certificates"), ids...); err != nil {
		return nil, err
	}
	e.founders = ids[:s.hosts:s.hosts]
	e.current = slices.Clone(e.founders)
	for _, id := range e.founders {
		e.hosts[id] = newHost(e, id)
	}
	if s.disk > 0 {
		h := e.hosts[s.disk]
		if e.disk, err = newSmallDisk(h.base, e.program.diskBytes()); err != nil {
			return nil, err
		}
		h.dir = e.disk.data()
	}
	return e, nil
}

// say writes a line of the journal.
func (e *episode) say(format string, args ...any) {
	now := time.Now()
	fmt.Fprintf(e.journal, "%s %6.2fs %s\n", now.Format("15:04:05.000"), now.Sub(e.began).Seconds(), fmt.Sprintf(format, args...))
}

// fail ends the episode with an error. The first one wins.
func (e *episode) fail(err error) {
	if err == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err == nil {
		e.err = err
		e.say("FAILED: %v", err)
	}
	e.stop()
}

func (e *episode) failure() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.err
}

func (e *episode) memberIDs() []int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.current)
}

// setMembers says who the members are from now on. Clients ask only them.
func (e *episode) setMembers(ids []int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.current = ids
}

func (e *episode) host(id int) *host {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.hosts[id]
}

func (e *episode) members() (all []*host) {
	for _, id := range e.memberIDs() {
		all = append(all, e.host(id))
	}
	return all
}

// newMember makes a host with an id that none had before.
func (e *episode) newMember() (*host, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for id := 1; id < copyPlace; id++ {
		if e.hosts[id] == nil {
			e.hosts[id] = newHost(e, id)
			return e.hosts[id], nil
		}
	}
	return nil, fmt.Errorf("all ids below %d were used", copyPlace)
}

// found starts the cluster and waits until it has a leader.
func (e *episode) found() error {
	if err := e.program.prepare(); err != nil {
		return err
	}
	for _, h := range e.members() {
		h.args = e.program.founding(h)
		if err := h.start(); err != nil {
			return err
		}
	}
	if _, err := e.waitLeader(maxWait); err != nil {
		return err
	}
	if theWorld.namespaces {
		return nil
	}
	for _, h := range e.members() {
		if err := h.terminate(); err != nil {
			return err
		}
	}
	for _, h := range e.members() {
		h.args = e.argsNow(h)
		if err := h.start(); err != nil {
			return err
		}
	}
	_, err := e.waitLeader(maxWait)
	return err
}

// waitLeader waits until all members name the same leader of the same term.
func (e *episode) waitLeader(within time.Duration) (leader *host, err error) {
	err = e.eventually(within, "the members agree on a leader", func() error {
		leader = nil
		var terms, leaders []uint64
		for _, h := range e.members() {
			s, err := h.status()
			if err != nil {
				return err
			}
			if e.cluster == 0 {
				if e.cluster, err = strconv.ParseUint(s.Cluster.String(), 10, 64); err != nil {
					return err
				}
			}
			terms, leaders = append(terms, s.Term), append(leaders, s.Leader)
			if s.Leader == uint64(h.id) {
				leader = h
			}
		}
		if leader == nil || slices.Min(terms) != slices.Max(terms) || slices.Min(leaders) != slices.Max(leaders) {
			return fmt.Errorf("terms %v, leaders %v", terms, leaders)
		}
		return nil
	})
	return leader, err
}

// target is the host that a fault is for: the leader, if one is known, or a member by its place.
func (e *episode) target(f fault) *host {
	all := e.members()
	if f.leader {
		for _, h := range all {
			if s, err := h.status(); err == nil && s.Leader > 0 && slices.Contains(e.memberIDs(), int(s.Leader)) {
				return e.host(int(s.Leader))
			}
		}
	}
	return all[f.place%len(all)]
}

// disturb makes the faults of the schedule, each at its time, and waits until all have ended.
func (e *episode) disturb() {
	var all sync.WaitGroup
	for i, f := range e.plan.faults {
		all.Go(func() {
			if e.wait(f.at) != nil {
				return
			}
			e.note(f.kind.name, 1)
			defer e.note(f.kind.name, -1)
			e.say("fault %d begins: %v", i, f)
			if err := f.kind.make(e, f); err != nil {
				e.fail(fmt.Errorf("fault %d, %v: %w", i, f, err))
				return
			}
			e.say("fault %d has ended: %s", i, f.kind.name)
		})
	}
	all.Wait()
}

// note counts a fault that begins or ends.
func (e *episode) note(kind string, n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.busy[kind] += n; n > 0 {
		e.tally.made[kind]++
	}
	now := 0
	for _, n := range e.busy {
		now += n
	}
	e.tally.overlap = max(e.tally.overlap, now)
}

// hit counts a fault that had its effect.
func (e *episode) hit(kind string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tally.hit[kind]++
}

// count changes the tally.
func (e *episode) count(change func(*tally)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change(&e.tally)
}

// wait waits for a time that a schedule names. The error says that the episode has failed.
func (e *episode) wait(d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-e.ctx.Done():
		return errors.New("the episode has failed")
	}
}

// watchMachine adds up how late this process runs: all hosts of a machine that is too busy are as late.
func (e *episode) watchMachine() {
	ticks := time.NewTicker(50 * time.Millisecond)
	defer ticks.Stop()
	for last := time.Now(); ; {
		select {
		case <-ticks.C:
		case <-e.ctx.Done():
			return
		}
		now := time.Now()
		if late := now.Sub(last) - 200*time.Millisecond; late > 0 {
			e.stood.Add(int64(late))
		}
		last = now
	}
}

// run runs the episode. The error is the first thing that should not be.
func (e *episode) run() error {
	go e.watchMachine()
	if err := e.found(); err != nil {
		return fmt.Errorf("found: %w", err)
	}
	defer e.program.stop()
	if err := e.program.load(); err != nil {
		return err
	}
	e.say("the faults begin")
	e.program.mark()
	e.disturb()
	if err := e.failure(); err != nil {
		return err
	}
	e.program.mark()
	e.say("the faults have ended")
	if err := e.program.heal(); err != nil {
		return fmt.Errorf("after all faults had ended: %w", err)
	}
	e.say("mended")
	if err := e.program.end(); err != nil {
		return err
	}
	if err := e.failure(); err != nil {
		return err
	}
	return e.program.judge()
}

// close ends what still runs, and removes the directory of an episode that passed.
func (e *episode) close(passed bool) error {
	e.stop()
	e.program.stop()
	var errs []error
	e.mu.Lock()
	hosts := e.hosts
	e.mu.Unlock()
	for _, h := range hosts {
		errs = append(errs, h.kill())
	}
	if e.disk != nil {
		errs = append(errs, e.disk.close())
	}
	errs = append(errs, e.net.cut(nil), e.journal.Close())
	if passed && !*keep {
		errs = append(errs, os.RemoveAll(e.dir))
	}
	return errors.Join(errs...)
}
