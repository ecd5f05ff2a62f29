package history

import (
	"context"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/scratch"
	"github.com/millrace/millrace/object/files"
	"github.com/millrace/millrace/vfs"
)

var (
	objectKills    = flag.Int("object-kills", 6, "TestObjectKills: how many processes are killed")
	objectKillSeed = flag.Uint64("object-kill-seed", 0, "TestObjectKills: of the moments and the contents; 0: drawn")
)

// TestObjectKills kills processes of examples/files in the middle of uploads. Clients put files of 64 KiB to
// 4 MiB all the time, under names that are replaced, kept or deleted, and get some. After each kill no object
// on that disk may be damaged. At the end the history of each name must be linearizable, each member must
// have what each name refers to, whole, and no disk may have anything else. What a power cut leaves is the
// subject of other tests (object/files).
func TestObjectKills(t *testing.T) {
	seed := *objectKillSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-object-kills %d -object-kill-seed %d", *objectKills, seed)
	k := startFiles(t, seed, "-snapshot-bytes", strconv.Itoa(32<<20))
	k.startClients()
	k.awaitAcks(t, 5)
	for k.kills < *objectKills {
		k.disturb(t)
		k.awaitAcks(t, 3)
	}
	k.stop()
	t.Logf("%d kills, %d of them in the middle of an upload; %d uploads from clients to the killed hosts broken off, of %d under way on all; the killed disks had %d objects in part and %d whole, none damaged",
		k.kills, k.hits, k.broken, k.underWay, k.partial, k.whole)
	t.Logf("%d puts acknowledged, %d refused, %d unknown; %d gets answered; %d names deleted", k.acked.Load(), k.refused.Load(), k.unknown.Load(), k.gets.Load(), k.deleted.Load())
	if k.hits == 0 || k.gets.Load() == 0 {
		t.Errorf("%d kills were in the middle of an upload, and %d gets were answered, want some", k.hits, k.gets.Load())
	}
	k.awaitOpen(t)
	k.deleteTemporary(t)
	want := k.readAll(t)
	k.judgeHistory(t)
	if err := k.judgeMembers(want, maxWait); err != nil {
		t.Error(err)
	}
	k.judgeDisks(t)
	t.Logf("%d names, whose objects are whole on all three members and alone on their disks", len(want))
}

// TestObjectLossIsFound: the judges of TestObjectKills reject disks from which an acknowledged object was
// taken, a disk with one object more, and the members that start on the former.
func TestObjectLossIsFound(t *testing.T) {
	k := startFiles(t, 1)
	for n := range 4 {
		if o := k.put(k.random, 0, n, fmt.Sprintf("kept-%d", n)); o.Outcome != Answered {
			t.Fatal(o)
		}
	}
	want := k.readAll(t)
	if err := k.judgeMembers(want, maxWait); err != nil {
		t.Fatal(err)
	}
	named := k.etags(t, k.hosts[0])
	for _, p := range k.hosts {
		p.terminate(t)
		if err := rejectDisk(p, named); err != nil {
			t.Fatal(err)
		}
	}
	lost := named["kept-2"]
	for _, p := range k.hosts {
		all, err := findObjects(p)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(all, func(f files.Found) bool { return hex.EncodeToString(f.Hash[:]) == lost })
		if err := os.RemoveAll(all[i].Dir); err != nil {
			t.Fatal(err)
		}
		if err := rejectDisk(p, named); err == nil || !strings.Contains(err.Error(), "kept-2") {
			t.Errorf("a disk that lacks an object: %v, want an error that says so", err)
		}
	}
	delete(named, "kept-2")
	delete(named, "kept-0")
	if err := rejectDisk(k.hosts[0], named); err == nil || !strings.Contains(err.Error(), "no name refers") {
		t.Errorf("a disk with one object more: %v, want an error that says so", err)
	}
	for _, p := range k.hosts {
		p.start(t, p.args)
	}
	if err := k.judgeMembers(want, 10*time.Second); err == nil || !strings.Contains(err.Error(), "kept-2") {
		t.Errorf("members of which none has an object: %v, want an error that says so", err)
	} else {
		t.Log(err)
	}
}

// startFiles starts three processes of examples/files.
func startFiles(t *testing.T, seed uint64, flags ...string) *filesRun {
	t.Helper()
	binary, err := buildExample("files", "")
	if err != nil {
		t.Fatal(err)
	}
	k := &filesRun{cluster: &cluster{}, seed: seed, random: rand.New(rand.NewPCG(seed, 1)), began: time.Now(), underWayOn: map[*process]int{}}
	k.http = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: fileClients}}
	dir := t.TempDir()
	for id := 1; id <= 3; id++ {
		k.hosts = append(k.hosts, &process{id: id, binary: binary, dir: filepath.Join(dir, strconv.Itoa(id)), raft: scratch.Address(t), address: scratch.Address(t)})
	}
	t.Cleanup(func() {
		k.stop()
		k.end(t)
	})
	for _, p := range k.hosts {
		p.args = append([]string{"-id", strconv.Itoa(p.id), "-dir", p.dir, "-life", "3s", "-members", list(k.hosts, func(p *process) string { return p.raft }),
			"-client-addresses", list(k.hosts, func(p *process) string { return p.address })}, flags...)
		p.start(t, p.args)
	}
	k.awaitOpen(t)
	return k
}

// disturb kills one process or all, and starts what it has killed.
func (k *filesRun) disturb(t *testing.T) {
	t.Helper()
	p := k.hosts[k.random.IntN(len(k.hosts))]
	switch k.random.IntN(6) {
	case 0: // all at once
		k.awaitUpload(p)
		for _, p := range k.hosts {
			k.killOne(t, p)
		}
		for _, p := range k.hosts {
			p.start(t, p.args)
		}
	case 1: // and again, while it fetches what it lacks
		k.awaitUpload(p)
		k.killOne(t, p)
		k.awaitAcks(t, 5)
		p.start(t, p.args)
		k.pause(500 * time.Millisecond)
		k.killOne(t, p)
		p.start(t, p.args)
	default:
		k.awaitUpload(p)
		k.killOne(t, p)
		k.pause(200 * time.Millisecond)
		p.start(t, p.args)
	}
}

// pause lets some time pass, up to most.
func (k *filesRun) pause(most time.Duration) {
	<-time.After(time.Duration(k.random.Int64N(int64(most))))
}

// awaitUpload waits until a client sends a file to a host, and then up to 100 ms. If none does, any moment
// will do.
func (k *filesRun) awaitUpload(p *process) {
	for late := time.Now().Add(5 * time.Second); time.Now().Before(late) && k.uploadsOn(p) == 0; {
		<-time.After(time.Millisecond)
	}
	k.pause(100 * time.Millisecond)
}

// killOne kills a process, counts what that has hit, and looks at its disk.
func (k *filesRun) killOne(t *testing.T, p *process) {
	t.Helper()
	on, all := k.uploadsOn(p), k.uploadsOn(k.hosts...)
	p.kill(t)
	k.kills++
	k.broken += on
	k.underWay += all
	if on > 0 {
		k.hits++
	}
	found, err := findObjects(p)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, files.ErrNoGroups) {
		return // it was killed before it had a directory
	}
	if err != nil {
		t.Fatal(err)
	}
	for i := range found {
		switch f := &found[i]; f.State {
		case files.Damaged:
			t.Errorf("host %d, after a kill: %s is damaged: %v", p.id, f.Dir, f.Damage)
		case files.Whole:
			k.whole++
		default:
			k.partial++
		}
	}
}

// findObjects returns the objects on the disk of a host that does not run, every block of which was read.
func findObjects(p *process) ([]files.Found, error) {
	all, err := files.Find(context.Background(), vfs.OS(), p.dir)
	for i := range all {
		err = errors.Join(err, all[i].Verify(context.Background()))
	}
	return all, err
}

// judgeHistory judges what the clients saw. With a stale read planted into it the history must be rejected.
func (k *filesRun) judgeHistory(t *testing.T) {
	t.Helper()
	const perName = 30 * time.Second
	h := k.recorder.History()
	t.Logf("history: %+v", h.Count())
	if err := h.Linearizable(perName); err != nil {
		t.Error(err)
	}
	if planted, err := h.WithStaleRead(k.seed); err != nil {
		t.Error(err)
	} else if planted.Linearizable(perName) == nil {
		t.Error("a history with a stale read planted into it was accepted")
	}
}

// judgeMembers says which member does not answer a name with the content that it has, after a while.
func (k *filesRun) judgeMembers(want map[string]string, wait time.Duration) error {
	late := time.Now().Add(wait)
	for _, p := range k.hosts {
		for _, name := range slices.Sorted(maps.Keys(want)) { // a member applies nothing behind an object that it lacks
			content := want[name]
			for {
				have, err := k.content(p, name, "?stale")
				if err == nil && have == content {
					break
				}
				if time.Now().After(late) {
					return fmt.Errorf("host %d answers %s with %q (%v) after %v, want the content %q, which is acknowledged", p.id, name, have, err, wait, content)
				}
				<-time.After(10 * time.Millisecond)
			}
		}
	}
	return nil
}

// judgeDisks makes all members take snapshots all the time, so that what no name refers to goes from their
// disks when its life has passed. Then it stops them, and reads all blocks.
func (k *filesRun) judgeDisks(t *testing.T) {
	t.Helper()
	for _, p := range k.hosts {
		p.terminate(t)
		p.args = append(p.args, "-snapshot-bytes", "1")
		p.start(t, p.args)
	}
	k.awaitOpen(t)
	named := k.etags(t, k.hosts[0])
	for _, p := range k.hosts {
		eventually(t, fmt.Sprintf("host %d has removed what no name refers to", p.id), func() error {
			_ = k.deleteName(k.hosts[0], "none") // a command, so that a snapshot is due
			entries, err := os.ReadDir(filepath.Join(p.dir, "groups", "1", "objects"))
			if err == nil && len(entries) != len(named) {
				err = fmt.Errorf("its disk has %d objects, want %d", len(entries), len(named))
			}
			return err
		})
	}
	for _, p := range k.hosts {
		p.terminate(t)
		if err := rejectDisk(p, named); err != nil {
			t.Error(err)
		}
	}
}

// rejectDisk says why the disk of a host that does not run has not the objects that names refer to, by their
// hashes, whole, and no other ones; or returns nil.
func rejectDisk(p *process, named map[string]string) error {
	all, err := findObjects(p)
	if err != nil {
		return err
	}
	have := map[string]bool{}
	for i := range all {
		if all[i].State != files.Whole {
			return fmt.Errorf("host %d: %s is %s (%v), want whole", p.id, all[i].Dir, all[i].State, all[i].Damage)
		}
		have[hex.EncodeToString(all[i].Hash[:])] = true
	}
	for name, hash := range named {
		if !have[hash] {
			return fmt.Errorf("host %d: its disk has not the object of %s, %s", p.id, name, hash)
		}
	}
	if len(all) != len(named) {
		return fmt.Errorf("host %d: its disk has %d objects, and there are %d names: there is one to which no name refers", p.id, len(all), len(named))
	}
	return nil
}
