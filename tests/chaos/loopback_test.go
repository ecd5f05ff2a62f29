//go:build linux

package chaos

import (
	"os"

	"github.com/millrace/millrace/internal/scratch"
	"github.com/millrace/millrace/tests/history/proxy"
)

// loopback is all hosts on loopback addresses, with a proxy on each link: for machines on which the tests may
// not make namespaces. A cluster is founded with the real addresses, because the founding list is the same on
// all hosts, and goes through the proxies from its second start onwards.
type loopback struct {
	rafts, clients [maxHosts + 1]string
	ways           map[link]*proxy.Proxy
}

func newLoopback() (l *loopback, err error) {
	l = &loopback{ways: map[link]*proxy.Proxy{}}
	for id := 1; id <= maxHosts; id++ {
		if l.rafts[id], err = scratch.FreeAddress(); err != nil {
			return nil, err
		}
		if l.clients[id], err = scratch.FreeAddress(); err != nil {
			return nil, err
		}
	}
	for from := 1; from <= maxHosts; from++ {
		for to := 1; to <= maxHosts; to++ {
			if from == to {
				continue
			}
			if l.ways[link{from, to}], err = proxy.New(l.rafts[to]); err != nil {
				return nil, err
			}
		}
	}
	return l, nil
}

func (l *loopback) namespace(int) *os.File   { return nil }
func (l *loopback) raft(id int) string       { return l.rafts[id] }
func (l *loopback) client(id int) string     { return l.clients[id] }
func (l *loopback) seen(from, to int) string { return l.ways[link{from, to}].Address() }

func (l *loopback) cut(links map[link]bool) error {
	for way, p := range l.ways {
		if links[way] {
			p.Set(proxy.Holding)
		} else {
			p.Set(proxy.Passing)
		}
	}
	return nil
}

func (l *loopback) dropped() int { return -1 }

func (l *loopback) limit(id, rate int) error {
	for way, p := range l.ways {
		if way.from == id {
			p.Limit(rate)
		}
	}
	return nil
}

func (l *loopback) close() {
	for _, p := range l.ways {
		p.Close()
	}
}
