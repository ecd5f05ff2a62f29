package millrace

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/vfs/crashfs"
)

var us = identity{Version: 1, Cluster: 4, ID: 1, Voters: []uint64{1, 2, 3}}

func claimed(t *testing.T) *crashfs.FS {
	t.Helper()
	disk := crashfs.New()
	if err := claimDirectory(disk, "/data/1", us); err != nil {
		t.Fatal(err)
	}
	return disk
}

// A directory is claimed once, durably, and only by the same host of the same cluster with the same voters.
func TestIdentity(t *testing.T) {
	disk := claimed(t).Image(crashfs.LoseAll, nil)
	if err := claimDirectory(disk, "/data/1", us); err != nil {
		t.Errorf("the owner is refused: %v", err)
	}
	for _, row := range []struct {
		change func(*identity)
		want   string
	}{
		{func(i *identity) { i.ID = 2 }, "belongs to host 1 of cluster 4, not to host 2 of cluster 4"},
		{func(i *identity) { i.Cluster = 5 }, "belongs to host 1 of cluster 4, not to host 1 of cluster 5"},
		{func(i *identity) { i.Voters = []uint64{1, 2} }, "was made for voters [1 2 3], Config.Peers names [1 2]"},
		{func(i *identity) { i.Voters = []uint64{1, 2, 4} }, "was made for voters [1 2 3], Config.Peers names [1 2 4]"},
		{func(i *identity) { i.Version = 2 }, "has version 1; this program reads version 2"},
	} {
		other := us
		row.change(&other)
		err := claimDirectory(disk, "/data/1", other)
		if err == nil || !strings.Contains(err.Error(), row.want) || !strings.Contains(err.Error(), "/data/1") {
			t.Errorf("got %v, want %q", err, row.want)
		}
		if err := claimDirectory(disk, "/data/1", us); err != nil {
			t.Errorf("after a refusal the owner is refused: %v", err)
		}
	}
}

// A file that cannot be read is never replaced by a new one.
func TestIdentityDamaged(t *testing.T) {
	for _, contents := range []string{"", "{", "garbage", "[1]", strings.Repeat("x", 1<<20+1)} {
		disk := crashfs.New()
		if err := disk.MkdirAll("/data/1"); err != nil {
			t.Fatal(err)
		}
		f, err := disk.Create("/data/1/" + identityFile)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt([]byte(contents), 0); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := claimDirectory(disk, "/data/1", us); err == nil || !strings.Contains(err.Error(), identityFile) {
				t.Errorf("%.10q: %v", contents, err)
			}
		}
	}
}

// The power fails at each operation in turn, and the disk keeps what it likes: the next start finds no file, or the whole.
func TestIdentitySurvivesCrashes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, loss := range []crashfs.Loss{crashfs.LoseAll, crashfs.LoseSome, crashfs.LoseNothing} {
		for round := range 20 {
			for n := 1; ; n++ {
				disk, left := crashfs.New(), n
				disk.SetHook(func(crashfs.Op) error {
					if left--; left == 0 {
						disk.Crash(loss, rng.Uint64)
					}
					return nil
				})
				err := claimDirectory(disk.Mount(), "/data/1", us)
				disk.SetHook(nil)
				if err == nil && left > 0 {
					break // it was done before the power failed
				}
				if err == nil {
					t.Fatal("claimed by a process that is dead")
				}
				for _, id := range []identity{us, us} { // again, and once more as on any start
					if err := claimDirectory(disk.Mount(), "/data/1", id); err != nil {
						t.Fatalf("round %d, %v at operation %d: %v", round, loss, n, err)
					}
				}
				if err := claimDirectory(disk.Image(crashfs.LoseAll, nil), "/data/1", identity{Version: 1, ID: 9}); err == nil {
					t.Fatalf("%v at operation %d: the claim is not durable", loss, n)
				}
			}
		}
	}
}

// A disk that refuses is reported, with the file's name, and what it refused can be done later.
func TestIdentityDiskErrors(t *testing.T) {
	refused := errors.New("refused")
	for _, kind := range []crashfs.OpKind{crashfs.OpMkdir, crashfs.OpCreate, crashfs.OpWrite, crashfs.OpSync, crashfs.OpRename, crashfs.OpSyncDir} {
		disk := crashfs.New()
		disk.SetHook(crashfs.FailNth(kind, 1, refused))
		if err := claimDirectory(disk, "/data/1", us); !errors.Is(err, refused) || !strings.Contains(fmt.Sprint(err), "/data/1") {
			t.Errorf("%v: %v", kind, err)
		}
		disk.SetHook(nil)
		if err := claimDirectory(vfs.FS(disk), "/data/1", us); err != nil {
			t.Errorf("%v, and then: %v", kind, err)
		}
	}
}
