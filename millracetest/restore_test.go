package millracetest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/rescue"
	"github.com/millrace/millrace/transport/loopback"
	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/vfs/crashfs"
)

// Backup and restore through the typed face: a cluster is exported while it runs, and another one begins with
// what it had.

// restoredPeers are the hosts of the new cluster: other ids and other addresses.
func restoredPeers() map[uint64]string { return map[uint64]string{4: "new-4", 5: "new-5", 6: "new-6"} }

func restoredConfig(id uint64) host.Config {
	return host.Config{ID: id, Dir: "data", Members: restoredPeers(), HeartbeatInterval: 20 * time.Millisecond, ElectionTimeout: 200 * time.Millisecond,
		SegmentBytes: 1 << 20, MemoryBytes: 64 << 20}
}

func quiet() host.Option { return host.WithLogger(slog.New(slog.DiscardHandler)) }

// restoredNode opens a host on a disk, and its node.
func restoredNode(t *testing.T, net *loopback.Network, disk *crashfs.FS, c host.Config) (*host.Host, *counter, *millrace.Node[int64, int64]) {
	t.Helper()
	tr := net.Host(c.ID)
	for peer, addr := range c.Members {
		tr.SetPeer(peer, addr)
	}
	h, err := host.Open(deadline(t), c, host.WithFS(disk.Mount()), host.WithTransport(tr), quiet())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close(context.Background()) }) // it may be closed already
	m := &counter{}
	n, err := millrace.OpenGroup(deadline(t), h, millrace.GroupConfig{ID: 1, Snapshots: millrace.SnapshotPolicy{LogBytes: 2 << 10, KeepBytes: 1}}, millrace.InMemory(m, millrace.Binary[int64]()))
	if err != nil {
		t.Fatal(err)
	}
	return h, m, n
}

// exported returns the archive of a cluster whose counter is 1001, with the session of its last command.
func exported(t *testing.T) (archive []byte, session millrace.SessionID, old *counters) {
	t.Helper()
	old = newCounters(t)
	leader := old.Leader(deadline(t))
	old.propose(leader, 1)
	old.read(leader, millrace.Linearizable)
	session = old.Node(leader).NewSession().ID()
	if _, err := old.Node(leader).Propose(deadline(t), 1000, millrace.InSession(millrace.SessionMark{Session: session, Number: 1})); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	info, err := old.Node(leader).Export(deadline(t), &b)
	if err != nil || info.Index == 0 {
		t.Fatalf("%+v, %v", info, err)
	}
	old.propose(leader, 1_000_000) // it is not in the archive
	return b.Bytes(), session, old
}

func restoreOn(disk vfs.FS, c host.Config, archives ...[]byte) (rescue.Restoration, error) {
	var readers []io.Reader
	for _, a := range archives {
		readers = append(readers, bytes.NewReader(a))
	}
	return rescue.Restore(context.Background(), c, readers, rescue.Options{FS: disk, Logger: slog.New(slog.DiscardHandler)})
}

// A new cluster has the values and the sessions of the old one, and goes on by itself: through restarts, and
// with logs that forget.
func TestANewClusterBeginsFromAnArchive(t *testing.T) {
	archive, session, _ := exported(t)
	net, disks, hosts := loopback.NewNetwork(), map[uint64]*crashfs.FS{}, map[uint64]*host.Host{}
	nodes, machines := map[uint64]*millrace.Node[int64, int64]{}, map[uint64]*counter{}
	clusters := map[uint64]bool{}
	for id := range restoredPeers() {
		disks[id] = crashfs.New()
		done, err := restoreOn(disks[id].Mount(), restoredConfig(id), archive)
		if err != nil {
			t.Fatal(err)
		}
		clusters[done.Cluster] = true
		if len(done.Groups) != 1 || done.Groups[0].FromCluster == done.Cluster {
			t.Fatalf("%+v", done)
		}
	}
	if len(clusters) != 1 {
		t.Fatalf("the hosts are of clusters %v, want one", clusters)
	}
	want := int64(1001)
	for round := range 3 {
		for id := range disks {
			hosts[id], machines[id], nodes[id] = restoredNode(t, net, disks[id], restoredConfig(id))
		}
		for id, n := range nodes {
			if _, err := n.Propose(deadline(t), 1000, millrace.InSession(millrace.SessionMark{Session: session, Number: 1})); !errors.Is(err, millrace.ErrAlreadyApplied) {
				t.Fatalf("round %d: node %d, which gets a command for the second time: %v", round, id, err)
			}
			for range 100 {
				if _, err := n.Propose(deadline(t), 1); err != nil {
					t.Fatalf("round %d: node %d: %v", round, id, err)
				}
				want++
			}
			if err := n.View(deadline(t), millrace.Linearizable, func(millrace.ReadAt) error {
				if have := machines[id].value(); have != want {
					return fmt.Errorf("it has %d, want %d", have, want)
				}
				return nil
			}); err != nil {
				t.Fatalf("round %d: node %d: %v", round, id, err)
			}
		}
		for _, h := range hosts {
			if err := h.Close(deadline(t)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// What cannot be restored is refused with a sentence, and nothing else is written.
func TestRestoreRefuses(t *testing.T) {
	archive, _, old := exported(t)
	refused := func(disk vfs.FS, c host.Config, want string, archives ...[]byte) {
		t.Helper()
		if _, err := restoreOn(disk, c, archives...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want one that contains %q", err, want)
		}
	}
	refused(crashfs.New().Mount(), restoredConfig(4), "needs an archive")
	refused(crashfs.New().Mount(), restoredConfig(4), "one for each group", archive, archive)
	used := crashfs.New()
	if _, err := restoreOn(used.Mount(), restoredConfig(4), archive); err != nil {
		t.Fatal(err)
	}
	refused(used.Mount(), restoredConfig(4), "is not new", archive)

	damaged := bytes.Clone(archive)
	damaged[len(damaged)-40] ^= 1
	disk := crashfs.New()
	refused(disk.Mount(), restoredConfig(4), "remove it, and restore again", damaged)
	refused(disk.Mount(), restoredConfig(4), "is not new", archive)
	c := restoredConfig(4)
	if _, err := host.Open(deadline(t), c, host.WithFS(disk.Mount()), host.WithTransport(loopback.NewNetwork().Host(4)), quiet()); err == nil || !strings.Contains(err.Error(), "has not ended") {
		t.Errorf("a host opens on a part of a restore: %v", err)
	}

	// The number of the old cluster, given by hand.
	done, err := restoreOn(crashfs.New().Mount(), restoredConfig(4), archive)
	if err != nil {
		t.Fatal(err)
	}
	c.Cluster = done.Groups[0].FromCluster
	refused(crashfs.New().Mount(), c, "a restore makes a new cluster", archive)

	// Other archives and other members make other clusters, and so refuse each other.
	var b bytes.Buffer
	if _, err := old.Node(old.Leader(deadline(t))).Export(deadline(t), &b); err != nil {
		t.Fatal(err)
	}
	other, err := restoreOn(crashfs.New().Mount(), restoredConfig(4), b.Bytes())
	if err != nil || other.Cluster == done.Cluster {
		t.Errorf("with another archive: %+v, %v", other, err)
	}
	c = restoredConfig(4)
	c.Members[6] = "another"
	if other, err = restoreOn(crashfs.New().Mount(), c, archive); err != nil || other.Cluster == done.Cluster {
		t.Errorf("with another address: %+v, %v", other, err)
	}
}

// A crash before any operation of a restore leaves a directory that is as new, one that Open refuses, or a
// whole one.
func TestACrashInARestore(t *testing.T) {
	archive, _, _ := exported(t)
	solo := restoredConfig(4)
	solo.Members = map[uint64]string{4: "new-4"}
	disk, ends := crashfs.New(), map[string]int{}
	images := imagesOf(disk, 6)
	if _, err := restoreOn(disk.Mount(), solo, archive); err != nil {
		t.Fatal(err)
	}
	disk.SetHook(nil)
	for _, l := range images.all {
		ends[judgeRestored(t, l.when, l.image, solo, archive)]++
	}
	for d, image := range disk.Images(6, 1) {
		if end := judgeRestored(t, fmt.Sprintf("the end, %v", d), image, solo, archive); end != "whole" {
			t.Errorf("after the restore: %s", end)
		}
	}
	if ends["new"] == 0 || ends["refused"] == 0 {
		t.Errorf("crashes leave %v, want new and refused directories among them", ends)
	}
	t.Logf("%d operations, %v", images.ops, ends)
}

// crashImages are what crashes before each operation of a disk leave, each image once.
type crashImages struct {
	mu   sync.Mutex
	seen map[string]bool
	ops  int
	all  []crashImage
}

type crashImage struct {
	when  string
	image *crashfs.FS
}

// imagesOf collects images of a disk until its hook is removed, n an operation. A log prepares its segments
// beside its owner, so operations come from two goroutines. The images are judged afterwards.
func imagesOf(disk *crashfs.FS, n int) *crashImages {
	c := &crashImages{seen: map[string]bool{}}
	disk.SetHook(func(op crashfs.Op) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.ops++
		switch op.Kind {
		case crashfs.OpOpen, crashfs.OpRead, crashfs.OpReadDir:
			return nil
		}
		for d, image := range disk.Images(n, uint64(c.ops)) {
			if key := fmt.Sprint(image.Hash()); !c.seen[key] {
				c.seen[key] = true
				c.all = append(c.all, crashImage{fmt.Sprintf("operation %d, %v, %v", c.ops, op.Kind, d), image})
			}
		}
		return nil
	})
	return c
}

// judgeRestored says what a crash has left: a new directory, a refused one or a whole one.
func judgeRestored(t *testing.T, when string, image *crashfs.FS, c host.Config, archive []byte) string {
	t.Helper()
	_, err := restoreOn(image.Mount(), c, archive)
	end := "new"
	if err != nil {
		if !strings.Contains(err.Error(), "is not new") {
			t.Fatalf("%s: a second restore: %v", when, err)
		}
		end = "whole"
	}
	net := loopback.NewNetwork()
	h, err := host.Open(deadline(t), c, host.WithFS(image.Mount()), host.WithTransport(net.Host(c.ID)), quiet())
	if err != nil {
		if end == "new" || !strings.Contains(err.Error(), "has not ended") {
			t.Fatalf("%s: %v", when, err)
		}
		return "refused"
	}
	defer func() { _ = h.Close(context.Background()) }() // the disk goes away with it
	m := &counter{}
	n, err := millrace.OpenGroup(deadline(t), h, millrace.GroupConfig{ID: 1}, millrace.InMemory(m, millrace.Binary[int64]()))
	if err != nil {
		t.Fatalf("%s: %v", when, err)
	}
	if have, err := n.Propose(deadline(t), 1); err != nil || have != 1002 {
		t.Fatalf("%s: the counter is %d, want 1002, %v", when, have, err)
	}
	return end
}

// A host that was not restored, or is one of the old cluster, is of another cluster, and the restored ones
// refuse it.
func TestAHostThatWasNotRestoredIsRefused(t *testing.T) {
	archive, _, _ := exported(t)
	net, disk := loopback.NewNetwork(), crashfs.New()
	if _, err := restoreOn(disk.Mount(), restoredConfig(4), archive); err != nil {
		t.Fatal(err)
	}
	h, _, n := restoredNode(t, net, disk, restoredConfig(4))
	events := h.Events(deadline(t))
	restoredNode(t, net, crashfs.New(), restoredConfig(5))
	for e := range events {
		if refused, ok := e.(event.HostRefused); ok {
			if n.Group().Founding().Found {
				t.Error("the group is founded with a host that was not restored")
			}
			t.Log(refused)
			return
		}
	}
	t.Error("the host that was not restored is not refused")
}
