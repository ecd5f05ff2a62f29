package host_test

import (
	"testing"

	"go.uber.org/goleak"
)

// All hosts move at once, and each is given the new address of the next one. They find each other: hosts
// that know better tell them, and the old addresses do not keep them apart.
func TestAllHostsMoveAtOnce(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	all := parties(t, 8) // so that no two addresses are equal
	ps, later := all[:4], all[4:]
	old := listOf(ps...)
	founded(t, ps...)
	write(t, ps, "before")
	for round := range 2 {
		for _, p := range ps {
			p.close()
		}
		for i, p := range ps {
			p.addr, later[i].addr = later[i].addr, p.addr
		}
		for i, p := range ps {
			known := map[uint64]string{}
			for id, addr := range old {
				known[id] = addr // where they were at first
			}
			next := ps[(i+1)%len(ps)]
			known[p.id], known[next.id] = p.addr, next.addr
			if round == 1 {
				delete(known, ps[(i+2)%len(ps)].id) // nothing is said of this one
			}
			p.open(known)
		}
		write(t, ps, "after the move")
	}
	for _, p := range ps {
		p.close()
	}
}
