//go:build linux

package chaos

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"syscall"
)

// Faults of processes, of links and of members.

var errEnded = errors.New("the episode has failed")

// hold returns the host that a fault is for, with its lock held. It runs and is a member.
func (e *episode) hold(f fault) (*host, error) {
	for e.ctx.Err() == nil {
		h := e.target(f)
		h.lock.Lock()
		if h.isUp() && slices.Contains(e.memberIDs(), h.id) {
			return h, nil
		}
		h.lock.Unlock()
	}
	return nil, errEnded
}

func makeKill(e *episode, f fault) error {
	h, err := e.hold(f)
	if err != nil {
		return err
	}
	defer h.lock.Unlock()
	if err := h.kill(); err != nil {
		return err
	}
	e.hit(f.kind.name)
	_ = e.wait(f.lasts)
	return h.start()
}

func makeKillAll(e *episode, f fault) error {
	held := e.members()
	for _, h := range held {
		h.lock.Lock()
		defer h.lock.Unlock()
	}
	held = slices.DeleteFunc(held, func(h *host) bool { return !slices.Contains(e.memberIDs(), h.id) })
	for _, h := range held {
		if err := h.kill(); err != nil {
			return err
		}
	}
	e.hit(f.kind.name)
	_ = e.wait(f.lasts)
	for _, h := range held {
		if err := h.start(); err != nil {
			return err
		}
	}
	return nil
}

func makeStop(e *episode, f fault) error {
	h, err := e.hold(f)
	if err != nil {
		return err
	}
	defer h.lock.Unlock()
	if err := h.terminate(); err != nil {
		return err
	}
	e.hit(f.kind.name)
	_ = e.wait(f.lasts)
	return h.start()
}

func makePause(e *episode, f fault) error {
	h, err := e.hold(f)
	if err != nil {
		return err
	}
	defer h.lock.Unlock()
	if err := h.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	e.hit(f.kind.name)
	_ = e.wait(f.lasts)
	return h.signal(syscall.SIGCONT)
}

// makeCuts cuts links for as long as a fault lasts.
func makeCuts(choose func(rng *rand.Rand, target int, ids []int) []link) func(*episode, fault) error {
	return func(e *episode, f fault) error {
		target := e.target(f).id
		rng, ids := f.rng(), e.memberIDs()
		rng.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
		links := choose(rng, target, ids)
		e.say("cut: %v", links)
		was := e.links.dropped()
		heal, err := e.links.cut(links)
		if err != nil {
			return err
		}
		_ = e.wait(f.lasts)
		err = heal()
		if now := e.links.dropped(); was < 0 || now > was {
			e.hit(f.kind.name)
			e.count(func(t *tally) { t.dropped += now - was })
		}
		return err
	}
}

var (
	makeOneWay = makeCuts(func(rng *rand.Rand, target int, ids []int) []link {
		other := ids[0]
		if other == target {
			other = ids[1]
		}
		if rng.IntN(2) == 0 {
			return []link{{target, other}}
		}
		return []link{{other, target}}
	})
	makeIsolated = makeCuts(func(_ *rand.Rand, target int, ids []int) []link {
		return between(func(a, b int) bool { return a == target || b == target }, ids)
	})
	makeDeaf = makeCuts(func(_ *rand.Rand, target int, ids []int) []link {
		return between(func(_, b int) bool { return b == target }, ids)
	})
	// One member hears all, and the two halves of the others hear nothing of each other.
	makeBridge = makeCuts(func(_ *rand.Rand, _ int, ids []int) []link {
		half := func(id int) int { return (slices.Index(ids, id) - 1) * 2 / (len(ids) - 1) }
		return between(func(a, b int) bool { return a != ids[0] && b != ids[0] && half(a) != half(b) }, ids)
	})
	// Each member hears its neighbours in a row.
	makeChain = makeCuts(func(_ *rand.Rand, _ int, ids []int) []link {
		return between(func(a, b int) bool {
			d := slices.Index(ids, a) - slices.Index(ids, b)
			return d != 1 && d != -1
		}, ids)
	})
	makeAnyCuts = makeCuts(func(rng *rand.Rand, _ int, ids []int) []link {
		return between(func(int, int) bool { return rng.IntN(3) == 0 }, ids)
	})
)

// between returns the links between these hosts that cut is true for.
func between(cut func(from, to int) bool, ids []int) (links []link) {
	for _, from := range ids {
		for _, to := range ids {
			if from != to && cut(from, to) {
				links = append(links, link{from, to})
			}
		}
	}
	return links
}

func makeSlow(e *episode, f fault) error {
	h, rate := e.target(f), 8<<10<<f.rng().IntN(4)
	e.say("host %d sends %d bytes a second", h.id, rate)
	lift, err := e.links.limit(h.id, rate)
	if err != nil {
		return err
	}
	e.hit(f.kind.name)
	_ = e.wait(f.lasts)
	return lift()
}

func makeDemoted(e *episode, f fault) error {
	e.plans.Lock()
	defer e.plans.Unlock()
	id := strconv.Itoa(e.target(f).id)
	if err := e.change("demote", id, nil); err != nil {
		return err
	}
	e.hit(f.kind.name)
	_ = e.wait(f.lasts)
	return e.change("promote", id, nil)
}

func makeReplacedHost(e *episode, f fault) error {
	e.plans.Lock()
	defer e.plans.Unlock()
	if err := e.exchange(e.target(f)); err != nil {
		return err
	}
	e.hit(f.kind.name)
	return nil
}
