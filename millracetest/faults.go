package millracetest

import "context"

// Kill ends a node as a power cut does: its messages are lost, and its disk forgets everything that was not
// synced (but see OnDisk). Those who wait for the node get their errors. It returns when nothing of the
// node runs any more: an Apply that hangs makes it hang. Killing a node that is down does nothing. It fails
// the test if there is no node with this id.
func (c *Cluster[C, R]) Kill(id uint64) {
	c.t.Helper()
	_ = c.down(c.member(id), true)
}

// Stop closes a node in good order: it hands its leadership over and syncs its log. Stopping a node that is
// down does nothing. It fails the test if the node does not close, or if there is none with this id.
func (c *Cluster[C, R]) Stop(id uint64) {
	c.t.Helper()
	if err := c.down(c.member(id), false); err != nil {
		c.t.Fatalf("millracetest: node %d does not close: %v", id, err)
	}
}

// down takes a node down.
func (c *Cluster[C, R]) down(m *member[C, R], killed bool) error {
	m.life.Lock()
	defer m.life.Unlock()
	return c.downLocked(m, killed)
}

func (c *Cluster[C, R]) downLocked(m *member[C, R], killed bool) error {
	c.mu.Lock()
	h, tr, up := m.host, m.net, m.node != nil
	m.node = nil
	c.mu.Unlock()
	defer c.notify()
	switch {
	case !up:
		return nil
	case !killed:
		ctx, cancel := context.WithCancel(context.Background()) // a context that may end: Close hands over
		defer cancel()
		return h.Close(ctx)
	}
	_ = tr.Close()
	m.disk.crash()
	_ = h.Close(context.Background()) // it cannot write any more, and says so
	return nil
}

// Restart opens a node again, on what its disk has kept; a node that is up is killed first. It fails the test
// if the node does not open, or if there is none with this id.
func (c *Cluster[C, R]) Restart(id uint64) {
	c.t.Helper()
	m := c.member(id)
	m.life.Lock()
	defer m.life.Unlock()
	_ = c.downLocked(m, true)
	if err := c.open(m); err != nil {
		c.t.Fatalf("millracetest: node %d does not open again: %v", id, err)
	}
	c.notify()
}

// Wipe kills a node and gives it an empty disk, as an operator does who replaces a broken one and forgets to
// replace the id. After Restart the others refuse it, because it has forgotten its votes: it applies nothing,
// and does not count. The files of a durable machine are for newMachine to delete. It fails the test if there
// is no node with this id.
func (c *Cluster[C, R]) Wipe(id uint64) {
	c.t.Helper()
	m := c.member(id)
	m.life.Lock()
	defer m.life.Unlock()
	_ = c.downLocked(m, true)
	if err := m.disk.wipe(); err != nil {
		c.t.Fatalf("millracetest: the disk of node %d cannot be wiped: %v", id, err)
	}
}

// Cut cuts the link between two nodes, in both directions. It fails the test if there is no node with one of
// these ids.
func (c *Cluster[C, R]) Cut(a, b uint64) {
	c.t.Helper()
	c.link(c.member(a).id, c.member(b).id, true)
	c.notify()
}

// Isolate cuts all links of a node. It fails the test if there is no node with this id.
func (c *Cluster[C, R]) Isolate(id uint64) {
	c.t.Helper()
	c.member(id)
	for _, other := range c.members {
		if other.id != id {
			c.link(id, other.id, true)
		}
	}
	c.notify()
}

// Heal mends all links.
func (c *Cluster[C, R]) Heal() {
	for i, a := range c.members {
		for _, b := range c.members[:i] {
			c.link(a.id, b.id, false)
		}
	}
	c.notify()
}

// link cuts or mends a link, in both directions.
func (c *Cluster[C, R]) link(a, b uint64, cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, way := range [][2]uint64{{a, b}, {b, a}} {
		if c.cut[way] = cut; cut {
			c.net.Cut(way[0], way[1])
		} else {
			c.net.Heal(way[0], way[1])
		}
	}
}
