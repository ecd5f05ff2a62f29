package host

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/millrace/millrace/host/internal/identity"
	"github.com/millrace/millrace/internal/scratch"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal"
)

// us is the configuration of host 1 of a cluster.
func us() Config {
	return Config{ID: 1, Cluster: 4, Dir: "/data/1", Members: map[uint64]string{1: "a", 2: "b", 3: "c"}, SegmentBytes: 4 << 10}
}

// A host introduces itself with the address on which its transport listens.
func TestIntroductionNamesTheAddress(t *testing.T) {
	h, err := Open(t.Context(), Config{ID: 1, Dir: scratch.Dir(t), Members: map[uint64]string{1: "127.0.0.1:0"}}, WithLogger(quiet))
	if err != nil {
		t.Fatal(err)
	}
	if introduced := (*inbound)(h).Introduce(); introduced.Addr != h.Addr() || h.Addr() == "" {
		t.Errorf("a host that listens on %q introduces itself as %+v", h.Addr(), introduced)
	}
	if err := h.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

// start opens a host with theGroup on a disk, in an environment in which nothing happens by itself.
func start(disk vfs.FS, c Config) (*Host, *manualEnv, error) {
	s := &manualEnv{}
	h, err := openOne(c, &commands{}, WithEnv(s.env()), WithFS(disk), WithTransport(&recordingTransport{}), WithLogger(quiet))
	return h, s, err
}

// visit opens a host and closes it again.
func visit(disk vfs.FS, c Config) error {
	h, _, err := start(disk, c)
	if err != nil {
		return err
	}
	return h.Close(context.Background())
}

// vote gives the host of a disk a term, so that it has promised something.
func vote(t *testing.T, disk vfs.FS, c Config) {
	t.Helper()
	h, s, err := start(disk, c)
	if err != nil {
		t.Fatal(err)
	}
	request := raftpb.Message{Type: raftpb.MsgVote, From: 3, To: c.ID, Term: 5, Index: 1, LogTerm: 1}
	for _, id := range h.others() {
		meet(t, h, id)
	}
	(*inbound)(h).Receive(3, []transport.Envelope{{Group: theGroup, Message: request}})
	s.runIdle()
	if h.Group(theGroup).Status().Term != 5 {
		t.Fatalf("the host did not take term 5: %+v", h.Group(theGroup).Status())
	}
	if err := h.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// A directory of a host that has promised something belongs to the same host of the same cluster with the
// same members, durably.
func TestIdentity(t *testing.T) {
	disk := crashfs.New()
	vote(t, disk, us())
	disk = disk.Image(crashfs.LoseAll, nil)
	if err := visit(disk, us()); err != nil {
		t.Errorf("the owner is refused: %v", err)
	}
	moved := us()
	moved.Members = map[uint64]string{1: "a", 2: "elsewhere", 3: "c"}
	if err := visit(disk, moved); err != nil {
		t.Errorf("the owner is refused after a peer has moved: %v", err)
	}
	for _, row := range []struct {
		change func(*Config)
		want   string
	}{
		{func(c *Config) { c.ID = 2 }, "belongs to host 1, Config.ID is 2"},
		{func(c *Config) { c.Cluster = 5 }, "belongs to cluster 4, Config.Cluster is 5"},
		{func(c *Config) { c.Cluster = 0 }, "belongs to cluster 4, Config.Cluster is 0; set it to 4"},
	} {
		other := us()
		row.change(&other)
		before := disk.Image(crashfs.LoseNothing, nil)
		err := visit(disk, other)
		if err == nil || !strings.Contains(err.Error(), row.want) || !strings.Contains(err.Error(), "/data/1") {
			t.Errorf("got %v, want %q", err, row.want)
		}
		if a, b := filesOf(t, before), filesOf(t, disk); !slices.Equal(a, b) {
			t.Errorf("%s: refused, but the disk has changed:\n%q\n%q", row.want, a, b)
		}
	}
	if err := visit(disk, us()); err != nil {
		t.Errorf("after the refusals the owner is refused: %v", err)
	}
}

// filesOf lists the host's files with their contents.
func filesOf(t *testing.T, disk vfs.FS) (files []string) {
	t.Helper()
	for _, dir := range []string{"/data/1", "/data/1/log"} {
		names, err := disk.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			f, err := disk.Open(dir + "/" + name)
			if err != nil {
				continue // a directory
			}
			size, err := f.Size()
			if err != nil {
				t.Fatal(err)
			}
			b := make([]byte, size)
			if _, err := f.ReadAt(b, 0); err != nil && size > 0 {
				t.Fatal(err)
			}
			files = append(files, fmt.Sprintf("%s %d bytes %08x", name, size, crc32.ChecksumIEEE(b)))
			f.Close()
		}
	}
	return files
}

// The cluster's number is derived at the first start and never again: the addresses it is derived from may
// change later.
func TestDerivedClusterStays(t *testing.T) {
	disk, c := crashfs.New(), us()
	c.Cluster = 0
	introduced := func() transport.Introduction {
		h, _, err := start(disk, c)
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close(context.Background())
		return (*inbound)(h).Introduce()
	}
	vote(t, disk, c)
	first := introduced()
	c.Members[2] = "elsewhere"
	second := introduced()
	if first.Cluster == 0 || !first.Derived || second.Cluster != first.Cluster || !slices.Equal(first.Members, second.Members) {
		t.Errorf("cluster %d of %v became %d of %v", first.Cluster, first.Members, second.Cluster, second.Members)
	}
	if first.Incarnation != second.Incarnation || second.Generation <= first.Generation {
		t.Errorf("incarnation %v in life %d became %v in life %d", first.Incarnation, first.Generation, second.Incarnation, second.Generation)
	}
	if id := logID(t, disk); first.Incarnation != id {
		t.Errorf("the host introduces itself as incarnation %v, its log is %v", first.Incarnation, id)
	}
	c.Cluster = first.Cluster + 1
	if err := visit(disk, c); err == nil {
		t.Error("a number that was derived was replaced by a configured one")
	}
}

// Different founding lists have different numbers.
func TestDeriveCluster(t *testing.T) {
	seen := map[uint64][]transport.Member{}
	for _, list := range [][]transport.Member{
		{{ID: 1, Addr: "a:1"}}, {{ID: 2, Addr: "a:1"}}, {{ID: 1, Addr: "a:2"}}, {{ID: 1, Addr: "a:1"}, {ID: 2, Addr: "b:1"}},
		{{ID: 1, Addr: "b:1"}, {ID: 2, Addr: "a:1"}}, {{ID: 1, Addr: ""}, {ID: 2, Addr: ""}},
	} {
		n := identity.DeriveCluster(list)
		if other, twice := seen[n]; twice || n == 0 {
			t.Errorf("%v and %v have the number %d", list, other, n)
		}
		seen[n] = list
	}
}

// A log that was deleted is not made again under its identity: the host would come back under its id without
// its votes.
func TestIdentityWithoutItsLog(t *testing.T) {
	disk := crashfs.New()
	vote(t, disk, us())
	names, err := disk.ReadDir("/data/1/log")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if err := disk.Remove("/data/1/log/" + name); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := visit(disk, us()); err == nil || !strings.Contains(err.Error(), "its log is missing") {
			t.Errorf("got %v", err)
		}
	}
}

// An identity counts only beside the log that it names: the log of another directory, used or new, is
// refused with both ids, and nothing is written.
func TestIdentityBesideAnotherLog(t *testing.T) {
	for name, votes := range map[string]bool{"a log with a vote": true, "a log that was just made": false} {
		disk, other := crashfs.New(), crashfs.New()
		vote(t, disk, us())
		if votes {
			vote(t, other, us())
		} else if err := visit(other, us()); err != nil {
			t.Fatal(err)
		}
		own, foreign := logID(t, disk), logID(t, other)
		if own == foreign {
			t.Fatal("two directories have one incarnation")
		}
		if err := other.Remove("/data/1/" + identity.File); err != nil {
			t.Fatal(err)
		}
		put(t, other, identity.File, contentsOf(t, disk, identity.File)) // the same as a log that is put beside it
		before := filesOf(t, other)
		for range 2 {
			err := visit(other, us())
			if err == nil || !strings.Contains(err.Error(), own.String()) || !strings.Contains(err.Error(), foreign.String()) {
				t.Errorf("%s: %v, want a sentence with both logs", name, err)
			}
		}
		corrected := us()
		corrected.Members[2] = "elsewhere"
		corrected.ID = 3
		if err := visit(other, corrected); err == nil {
			t.Errorf("%s: a corrected configuration takes a log that the identity does not name", name)
		}
		if after := filesOf(t, other); !slices.Equal(before, after) {
			t.Errorf("%s: refused, but the disk has changed:\n%q\n%q", name, before, after)
		}
	}
}

func logID(t *testing.T, disk vfs.FS) transport.Incarnation {
	t.Helper()
	id, err := wal.ReadID(disk, "/data/1/log")
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func contentsOf(t *testing.T, disk vfs.FS, name string) string {
	t.Helper()
	f, err := disk.Open("/data/1/" + name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, size)
	if _, err := f.ReadAt(b, 0); err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// A log with a term or an entry is not given to any host without its identity.
func TestLogWithoutItsIdentity(t *testing.T) {
	disk := crashfs.New()
	vote(t, disk, us())
	if err := disk.Remove("/data/1/" + identity.File); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := visit(disk, us()); err == nil || !strings.Contains(err.Error(), "restore that file") {
			t.Errorf("got %v", err)
		}
	}
}

// A file that cannot be read, or that has another version, is never replaced by a new one.
func TestIdentityDamaged(t *testing.T) {
	for contents, want := range map[string]string{
		"": "the file is damaged", "{": "the file is damaged", "garbage": "the file is damaged", "[1]": "the file is damaged", strings.Repeat("x", 1<<20+1): "the file is damaged",
		`{"version":1,"cluster":4,"id":1,"voters":[1,2,3]}`: "has version 1, this program supports only version 3, and there is no migration",
		`{"version":2,"cluster":4,"id":1,"directory":"00"}`: "has version 2, this program supports only version 3",
		`{"version":4}`: "has version 4",
	} {
		disk := crashfs.New()
		put(t, disk, identity.File, contents)
		for range 2 {
			if err := visit(disk, us()); err == nil || !strings.Contains(err.Error(), identity.File) || !strings.Contains(err.Error(), want) {
				t.Errorf("%.10q: %v, want %q", contents, err, want)
			}
		}
	}
}

// put writes a file into the directory of us.
func put(t *testing.T, disk vfs.FS, name, contents string) {
	t.Helper()
	if err := disk.MkdirAll("/data/1"); err != nil {
		t.Fatal(err)
	}
	f, err := disk.Create("/data/1/" + name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte(contents), 0); err != nil {
		t.Fatal(err)
	}
}

// The power fails at each operation of a first start, and of a start that corrects an earlier one, with any
// loss. The next start finds no identity, the old one or the new one, and always a directory that it can use.
func TestIdentitySurvivesCrashes(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine recovers hundreds of disks")
	}
	corrected := us()
	corrected.ID, corrected.Members[2] = 2, "elsewhere"
	for name, prepare := range map[string]func(*crashfs.FS) error{
		"first start": func(*crashfs.FS) error { return nil },
		"correction":  func(disk *crashfs.FS) error { return visit(disk, us()) },
	} {
		rng := rand.New(rand.NewPCG(1, 2))
		for _, loss := range []crashfs.Loss{crashfs.LoseAll, crashfs.LoseSome, crashfs.LoseNothing} {
			operations := 0
			for n := 1; ; n++ {
				disk, left := crashfs.New(), n
				if err := prepare(disk); err != nil {
					t.Fatal(err)
				}
				disk.SetHook(func(crashfs.Op) error {
					if left--; left == 0 {
						disk.Crash(loss, rng.Uint64)
					}
					return nil
				})
				h, _, err := start(disk.Mount(), corrected)
				disk.SetHook(nil)
				if err == nil && left > 0 {
					operations = n
					h.Close(context.Background())
					break // it was open before the power failed
				}
				if err == nil {
					t.Fatal("opened by a process that is dead")
				}
				for range 2 { // again, and once more as on any start
					if err := visit(disk.Mount(), corrected); err != nil {
						t.Fatalf("%s, %v at operation %d: %v", name, loss, n, err)
					}
				}
				if _, named, err := identity.Read(disk, "/data/1"); err != nil || !named {
					t.Fatalf("%s, %v at operation %d: no identity: %v", name, loss, n, err)
				}
				vote(t, disk.Mount(), corrected)
				if err := visit(disk.Image(crashfs.LoseAll, nil), us()); err == nil {
					t.Fatalf("%s, %v at operation %d: the identity is not durable", name, loss, n)
				}
			}
			if operations < 15 {
				t.Errorf("%s: only %d operations were interrupted", name, operations)
			}
		}
	}
}

// A refusal of the disk is reported with the file's name, and the refused step can be repeated later.
func TestIdentityDiskErrors(t *testing.T) {
	refused := errors.New("refused")
	for _, kind := range []crashfs.OpKind{crashfs.OpMkdir, crashfs.OpCreate, crashfs.OpWrite, crashfs.OpSync, crashfs.OpRename, crashfs.OpSyncDir} {
		for nth := 1; nth < 8; nth++ {
			disk := crashfs.New()
			disk.SetHook(crashfs.FailNth(kind, nth, refused))
			err := visit(disk, us())
			disk.SetHook(nil)
			if err == nil {
				break
			}
			if !errors.Is(err, refused) || !strings.Contains(fmt.Sprint(err), "/data/1") {
				t.Errorf("%v %d: %v", kind, nth, err)
			}
			if err := visit(disk, us()); err != nil {
				t.Errorf("%v %d, and then: %v", kind, nth, err)
			}
		}
	}
}

// A host does not start without its identity on the disk: no error of its file is passed over.
func TestIdentityMustBeWritten(t *testing.T) {
	refused := errors.New("refused")
	for _, kind := range []crashfs.OpKind{crashfs.OpCreate, crashfs.OpWrite, crashfs.OpSync, crashfs.OpRename} {
		disk := crashfs.New()
		failed := 0
		disk.SetHook(func(op crashfs.Op) error {
			if op.Kind == kind && strings.HasPrefix(filepath.Base(op.Name), identity.File) {
				failed++
				return refused
			}
			return nil
		})
		if err := visit(disk, us()); failed == 0 || !errors.Is(err, refused) {
			t.Errorf("%v of the identity failed %d times, and the start returned %v, want %v", kind, failed, err, refused)
		}
	}
}

// A second process on a directory, new or not, is refused before it writes anything.
func TestSecondProcessWritesNothing(t *testing.T) {
	disk := crashfs.New()
	first, _, err := start(disk, us())
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close(context.Background())
	other := us()
	other.ID = 2
	for _, c := range []Config{us(), other} {
		disk.SetHook(func(op crashfs.Op) error {
			if op.Kind != crashfs.OpMkdir && op.Kind != crashfs.OpLock {
				t.Errorf("the second process does %v %s", op.Kind, op.Name)
			}
			return nil
		})
		if err := visit(disk, c); !errors.Is(err, vfs.ErrLocked) {
			t.Errorf("got %v", err)
		}
		disk.SetHook(nil)
	}
}

// A first start that fails because its port is taken has not taken the directory: another start may have
// another list of hosts.
func TestAStartThatFailsOwnsNothing(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	disk := crashfs.New()
	open := func(peers map[uint64]string) error {
		s := &manualEnv{}
		h, err := Open(t.Context(), Config{ID: 1, Dir: "data", Members: peers, SegmentBytes: 4 << 10}, WithEnv(s.env()), WithFS(disk), WithLogger(quiet))
		if err != nil {
			return err
		}
		return h.Close(context.Background())
	}
	if err := open(map[uint64]string{1: taken.Addr().String(), 2: "127.0.0.1:9"}); !errors.Is(err, syscall.EADDRINUSE) {
		t.Fatal(err)
	}
	if err := open(map[uint64]string{1: "127.0.0.1:0"}); err != nil {
		t.Errorf("the next start: %v", err)
	}
}
