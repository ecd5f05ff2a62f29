package millracetest_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/rescue"
	"github.com/millrace/millrace/transport/loopback"
	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/vfs/crashfs"
)

// Rescue through the typed face: of three hosts two are gone for good, and the third continues with its
// state, its sessions and its snapshots.

// survivor is the disk of host 4 of three, whose counter is 1 + 1000 + 40, and the session of the 1000.
func survivor(t *testing.T) (disk *crashfs.FS, cluster uint64, session millrace.SessionID) {
	t.Helper()
	net, disks, hosts := loopback.NewNetwork(), map[uint64]*crashfs.FS{}, map[uint64]*host.Host{}
	nodes := map[uint64]*millrace.Node[int64, int64]{}
	for id := range restoredPeers() {
		disks[id] = crashfs.New()
		hosts[id], _, nodes[id] = restoredNode(t, net, disks[id], restoredConfig(id))
	}
	n := nodes[4]
	propose := func(by int64, options ...millrace.ProposeOption) {
		if _, err := n.Propose(deadline(t), by, options...); err != nil {
			t.Fatal(err)
		}
	}
	propose(1)
	session = n.NewSession().ID()
	propose(1000, millrace.InSession(millrace.SessionMark{Session: session, Number: 1}))
	if _, err := n.TakeSnapshot(deadline(t)); err != nil {
		t.Fatal(err)
	}
	for range 40 {
		propose(1)
	}
	holdAll(t, hosts[4], n)
	cluster = hosts[4].Cluster()
	for _, h := range hosts {
		if err := h.Close(deadline(t)); err != nil {
			t.Fatal(err)
		}
	}
	return disks[4], cluster, session
}

// holdAll returns when the disk of a host has all that was acknowledged: the two others can be the quorum,
// and a machine in memory is ahead of the disk then.
func holdAll(t *testing.T, h *host.Host, n *millrace.Node[int64, int64]) {
	t.Helper()
	ctx := deadline(t)
	at, err := n.Read(ctx, millrace.Linearizable)
	if err != nil {
		t.Fatal(err)
	}
	for look := time.Tick(time.Millisecond); h.Group(1).Status().Durable < at.Index; <-look {
		if ctx.Err() != nil {
			t.Fatalf("the disk does not have entry %d: %+v", at.Index, h.Group(1).Status())
		}
	}
}

func rescueOn(disk vfs.FS) (*rescue.Report, error) {
	return rescue.Rescue{Dirs: []string{"data"}, Write: true, AcceptLoss: true}.Run(context.Background(), rescue.Options{FS: disk, Logger: slog.New(slog.DiscardHandler)})
}

// The rescued host has state and sessions, takes snapshots, and starts from those of before and of after. It
// needs no second rescue: it is a quorum.
func TestARescuedHostGoesOn(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine reads logs byte by byte")
	}
	disk, cluster, session := survivor(t)
	counts := int64(1041)
	for _, life := range []string{"rescued", "started again", "started once more"} {
		switch done, err := rescueOn(disk.Mount()); {
		case life != "rescued" && (!errors.Is(err, rescue.ErrNotRescued) || !strings.Contains(done.Refused[0], "has lost no majority")):
			t.Errorf("%s: a second rescue: %v, %+v", life, err, done)
		case life == "rescued" && (err != nil || done.Cluster == cluster || done.Former != cluster || done.Groups[0].Snapshot == 0):
			t.Fatalf("%s: %v, %+v", life, err, done)
		case life == "rescued":
			cluster = done.Cluster
		}
		h, _, n := restoredNode(t, loopback.NewNetwork(), disk, restoredConfig(4))
		if h.Cluster() != cluster {
			t.Errorf("%s: the host is of cluster %d, want %d", life, h.Cluster(), cluster)
		}
		counts++
		if have, err := n.Propose(deadline(t), 1); err != nil || have != counts {
			t.Fatalf("%s: the counter is %d, want %d, %v", life, have, counts, err)
		}
		if have, err := n.Propose(deadline(t), 1000, millrace.InSession(millrace.SessionMark{Session: session, Number: 1})); err == nil && have == counts+1000 {
			t.Errorf("%s: a command of before is applied twice", life)
		} else if err != nil && !errors.Is(err, millrace.ErrAlreadyApplied) {
			t.Error(err)
		}
		if life == "started again" {
			if _, err := n.TakeSnapshot(deadline(t)); err != nil {
				t.Fatal(err)
			}
		}
		if err := h.Close(deadline(t)); err != nil {
			t.Fatal(err)
		}
	}
}

// A snapshot that was received and not installed is newer than the log, and so the end of it. If it is
// damaged, the log ends where it did.
func TestAReceivedSnapshotIsRescued(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine reads logs byte by byte")
	}
	for _, damaged := range []bool{false, true} {
		net, disks, hosts := loopback.NewNetwork(), map[uint64]*crashfs.FS{}, map[uint64]*host.Host{}
		nodes := map[uint64]*millrace.Node[int64, int64]{}
		for id := range restoredPeers() {
			disks[id] = crashfs.New()
			hosts[id], _, nodes[id] = restoredNode(t, net, disks[id], restoredConfig(id))
		}
		stop := func(ids ...uint64) {
			for _, id := range ids {
				if err := hosts[id].Close(deadline(t)); err != nil {
					t.Fatal(err)
				}
			}
		}
		add := func(by int64) {
			if _, err := nodes[5].Propose(deadline(t), by); err != nil {
				t.Fatal(err)
			}
		}
		add(1)
		holdAll(t, hosts[4], nodes[4])
		stop(4)
		add(1000)
		info, err := nodes[5].TakeSnapshot(deadline(t))
		if err != nil {
			t.Fatal(err)
		}
		stop(5, 6)
		copyTree(t, disks[5].Mount(), disks[4].Mount(), "data/groups/1/snapshots", damaged)
		done, err := rescueOn(disks[4].Mount())
		if err != nil || done.Groups[0].Last == info.Index == damaged {
			t.Fatalf("damaged %t: the snapshot is of entry %d: %v, %+v", damaged, info.Index, err, done)
		}
		h, _, n := restoredNode(t, loopback.NewNetwork(), disks[4], restoredConfig(4))
		want := int64(1002)
		if damaged {
			want = 2
		}
		for range 20 { // beyond the index of the damaged one
			if have, err := n.Propose(deadline(t), 1); err != nil || have != want {
				t.Fatalf("damaged %t: the counter is %d, want %d, %v", damaged, have, want, err)
			}
			want++
		}
		if err := h.Close(deadline(t)); err != nil {
			t.Fatal(err)
		}
		h, _, n = restoredNode(t, loopback.NewNetwork(), disks[4], restoredConfig(4))
		if have, err := n.Propose(deadline(t), 1); err != nil || have != want {
			t.Fatalf("damaged %t, started again: the counter is %d, want %d, %v", damaged, have, want, err)
		}
		_ = h.Close(context.Background())
	}
}

// copyTree copies a directory of one disk to another one. With damaged, a bit of each file is another one,
// except in manifests.
func copyTree(t *testing.T, from, to vfs.FS, dir string, damaged bool) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	names, err := from.ReadDir(dir)
	must(err)
	must(to.MkdirAll(dir))
	for _, name := range names {
		path := dir + "/" + name
		if _, err := from.ReadDir(path); err == nil {
			copyTree(t, from, to, path, damaged)
			continue
		}
		in, err := from.Open(path)
		must(err)
		size, err := in.Size()
		must(err)
		content := make([]byte, size)
		_, err = in.ReadAt(content, 0)
		must(err)
		if damaged && strings.HasPrefix(name, "part-") {
			content[0] ^= 1
		}
		out, err := to.Create(path)
		must(err)
		_, err = out.WriteAt(content, 0)
		must(errors.Join(err, out.Sync(), out.Close(), in.Close()))
	}
	must(vfs.SyncDir(to, dir))
}

// A crash before any operation of a rescue leaves the directory of the old host as it was, one that Open
// refuses, or that of the rescued host. A rescue that is run again makes the rescued host of the first two.
func TestACrashInARescue(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine recovers thousands of disks")
	}
	disk, former, _ := survivor(t)
	images := imagesOf(disk, 4)
	ends := map[string]int{}
	if _, err := rescueOn(disk.Mount()); err != nil {
		t.Fatal(err)
	}
	disk.SetHook(nil)
	for i, l := range images.all {
		ends[judgeRescued(t, l.when, l.image, former, i%8 == 0)]++
	}
	for d, image := range disk.Images(4, 1) {
		if end := judgeRescued(t, fmt.Sprintf("the end, %v", d), image, former, true); end != "rescued" {
			t.Errorf("after the rescue: %s", end)
		}
	}
	if ends["old"] == 0 || ends["refused"] == 0 || ends["rescued"] == 0 {
		t.Errorf("crashes leave %v, want old, refused and rescued directories among them", ends)
	}
	t.Logf("%d operations, %v", images.ops, ends)
}

// judgeRescued says what a crash has left: the old directory, one that is refused, or the rescued one. With
// again, the rescue is run again on the old one, too.
func judgeRescued(t *testing.T, when string, image *crashfs.FS, former uint64, again bool) (end string) {
	t.Helper()
	open := func() (*host.Host, error) {
		return host.Open(deadline(t), restoredConfig(4), host.WithFS(image.Mount()), host.WithTransport(loopback.NewNetwork().Host(4)), quiet())
	}
	h, err := open()
	switch {
	case err != nil && !strings.Contains(err.Error(), "run it again"):
		t.Fatalf("%s: %v", when, err)
	case err != nil:
		end, again = "refused", true
	case h.Cluster() == former:
		end = "old"
	default:
		end = "rescued"
	}
	if err == nil {
		if err := h.Close(deadline(t)); err != nil {
			t.Fatalf("%s: %v", when, err)
		}
	}
	if !again {
		return end
	}
	if end != "rescued" {
		if done, err := rescueOn(image.Mount()); err != nil || !done.Done || done.Continues != (end == "refused") {
			t.Fatalf("%s: a second rescue of a directory that is %s: %v, %+v", when, end, err, done)
		}
	}
	h, _, n := restoredNode(t, loopback.NewNetwork(), image, restoredConfig(4))
	if h.Cluster() == former {
		t.Fatalf("%s: the host is of the old cluster", when)
	}
	if have, err := n.Propose(deadline(t), 1); err != nil || have != 1042 {
		t.Fatalf("%s: the counter is %d, want 1042, %v", when, have, err)
	}
	_ = h.Close(context.Background()) // the disk goes away with it
	return end
}
