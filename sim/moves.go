package sim

import (
	"fmt"
	"slices"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/sim/property"
	"github.com/millrace/millrace/vfs/crashfs"
)

// Hosts move: one, or all, come back under other addresses. Each is given the present address of one other
// host, the same for all, and must find the rest: the others say where they are, and hosts that know better
// tell them. In runs without churn hosts are found by their ids.

func firstAddr(id uint64) string { return fmt.Sprintf("host-%d:7000", id) }

// movable is the transport of a process whose addresses are hints.
type movable struct{ *life }

// Addr and SetPeer are what package host asks of a transport that dials.
func (m movable) Addr() string { return m.host.addr }

func (m movable) SetPeer(id uint64, addr string) { m.book[id] = addr }

func (m movable) SetOtherAddr(id uint64, addr string) { m.others[id] = addr }

// transport returns the transport of a process.
func (l *life) transport() host.Transport {
	if l.w.churn == nil || l.impostor || !l.w.churn.hasAddrs() {
		return l
	}
	l.book, l.others = map[uint64]string{}, map[uint64]string{}
	for id, addr := range l.w.config.Members {
		l.book[id] = addr
	}
	return movable{l}
}

// dials reports whether a process knows the address of a host.
func (l *life) dials(h *machine) bool {
	return l.book == nil || l.book[h.id] == h.addr || l.others[h.id] == h.addr
}

// move stops one host, or all, and starts it at another address.
func (c *churn) move() {
	if !c.hasAddrs() {
		return
	}
	moving := c.w.hosts
	if c.rng.IntN(3) > 0 {
		moving = moving[c.rng.IntN(len(moving)):][:1]
	}
	for _, h := range moving {
		c.moves++
		h.addr = fmt.Sprintf("host-%d:%d", h.id, 7000+c.moves)
		c.w.record(fmt.Sprintf("host %d moves to %s", h.id, h.addr))
		c.w.count(Moves)
		if h.alive != nil && h.alive.process != nil {
			h.crash(crashfs.LoseNothing)
			c.w.nemesis.restart(h)
		}
	}
}

// tellAll tells all hosts again: the one that was named may have moved before it was met (seed 261).
func (c *churn) tellAll() {
	for _, h := range c.w.hosts {
		if h.alive != nil && h.alive.process != nil && !h.alive.dead {
			h.alive.tellOfMove()
		}
	}
}

// tellOfMove is what an operator does when a host starts: it names the present address of the first host that
// is good, and to that one the address of the second. (With the address of any other host, two halves could
// each know only themselves.)
func (l *life) tellOfMove() {
	if l.book == nil {
		return
	}
	var named *machine
	for _, h := range l.w.hosts {
		if h != l.host && (named == nil || l.w.churn.isGood(h) && !l.w.churn.isGood(named)) {
			named = h
		}
	}
	if err := l.process.SetPeer(named.id, named.addr); err != nil {
		l.w.breaks(property.OneConfiguration, "%s: %v", l.name, err)
	}
}

// isGood reports whether a host has its directory, and believes to be a voter. A host whose directory is
// lost, or that was removed, tells others nothing: they refuse it (seed 114).
func (c *churn) isGood(h *machine) bool {
	if h == c.wiped || h.alive == nil || h.alive.process == nil {
		return false
	}
	for _, r := range h.alive.replicas {
		if r.group == nil || !slices.Contains(r.group.Members().Voters, h.id) {
			return false
		}
	}
	return true
}
