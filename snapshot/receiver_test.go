package snapshot

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/vfs/crashfs"
)

// published is a disk with a snapshot of each source, and its store.
func published(t testing.TB, sources ...source) (*crashfs.FS, *Store) {
	t.Helper()
	disk := crashfs.New()
	store := openStore(t, disk)
	for _, src := range sources {
		must(t, src.take(disk, store))
	}
	return disk, store
}

func TestReceive(t *testing.T) {
	src := sample(5)
	_, sender := published(t, src)
	from := value(sender.Open(src.id))(t)
	disk := crashfs.New()
	store := openStore(t, disk)
	must(t, receive(from, store))
	if !store.Verified(src.id) {
		t.Error("received and not verified")
	}
	must(t, src.compare(store))
	must(t, src.compare(openStore(t, disk)))
	if _, err := store.Receive(context.Background(), from.Manifest()); !errors.Is(err, ErrPublished) {
		t.Error(err)
	}
	// What was received can be sent on.
	next := openStore(t, crashfs.New())
	must(t, receive(value(store.Open(src.id))(t), next))
	must(t, src.compare(next))
}

// A break loses nothing that was put, whether another Receiver of the same process continues, or one of
// the next process, or with another sender of the same snapshot.
func TestResume(t *testing.T) {
	src := sample(5)
	_, one := published(t, src)
	other := openStore(t, crashfs.New())
	from := value(one.Open(src.id))(t)
	must(t, receive(from, other))
	second := value(other.Open(src.id))(t)
	disk := crashfs.New()
	sent := 0
	for round := 0; ; round++ {
		if round > 20 {
			t.Fatal("no progress")
		}
		store := openStore(t, disk)
		if _, found := store.Unfinished(); found != (round > 0) {
			t.Fatalf("round %d: unfinished: %v", round, found)
		}
		to := value(store.Receive(context.Background(), from.Manifest()))(t)
		if len(to.Missing(1)) == 0 {
			must(t, to.Finish(context.Background()))
			must(t, to.Publish())
			must(t, src.compare(store))
			break
		}
		must(t, transfer([]*Reader{from, second}[round%2], to, 1))
		sent++
		if round%3 == 0 {
			must(t, to.Close())
			to = value(store.Receive(context.Background(), from.Manifest()))(t)
			_ = to // the process dies
		}
		disk.Crash(crashfs.LoseNothing, nil)
	}
	if want := 6; sent != want {
		t.Errorf("%d blocks were sent, want %d, each once", sent, want)
	}
}

// Parts that the receiver has in another snapshot, published or unfinished, are not asked for.
func TestUnchangedPartsAreNotSent(t *testing.T) {
	old, fresh := sample(5), sample(6)
	_, sender := published(t, old, fresh)
	disk := crashfs.New()
	store := openStore(t, disk)
	must(t, receive(value(sender.Open(old.id))(t), store))
	to := value(store.Receive(context.Background(), value(sender.Open(fresh.id))(t).Manifest()))(t)
	if have, _ := to.Progress(); have != int64(len(fresh.files[0].content)) {
		t.Errorf("%d bytes of a published snapshot are taken over, want the file's %d", have, len(fresh.files[0].content))
	}
	must(t, transfer(value(sender.Open(fresh.id))(t), to, 100))
	must(t, to.Finish(context.Background()))
	must(t, to.Close())
	// Not published. The next one is another index with the same content except for the host's block.
	third := sample(6)
	third.id.Index = 7
	third.host = []byte("other")
	_, sender = published(t, third)
	from := value(sender.Open(third.id))(t)
	to = value(store.Receive(context.Background(), from.Manifest()))(t)
	if have, want := to.Progress(); have != want {
		t.Errorf("%d bytes of an unfinished receive are taken over, want all %d", have, want)
	}
	must(t, to.Finish(context.Background()))
	must(t, to.Publish())
	must(t, third.compare(store))
	must(t, old.compare(store))
	if names := value(disk.ReadDir(testDir))(t); len(names) != 2 {
		t.Errorf("directories %v, want the unfinished one gone", names)
	}
}

// An offer with the same id and other content takes over nothing that is wrong for it, and does not change
// the files that other snapshots share with the earlier offer.
func TestAnotherOfferWithTheSameID(t *testing.T) {
	old, fresh := sample(5), sample(6)
	_, sender := published(t, old, fresh)
	disk := crashfs.New()
	store := openStore(t, disk)
	must(t, receive(value(sender.Open(old.id))(t), store))
	to := value(store.Receive(context.Background(), value(sender.Open(fresh.id))(t).Manifest()))(t)
	must(t, transfer(value(sender.Open(fresh.id))(t), to, 3))
	must(t, to.Close())

	liar := sample(9)
	liar.id = fresh.id
	liar.files[0].content = content(99, 2*BlockBytes)
	_, sender = published(t, liar)
	must(t, receive(value(sender.Open(liar.id))(t), store))
	must(t, liar.compare(store))
	must(t, old.compare(store))
}

// Put refuses what the offer does not name, and changes nothing.
func TestPutRefuses(t *testing.T) {
	src := sample(5)
	_, sender := published(t, src)
	from := value(sender.Open(src.id))(t)
	disk := crashfs.New()
	to := value(openStore(t, disk).Receive(context.Background(), from.Manifest()))(t)
	state, n := ptr(from.Manifest()).Find(KindMachine, "state")
	if n != 1 {
		t.Fatal(n)
	}
	whole := src.streams[1].content
	flipped := slices.Clone(whole)
	flipped[BlockBytes+1] ^= 1
	before := disk.Hash()
	for what, put := range map[string]func() error{
		"no such part":       func() error { return to.Put(len(from.Manifest().Parts), 0, whole) },
		"a negative part":    func() error { return to.Put(-1, 0, whole) },
		"no such block":      func() error { return to.Put(state, 3, whole[:1]) },
		"a negative block":   func() error { return to.Put(state, -1, whole[:BlockBytes]) },
		"nothing":            func() error { return to.Put(state, 0, nil) },
		"half a block":       func() error { return to.Put(state, 0, whole[:BlockBytes/2]) },
		"a block and half":   func() error { return to.Put(state, 0, whole[:BlockBytes+7]) },
		"more than there is": func() error { return to.Put(state, 1, whole) },
		"another place":      func() error { return to.Put(state, 1, whole[:BlockBytes]) },
		"another part":       func() error { return to.Put(state-1, 0, whole[:1000]) },
		"a flipped bit":      func() error { return to.Put(state, 0, flipped) },
		"a longer end":       func() error { return to.Put(state, 2, append(slices.Clone(whole[2*BlockBytes:]), 0)) },
	} {
		var wrong *BlockError
		if err := put(); !errors.As(err, &wrong) {
			t.Errorf("%s: %v", what, err)
		} else {
			t.Logf("%s: %v", what, err)
		}
	}
	if disk.Hash() != before {
		t.Error("a refused block changed the disk")
	}
	if err := to.Finish(context.Background()); !errors.Is(err, ErrIncomplete) {
		t.Error(err)
	}
	if err := to.Publish(); !errors.Is(err, ErrIncomplete) {
		t.Error(err)
	}
	must(t, to.Put(state, 0, whole))
	must(t, to.Put(state, 1, whole[BlockBytes:])) // again
	must(t, to.Abort())
	if err := to.Put(state, 0, whole); !errors.Is(err, ErrEnded) {
		t.Error(err)
	}
	if names := value(disk.ReadDir(testDir))(t); len(names) != 0 {
		t.Error(names)
	}
}

func ptr[T any](v T) *T { return &v }

// A part with forged checksums of blocks is found by its SHA-256, dropped, and asked for again: the sender's
// manifest lies, so it never ends, and nothing is published.
func TestFinishFindsForgedBlocks(t *testing.T) {
	src := sample(5)
	_, sender := published(t, src)
	from := value(sender.Open(src.id))(t)
	m := from.Manifest()
	m.Parts = slices.Clone(m.Parts)
	state, _ := m.Find(KindMachine, "state")
	m.Parts[state].SHA256[3] ^= 1
	store := openStore(t, crashfs.New())
	to := value(store.Receive(context.Background(), m))(t)
	must(t, transfer(from, to, 100))
	err := to.Finish(context.Background())
	var damage *DamageError
	if !errors.Is(err, ErrIncomplete) || !errors.As(err, &damage) {
		t.Fatal(err)
	}
	if missing := to.Missing(10); len(missing) != 1 || missing[0] != (Range{state, 0, 3}) {
		t.Errorf("missing %v", missing)
	}
	if have, want := to.Progress(); want-have != m.Parts[state].Bytes {
		t.Errorf("have %d of %d", have, want)
	}
	must(t, to.Close())
	if len(store.List()) != 0 {
		t.Error("published")
	}
}

// A full disk loses nothing: when space returns, the same Put succeeds.
func TestFullDiskWhileReceiving(t *testing.T) {
	src := sample(5)
	_, sender := published(t, src)
	from := value(sender.Open(src.id))(t)
	disk := crashfs.New()
	store := openStore(t, disk)
	disk.SetCapacity(from.manifest.Bytes() / 2)
	var space *SpaceError
	if _, err := store.Receive(context.Background(), from.Manifest()); !errors.As(err, &space) || space.Need != from.manifest.Bytes() {
		t.Fatal(err)
	}
	disk.SetCapacity(0)
	to := value(store.Receive(context.Background(), from.Manifest()))(t)
	disk.SetCapacity(disk.UsedBytes() + 2*BlockBytes)
	err := transfer(from, to, 100)
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	disk.SetCapacity(0)
	must(t, transfer(from, to, 100))
	must(t, to.Finish(context.Background()))
	must(t, to.Publish())
	must(t, src.compare(store))
}

// A part whose sync failed is written again from its first block. A failed sync of the directory ends the
// receive, and the next one begins from nothing.
func TestFailedSyncsOfAReceiver(t *testing.T) {
	src := sample(5)
	_, sender := published(t, src)
	from := value(sender.Open(src.id))(t)
	for _, kind := range []crashfs.OpKind{crashfs.OpSync, crashfs.OpSyncDir} {
		disk := crashfs.New()
		store := openStore(t, disk)
		to := value(store.Receive(context.Background(), from.Manifest()))(t)
		must(t, transfer(from, to, 100))
		disk.SetHook(crashfs.FailNth(kind, 1, syscall.EIO))
		if err := to.Finish(context.Background()); !errors.Is(err, syscall.EIO) {
			t.Fatal(err)
		}
		if kind == crashfs.OpSyncDir {
			if err := to.Put(0, 0, nil); !errors.Is(err, syscall.EIO) {
				t.Errorf("goes on after a failed sync of the directory: %v", err)
			}
			must(t, to.Close())
			to = value(store.Receive(context.Background(), from.Manifest()))(t)
			if have, _ := to.Progress(); have != 0 {
				t.Errorf("%d bytes are left of a directory in doubt", have)
			}
		} else if len(to.Missing(9)) == 0 {
			t.Error("nothing is missing after a failed sync")
		}
		must(t, transfer(from, to, 100))
		must(t, to.Finish(context.Background()))
		must(t, to.Publish())
		image := disk.Image(crashfs.LoseAll, nil)
		must(t, src.compare(openStore(t, image)))
	}
}

// Random receives against a naive twin, a set of blocks: several senders, repeats, wrong blocks, breaks,
// power cuts and full disks. Missing is always what the twin lacks, except after a power cut, and the end is
// the snapshot.
func TestRandomReceives(t *testing.T) {
	histories := 40
	if testing.Short() {
		histories = 8
	}
	for seed := range uint64(histories) {
		if err := randomReceive(t, seed); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

func randomReceive(t *testing.T, seed uint64) error {
	rng := rand.New(rand.NewPCG(seed, 3))
	src := sample(5)
	src.streams = append(src.streams, piece{KindMachine, "more", content(seed, rng.IntN(20*BlockBytes))})
	_, sender := published(t, src)
	from := value(sender.Open(src.id))(t)
	m := from.Manifest()
	disk := crashfs.New()
	store := openStore(t, disk)
	type place struct {
		part  int
		block int64
	}
	twin := map[place]bool{}
	to, err := store.Receive(context.Background(), m)
	if err != nil {
		return err
	}
	for {
		var lacks []string
		for i := range m.Parts {
			for b := range m.Parts[i].Blocks() {
				if !twin[place{i, b}] {
					lacks = append(lacks, fmt.Sprint(i, b))
				}
			}
		}
		var missing []string
		for _, run := range to.Missing(1 << 20) {
			for b := range run.Blocks {
				missing = append(missing, fmt.Sprint(run.Part, run.Block+b))
			}
		}
		if !slices.Equal(missing, lacks) {
			return fmt.Errorf("missing %v, want %v", missing, lacks)
		}
		if len(missing) == 0 {
			break
		}
		part := rng.IntN(len(m.Parts))
		if m.Parts[part].Blocks() == 0 {
			continue
		}
		block := rng.Int64N(m.Parts[part].Blocks())
		raw, err := from.ReadBlocks(part, block, rng.IntN(9)*BlockBytes)
		if err != nil {
			return err
		}
		switch rng.IntN(12) {
		case 0:
			raw[rng.IntN(len(raw))] ^= 4
			if err := to.Put(part, block, raw); err == nil {
				return errors.New("a wrong block is taken")
			}
			continue
		case 1:
			if err := to.Close(); err != nil {
				return err
			}
			if rng.IntN(2) == 0 {
				disk.Crash(crashfs.LoseNothing, nil)
				store = openStore(t, disk)
			}
			if to, err = store.Receive(context.Background(), m); err != nil {
				return err
			}
		case 2:
			disk.Crash(crashfs.LoseSome, rng.Uint64)
			store = openStore(t, disk)
			if to, err = store.Receive(context.Background(), m); err != nil {
				return err
			}
			missing := map[place]bool{}
			for _, run := range to.Missing(1 << 20) {
				for b := range run.Blocks {
					missing[place{run.Part, run.Block + b}] = true
				}
			}
			for p := range twin {
				if missing[p] {
					delete(twin, p)
				}
			}
		case 3:
			disk.SetCapacity(disk.UsedBytes() + 4096)
			err := to.Put(part, block, raw)
			disk.SetCapacity(0)
			if err != nil && !errors.Is(err, syscall.ENOSPC) {
				return err
			}
		}
		if err := to.Put(part, block, raw); err != nil {
			return err
		}
		for b := range blocksOf(int64(len(raw))) {
			twin[place{part, block + b}] = true
		}
	}
	if err := to.Finish(context.Background()); err != nil {
		return err
	}
	if err := to.Publish(); err != nil {
		return err
	}
	disk.Crash(crashfs.LoseAll, nil)
	store = openStore(t, disk)
	for _, name := range value(disk.ReadDir(filepath.Join(testDir, src.id.String())))(t) {
		if !strings.HasPrefix(name, "part-") && name != manifestFile {
			return fmt.Errorf("%s is left", name)
		}
	}
	return errors.Join(store.Verify(context.Background(), src.id), src.compare(store))
}

// Cancelling ends the long methods and loses nothing.
func TestCancel(t *testing.T) {
	src := sample(5)
	_, sender := published(t, src)
	from := value(sender.Open(src.id))(t)
	store := openStore(t, vfs.Memory())
	gone, cancel := context.WithCancelCause(context.Background())
	reason := errors.New("closed")
	cancel(reason)
	if err := sender.Verify(gone, src.id); !errors.Is(err, reason) || len(sender.List()) != 1 {
		t.Error(err)
	}
	to := value(store.Receive(context.Background(), from.Manifest()))(t)
	must(t, transfer(from, to, 100))
	if err := to.Finish(gone); !errors.Is(err, reason) {
		t.Error(err)
	}
	must(t, to.Close())
	if _, err := store.Receive(gone, from.Manifest()); !errors.Is(err, reason) {
		t.Error(err)
	}
	to = value(store.Receive(context.Background(), from.Manifest()))(t)
	if have, want := to.Progress(); have != want {
		t.Errorf("%d of %d bytes", have, want)
	}
	must(t, to.Finish(context.Background()))
	must(t, to.Publish())
	must(t, src.compare(store))
}

// A sync fails, and the process dies before it can drop the part. The kernel then takes the pages for clean:
// the next Receiver writes what it finds once more, and what it publishes survives a power cut.
func TestSyncFailsAndTheProcessDies(t *testing.T) {
	src := sample(5)
	_, sender := published(t, src)
	from := value(sender.Open(src.id))(t)
	disk := crashfs.New()
	first := openStore(t, disk)
	first.pace = paceBytes // nothing is synced before Finish
	to := value(first.Receive(context.Background(), from.Manifest()))(t)
	must(t, transfer(from, to, 100))
	disk.SetHook(crashfs.Hooks(
		crashfs.FailNth(crashfs.OpSync, 1, syscall.EIO),
		crashfs.When{Kind: crashfs.OpRemove, Nth: 1}.Call(func(crashfs.Op) { disk.Crash(crashfs.LoseNothing, nil) }),
	))
	if err := to.Finish(context.Background()); !errors.Is(err, syscall.EIO) || !errors.Is(err, crashfs.ErrCrashed) {
		t.Fatal(err)
	}
	disk.SetHook(nil)
	store := openStore(t, disk)
	must(t, receive(from, store))
	image := openStore(t, disk.Image(crashfs.LoseAll, nil))
	must(t, image.Verify(context.Background(), src.id))
	must(t, src.compare(image))
}
