//go:build linux

package chaos

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Where hosts are, and what may be done to the links between them. A link has a direction: a cut of 1→2
// discards what host 1 sends to host 2, and leaves the other direction alone.

// maxHosts is how many ids an episode may use.
const maxHosts = 9

// link is a direction between two hosts.
type link struct{ from, to int }

// network is a place for each host, and the links between them.
type network interface {
	namespace(id int) *os.File // of a host; nil: that of the tests
	raft(id int) string        // where a host listens for others
	client(id int) string      // and for clients
	// seen is where one host reaches another one. It differs from raft on links with a proxy.
	seen(from, to int) string
	// cut makes exactly these links cut.
	cut(links map[link]bool) error
	// dropped returns how many packets were discarded on links that are not cut any more; -1: not known.
	dropped() int
	// limit bounds what a host sends in bytes a second; 0: no bound.
	limit(id, rate int) error
	close()
}

// namespaces is a network namespace for each host, all on one bridge. The tests and their clients are at the
// bridge, and are never cut off.
type namespaces struct {
	w    *world
	of   [maxHosts + 1]*os.File
	nft  bool
	last map[link]bool
	lost int // packets
}

func newNamespaces(w *world) (n *namespaces, err error) {
	n = &namespaces{w: w}
	_, missing := exec.LookPath("nft")
	n.nft = missing == nil && w.run(nil, "", "nft", "list", "ruleset") == nil
	if w.cuts = "routes that discard"; n.nft {
		w.cuts = "nft"
	}
	if _, err := exec.LookPath("tc"); err != nil {
		return nil, fmt.Errorf("the program tc is missing (Debian package iproute2)")
	}
	for _, line := range []string{"link set lo up", "link add br0 type bridge", "address add 10.77.0.254/24 dev br0", "link set br0 up"} {
		if err := w.run(nil, "", "ip", strings.Fields(line)...); err != nil {
			return nil, err
		}
	}
	for id := 1; id <= maxHosts; id++ {
		if err := n.add(id); err != nil {
			return nil, fmt.Errorf("network namespace of host %d: %w", id, err)
		}
	}
	return n, nil
}

// add makes the namespace of a host and its link to the bridge.
func (n *namespaces) add(id int) error {
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer home.Close()
	err = n.w.in(nil, func() (err error) {
		if err = unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		if n.of[id], err = os.Open("/proc/thread-self/ns/net"); err != nil {
			return err
		}
		return unix.Setns(int(home.Fd()), unix.CLONE_NEWNET)
	})
	if err != nil {
		return err
	}
	for _, line := range []string{
		"link set lo up",
		fmt.Sprintf("link add eth0 type veth peer name host%d netns %d", id, os.Getpid()),
		fmt.Sprintf("address add 10.77.0.%d/24 dev eth0", id),
		"link set eth0 up",
	} {
		if err := n.w.run(n.of[id], "", "ip", strings.Fields(line)...); err != nil {
			return err
		}
	}
	return n.w.run(nil, "", "ip", "link", "set", fmt.Sprintf("host%d", id), "master", "br0", "up")
}

func (n *namespaces) namespace(id int) *os.File { return n.of[id] }
func (n *namespaces) raft(id int) string        { return fmt.Sprintf("10.77.0.%d:7000", id) }
func (n *namespaces) client(id int) string      { return fmt.Sprintf("10.77.0.%d:8000", id) }
func (n *namespaces) seen(_, to int) string     { return n.raft(to) }
func (n *namespaces) close()                    {} // they end with this process

func (n *namespaces) dropped() int {
	if !n.nft {
		return -1
	}
	return n.lost
}

// cut writes the rules of each host whose links have changed, in one transaction for each.
func (n *namespaces) cut(links map[link]bool) error {
	changed := map[int]bool{}
	for _, some := range []map[link]bool{links, n.last} {
		for l := range some {
			if links[l] == n.last[l] {
				continue
			}
			if n.nft {
				changed[l.to] = true
			} else {
				changed[l.from] = true
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(changed)) {
		change := n.routes
		if n.nft {
			change = n.rules
		}
		if err := change(id, links); err != nil {
			return err
		}
	}
	n.last = maps.Clone(links)
	return nil
}

// rules makes a host discard what comes over the links that are cut.
func (n *namespaces) rules(id int, links map[link]bool) error {
	if err := n.countDropped(id); err != nil {
		return err
	}
	script := "add table ip chaos\ndelete table ip chaos\n"
	var from []string
	for l := range links {
		if l.to == id {
			from = append(from, fmt.Sprintf("10.77.0.%d", l.from))
		}
	}
	if len(from) > 0 {
		script += fmt.Sprintf("table ip chaos {\n chain in {\n  type filter hook input priority 0\n  ip saddr { %s } counter drop\n }\n}\n", strings.Join(from, ", "))
	}
	return n.w.run(n.of[id], script, "nft", "-f", "-")
}

// countDropped counts what the rules of a host have discarded, before they are exchanged.
func (n *namespaces) countDropped(id int) error {
	for l := range n.last {
		if l.to != id {
			continue
		}
		text, err := n.w.output(n.of[id], "", "nft", "list", "table", "ip", "chaos")
		if err != nil {
			return err
		}
		var packets int
		if _, after, ok := strings.Cut(text, "counter packets "); ok {
			_, err = fmt.Sscan(after, &packets)
		}
		n.lost += packets
		return err
	}
	return nil
}

// routes makes a host discard what it sends over the links that are cut: the same without nft, except that
// its programs get an error.
func (n *namespaces) routes(id int, links map[link]bool) error {
	for to := 1; to <= maxHosts; to++ {
		l := link{id, to}
		if links[l] == n.last[l] {
			continue
		}
		change := "add"
		if !links[l] {
			change = "delete"
		}
		if err := n.w.run(n.of[id], "", "ip", "route", change, "blackhole", fmt.Sprintf("10.77.0.%d/32", to)); err != nil {
			return err
		}
	}
	return nil
}

func (n *namespaces) limit(id, rate int) error {
	if rate == 0 {
		return n.w.run(n.of[id], "", "tc", "qdisc", "delete", "dev", "eth0", "root")
	}
	return n.w.run(n.of[id], "", "tc", "qdisc", "replace", "dev", "eth0", "root", "tbf",
		"rate", fmt.Sprintf("%dbit", 8*rate), "burst", "16kb", "latency", "500ms")
}

// cutter adds up what several faults want at a time: a link is cut while any of them wants it, and a host has
// the smallest of its bounds.
type cutter struct {
	net    network
	mu     sync.Mutex
	cuts   []*cut
	limits map[int][]int // by host, bytes a second
}

type cut struct{ links []link }

// cut cuts links until the caller calls heal.
func (c *cutter) cut(links []link) (heal func() error, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	mine := &cut{links}
	c.cuts = append(c.cuts, mine)
	return func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.cuts = slices.DeleteFunc(c.cuts, func(other *cut) bool { return other == mine })
		return c.apply()
	}, c.apply()
}

// dropped returns how many packets were discarded on links that are not cut any more; -1: not known.
func (c *cutter) dropped() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.net.dropped()
}

// apply brings the network to what all cuts want. mu is held.
func (c *cutter) apply() error {
	all := map[link]bool{}
	for _, cut := range c.cuts {
		for _, l := range cut.links {
			all[l] = true
		}
	}
	return c.net.cut(all)
}

// limit bounds what a host sends until the caller calls lift.
func (c *cutter) limit(id, rate int) (lift func() error, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.limits[id] = append(c.limits[id], rate)
	return func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		i := slices.Index(c.limits[id], rate)
		if c.limits[id] = slices.Delete(c.limits[id], i, i+1); len(c.limits[id]) == 0 {
			return c.net.limit(id, 0)
		}
		return c.net.limit(id, slices.Min(c.limits[id]))
	}, c.net.limit(id, slices.Min(c.limits[id]))
}
