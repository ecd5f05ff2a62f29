package sim

import (
	"fmt"

	"github.com/millrace/millrace/transport"
)

// hostKey is the key of a host's certificate, by number; 0: the run has no TLS. A host gets another one while
// it runs, and presents that when its groups have bound it to it. An operator who replaces the files of a
// host that is down makes it come with a key that no other one knows, and accepts that when all faults have
// stopped. A host whose directory is new has a new key, too.
type hostKey struct {
	presented, wanted uint64
	ofDirectory       uint64 // the one with which its directory was new; nothing accepts that by hand
}

// Key is what package host asks of a transport.
func (l *life) Key() (presented, wanted [32]byte) {
	if l.w.churn == nil || !l.w.churn.keyed {
		return presented, wanted
	}
	k := l.host.key
	return keyOf(l.host.id, k.presented), keyOf(l.host.id, k.wanted)
}

func keyOf(id, n uint64) [32]byte { return [32]byte{1, byte(id), byte(n), byte(n >> 8)} }

// rekey gives a host another key.
func (c *churn) rekey() {
	h := c.w.hosts[c.rng.IntN(len(c.w.hosts))]
	if !c.keyed || h.key.presented != h.key.wanted {
		return
	}
	h.key.wanted++
	if l := h.alive; l == nil || l.process == nil {
		h.key.presented = h.key.wanted // the host does not know the one before any more
		c.w.record(fmt.Sprintf("host %d will come with key %d", h.id, h.key.wanted))
		c.w.count(Rekeys)
		return
	}
	c.present(h)
}

// renew gives a new machine, with an empty directory, a key that no other host knows. The plan or the token
// that makes it a member binds it: nothing accepts it.
func (h *machine) renew() {
	h.key.wanted++
	h.key.presented, h.key.ofDirectory = h.key.wanted, h.key.wanted
}

// present asks again and again whether a host may come with its new key.
func (c *churn) present(h *machine) {
	c.w.plan(between(c.rng, 0, c.pace), fmt.Sprintf("host %d has another key", h.id), nil, func() {
		l := h.alive
		if l == nil || l.process == nil || l.receiver == nil {
			c.present(h)
			return
		}
		_, wanted := l.Key()
		if !transport.MayPresent(l.receiver, wanted) {
			c.present(h)
			return
		}
		h.key.presented = h.key.wanted
		c.w.record(fmt.Sprintf("%s comes with key %d", l.name, h.key.presented))
		c.w.count(Rekeys)
		for p := range c.w.net.met { // all of them, so the order does not matter
			if p.from == l || p.to == l {
				delete(c.w.net.met, p)
			}
		}
	})
}

// acceptKeys is what an operator does in the end about hosts that are refused for their keys.
func (c *churn) acceptKeys() {
	if !c.keyed || !c.w.nemesis.isQuiet() {
		return
	}
	for _, h := range c.w.hosts {
		if h.alive == nil || h.alive.process == nil {
			continue
		}
		for _, other := range c.w.hosts {
			if other != h && (other.key.presented == 0 || other.key.presented != other.key.ofDirectory) && h.alive.process.AcceptKey(other.id) == nil {
				c.w.count(Accepts)
			}
		}
	}
}
