package host

import (
	"context"
	"testing"

	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/transport"
)

// A member has received a snapshot, and no leader is there for which it could install it. It takes one of its
// own, which is older. The one that it received must not displace it: only the older one fits the log.
func TestATakeBehindAReceivedSnapshot(t *testing.T) {
	c := newInstallCluster(t, 11)
	c.change1 = func(config *Config) { config.SnapshotBytesPerSecond = 256 << 10 }
	c.start()
	h := c.hosts[2]
	c.load("the log is compacted", 2, func() bool { return h.group.storage.log.FirstIndex() > 1 })
	c.isolate(3)
	c.load("log grows", 2, func() bool { return c.isBeyond(3) })
	c.heal()
	c.load("it receives", 0, func() bool { return len(h.process.transfers.in) > 0 })
	c.change = func(p *parcel) {
		if aboutSnapshots := len(p.body) > 0 && isSnapshotRecord(p.body); (p.to == 3 || p.from == 3) && p.kind != transport.Bulk && !aboutSnapshots {
			p.batch, p.body = nil, nil
		}
	}
	c.load("it has the snapshot and no leader", 0, func() bool {
		return count[SnapshotReceived](h) > 0 && h.group.Status().Leader == raft.None
	})
	taking := h.group.StartSnapshot()
	c.load("it takes one", 0, func() bool {
		_, done, _ := taking.Poll()
		return done
	})
	info, _, err := taking.Poll()
	if err != nil || count[SnapshotInstalled](h) > 0 || info.Index >= h.group.installs.received.Load().id.Index {
		t.Fatalf("setup: %+v, %v; %s", info, err, c.describe())
	}
	h.group.Close(gone(t))
	h.manual.runIdle()
	if err := h.group.Close(gone(t)); err != nil {
		t.Fatal(err)
	}
	h.machine = &slots{}
	h.group, err = h.process.OpenGroup(context.Background(), GroupConfig{ID: theGroup, Snapshots: SnapshotPolicy{LogBytes: 1 << 20}}, Commands(h.machine, CommandOptions{}))
	if err != nil {
		t.Fatal(err)
	}
	c.change = nil
	c.load("all are equal", 0, c.equal)
}
