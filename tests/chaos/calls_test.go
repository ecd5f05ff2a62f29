//go:build linux

package chaos

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Faults of system calls, by strace: the k-th call of a thread fails, or the process is killed on its entry.
// strace counts the calls of each thread by themselves, so several threads may get there. It never makes a
// call fail that the Go runtime makes for itself: an error of write(2) would hit its wake-ups, and an end
// then would say nothing about Millrace.

// traced kills a host and starts it again below a tracer with a fault. It returns when the process has ended
// or the fault has lasted its time, and says how often the fault came. The caller holds the host's lock.
func (e *episode) traced(f fault, h *host, call, inject string) (hits int, err error) {
	if err := h.kill(); err != nil {
		return 0, err
	}
	file := filepath.Join(h.base, fmt.Sprintf("strace-%d", time.Since(e.began).Milliseconds()))
	e.say("host %d: inject=%s:%s", h.id, call, inject)
	tracer := []string{theWorld.strace, "-D", "-f", "-qq", "-e", "trace=" + call, "-e", "signal=none", "-e", "inject=" + call + ":" + inject, "-o", file}
	kills := strings.Contains(inject, "signal=")
	if !kills { // with the filter only these calls are slow, and no signal arrives
		tracer = append(tracer, "--seccomp-bpf")
	}
	err = h.launch(true, tracer...)
	if err != nil {
		return 0, err
	}
	l := h.last()
	enough := time.NewTimer(f.lasts)
	defer enough.Stop()
	select {
	case <-l.ended:
	case <-enough.C:
	case <-e.ctx.Done():
	}
	text, err := os.ReadFile(file)
	hits = strings.Count(string(text), "(INJECTED)") + strings.Count(string(text), "(DELAYED)")
	if kills && !h.isUp() {
		hits = 1
	}
	if hits > 0 {
		e.hit(f.kind.name)
	}
	return hits, err
}

// fails is a fault after which the process must end with status 1 and a sentence.
func (e *episode) fails(f fault, call string, k int) error {
	h, err := e.hold(f)
	if err != nil {
		return err
	}
	defer h.lock.Unlock()
	hits, err := e.traced(f, h, call, fmt.Sprintf("error=EIO:when=%d", k))
	if err != nil {
		return err
	}
	if hits > 0 && call != "fsync" { // a directory's fsync may belong to a snapshot, which is given up
		if err := h.waitEnd(fmt.Sprintf("after %s failed %d times", call, hits)); err != nil {
			return err
		}
		exit := (*exec.ExitError)(nil)
		if !errors.As(h.last().err, &exit) || exit.ExitCode() != 1 || h.says("kv: ", "input/output error") == "" {
			return fmt.Errorf("host %d ended with %v after %s failed, want status 1 and a sentence\n%s", h.id, h.last().err, call, h.tail())
		}
	}
	return e.again(h)
}

// again ends a host that runs below a tracer, and starts it without.
func (e *episode) again(h *host) error {
	if err := h.kill(); err != nil {
		return err
	}
	return h.start()
}

func makeSyncFails(e *episode, f fault) error {
	rng := f.rng()
	return e.fails(f, []string{"fdatasync", "fdatasync", "fsync"}[rng.IntN(3)], 1+rng.IntN(20))
}

func makeWriteFails(e *episode, f fault) error { return e.fails(f, "pwrite64", 1+f.rng().IntN(60)) }

func makeNoSpace(e *episode, f fault) error {
	h, err := e.hold(f)
	if err != nil {
		return err
	}
	defer h.lock.Unlock()
	rng := f.rng()
	call := []string{"pwrite64", "pwrite64", "fallocate"}[rng.IntN(3)]
	first := 20 + rng.IntN(60)
	if call == "fallocate" {
		first = 1
	}
	if _, err := e.traced(f, h, call, fmt.Sprintf("error=ENOSPC:when=%d..%d", first, first+5+rng.IntN(100))); err != nil {
		return err
	}
	if !h.isUp() {
		return fmt.Errorf("host %d ended with %v when there was no space\n%s", h.id, h.last().err, h.tail())
	}
	err = e.eventually(maxWait, fmt.Sprintf("host %d continues when there is space again", h.id), func() error {
		if n := h.count("group_disk_full"); n != 0 {
			return fmt.Errorf("group_disk_full is %d", n)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return e.again(h)
}

func makeSlowDisk(e *episode, f fault) error {
	h, err := e.hold(f)
	if err != nil {
		return err
	}
	defer h.lock.Unlock()
	return e.slowDisk(f, h)
}

// slowDisk makes each sync of a host late. The caller holds its lock.
func (e *episode) slowDisk(f fault, h *host) error {
	late := 20 + f.rng().IntN(180)
	hits, err := e.traced(f, h, "fdatasync", fmt.Sprintf("delay_exit=%d", late*1000))
	if err != nil {
		return err
	}
	if !h.isUp() {
		return fmt.Errorf("host %d ended with %v when each sync took %d ms\n%s", h.id, h.last().err, late, h.tail())
	}
	e.say("%d syncs of host %d took %d ms", hits, h.id, late)
	e.count(func(t *tally) { t.slowed += hits })
	return e.again(h)
}

func makeKilledInCall(e *episode, f fault) error {
	h, err := e.hold(f)
	if err != nil {
		return err
	}
	defer h.lock.Unlock()
	rng := f.rng()
	call, k := "", 0
	switch rng.IntN(6) { // seldom calls, and frequent ones
	case 0:
		call, k = []string{"fsync", "renameat", "unlinkat"}[rng.IntN(3)], 1+rng.IntN(2)
	case 1:
		call, k = "write", 1+rng.IntN(200)
	case 2, 3:
		call, k = "pwrite64", 1+rng.IntN(30)
	default:
		call, k = "fdatasync", 1+rng.IntN(30)
	}
	if _, err := e.traced(f, h, call, fmt.Sprintf("signal=KILL:when=%d", k)); err != nil {
		return err
	}
	return e.again(h)
}
