package identity

import (
	"errors"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/millrace/millrace/transport"
	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/vfs/crashfs"
)

var quiet = slog.New(slog.DiscardHandler)

var list = []transport.Member{{ID: 1, Addr: "a:1"}, {ID: 2, Addr: "b:1"}, {ID: 3, Addr: "c:1"}}

// member is the introduction of a host of a cluster with a derived number.
func member(id uint64) transport.Introduction {
	return transport.Introduction{
		ID: id, Cluster: DeriveCluster(list), Derived: true, Incarnation: transport.Incarnation{byte(id)},
		Generation: 5, Life: 50, Addr: list[id-1].Addr, Members: list,
	}
}

func remembering(t *testing.T, disk vfs.FS, self transport.Introduction) *Admission {
	t.Helper()
	if err := disk.MkdirAll("/data/1"); err != nil {
		t.Fatal(err)
	}
	a, err := NewAdmission(disk, "/data/1", self, func(uint64) {}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestFounding(t *testing.T) {
	configured := func(change func(*transport.Introduction)) transport.Introduction {
		i := member(2)
		i.Cluster, i.Derived = 4, false
		change(&i)
		return i
	}
	elsewhere := []transport.Member{{ID: 1, Addr: "localhost:1"}, {ID: 2, Addr: "b:1"}, {ID: 3, Addr: "c:1"}}
	four := append(append([]transport.Member(nil), list...), transport.Member{ID: 4, Addr: "d:1"})
	self := configured(func(i *transport.Introduction) { i.ID = 1 })
	for _, row := range []struct {
		name       string
		self, peer transport.Introduction
		want       string
	}{
		{"the same list", member(1), member(2), ""},
		{"a derived number, an address spelled differently", member(1), func() transport.Introduction {
			i := member(2)
			i.Members, i.Cluster = elsewhere, DeriveCluster(elsewhere)
			return i
		}(), "hosts 1 and 2 were founded with different lists: host 1 with [1 at a:1, 2 at b:1, 3 at c:1], host 2 with [1 at localhost:1, 2 at b:1, 3 at c:1]"},
		{"a derived number that lies", member(1), func() transport.Introduction { i := member(2); i.Members = elsewhere; return i }(), "different lists"},
		{"a configured number, an address spelled differently", self, configured(func(i *transport.Introduction) { i.Members = elsewhere }), ""},
		{"a configured number, other ids", self, configured(func(i *transport.Introduction) { i.Members = four }), "different lists"},
		{"another configured number", self, configured(func(i *transport.Introduction) { i.Cluster = 5 }), "different clusters, 4 and 5"},
		{"derived there, configured here", self, member(2), "Config.Cluster was set at the first start of only one of them"},
		{"not in the list", self, configured(func(i *transport.Introduction) { i.ID = 9 }), "host 9 is not in its own founding list"},
	} {
		err := remembering(t, crashfs.New(), row.self).Admit(row.peer, "10.1.1.1:999", false)
		if (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v, want %q", row.name, err, row.want)
		}
	}
}

// Lives of one directory come in order. A life that cannot be the next one is refused, even after a restart
// of the host that recorded the others.
func TestLives(t *testing.T) {
	disk := crashfs.New()
	for _, row := range []struct {
		name             string
		directory        byte
		generation, life uint64
		want             string
	}{
		{"first heard", 2, 5, 50, ""},
		{"dials again", 2, 5, 50, ""},
		{"another directory", 7, 9, 90, "another directory than host 2 had before, on b:1"},
		{"an old backup", 2, 4, 40, "copy or an old backup"},
		{"a copy", 2, 5, 51, "copy or an old backup"},
		{"restarted", 2, 6, 60, ""},
		{"the life before", 2, 5, 50, "copy or an old backup"},
		{"still there", 2, 6, 60, ""},
	} {
		i := member(2)
		i.Incarnation, i.Generation, i.Life = transport.Incarnation{row.directory}, row.generation, row.life
		disk = disk.Image(crashfs.LoseAll, nil)
		err := remembering(t, disk, member(1)).Admit(i, "10.1.1.1:999", false)
		if (err == nil) != (row.want == "") || err != nil && (!strings.Contains(err.Error(), row.want) || !strings.Contains(err.Error(), "10.1.1.1:999")) {
			t.Errorf("%s: %v, want %q", row.name, err, row.want)
		}
	}
}

// The power fails at each operation while a peer is admitted for the first time: if it was admitted, it is
// recorded.
func TestAdmissionIsDurable(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, loss := range []crashfs.Loss{crashfs.LoseAll, crashfs.LoseSome, crashfs.LoseNothing} {
		for n := 1; ; n++ {
			disk, left := crashfs.New(), n
			a := remembering(t, disk.Mount(), member(1))
			if err := a.Admit(member(3), "r", false); err != nil {
				t.Fatal(err)
			}
			disk.SetHook(func(crashfs.Op) error {
				if left--; left == 0 {
					disk.Crash(loss, rng.Uint64)
				}
				return nil
			})
			err := a.Admit(member(2), "r", false)
			disk.SetHook(nil)
			if err == nil && left <= 0 {
				t.Fatal("admitted by a process that is dead")
			}
			if left > 0 {
				if err != nil {
					t.Fatal(err)
				}
				disk.Crash(crashfs.LoseAll, nil)
			}
			again := remembering(t, disk.Mount(), member(1))
			for _, id := range []uint64{2, 3} {
				wiped := member(id)
				wiped.Incarnation[15]++
				if refused := again.Admit(wiped, "r", false) != nil; !refused && (id == 3 || err == nil) {
					t.Fatalf("%v at operation %d: host %d was admitted and is forgotten", loss, n, id)
				}
			}
			if left > 0 {
				break
			}
		}
	}
}

// A new directory is not admitted if it cannot be recorded. On a full disk, or without a descriptor, a new
// life of a known directory is.
func TestAdmissionOnAFullDisk(t *testing.T) {
	for _, cause := range []error{syscall.ENOSPC, syscall.EMFILE} {
		t.Run(cause.Error(), func(t *testing.T) { admitsOnAFullDisk(t, cause) })
	}
}

func admitsOnAFullDisk(t *testing.T, cause error) {
	disk := crashfs.New()
	a := remembering(t, disk, member(1))
	if err := a.Admit(member(2), "r", false); err != nil {
		t.Fatal(err)
	}
	full := func(crashfs.Op) error { return cause }
	disk.SetHook(full)
	later := member(2)
	later.Generation, later.Life = 6, 60
	if err := a.Admit(later, "r", false); err != nil {
		t.Errorf("a new life: %v", err)
	}
	if err := a.Admit(member(2), "r", false); err == nil {
		t.Error("the life before was admitted after it")
	}
	if err := a.Admit(member(3), "r", false); err == nil || !strings.Contains(err.Error(), "host 1 cannot record the directory of host 3") {
		t.Errorf("a new directory: %v", err)
	}
	disk.SetHook(func(crashfs.Op) error { return syscall.EIO })
	later.Generation, later.Life = 7, 70
	if err := a.Admit(later, "r", false); err == nil {
		t.Error("a broken disk was taken for a full one")
	}
	disk.SetHook(nil)
	if err := a.Admit(member(3), "r", false); err != nil {
		t.Error(err)
	}
}

// A disk that hangs does not keep a restarting member away: its second attempt is admitted, and written when
// the disk answers. A host that is not known, or that has another directory, is not admitted.
func TestAdmissionOnAHungDisk(t *testing.T) {
	disk := crashfs.New()
	a := remembering(t, disk, member(1))
	if err := a.Admit(member(2), "b:999", false); err != nil {
		t.Fatal(err)
	}
	hung, release, done := make(chan struct{}, 9), make(chan struct{}), make(chan error)
	disk.SetHook(func(op crashfs.Op) error {
		if op.Kind == crashfs.OpSync {
			hung <- struct{}{}
			<-release
		}
		return nil
	})
	restarted := member(2)
	restarted.Generation, restarted.Life = 6, 60
	// whenTheyWait returns when n connections of a life wait.
	whenTheyWait := func(id uint64, n int) {
		for waits := 0; waits < n; runtime.Gosched() {
			waits = 0
			a.mu.Lock()
			for life, connections := range a.waiting {
				if life.ID == id {
					waits += connections
				}
			}
			a.mu.Unlock()
		}
	}
	go func() { done <- a.Admit(restarted, "b:1000", false) }()
	<-hung
	go func() { done <- a.Admit(restarted, "b:1001", false) }() // the other way, as always: no sign of a disk that hangs
	whenTheyWait(2, 2)
	if err := a.Admit(restarted, "b:1002", false); err != nil {
		t.Errorf("a member that comes again: %v", err)
	}
	if err := a.Admit(member(2), "b:1003", false); err == nil {
		t.Error("an earlier life is heard after a later one that is known in memory")
	}
	for range 3 {
		go func() { done <- a.Admit(member(3), "c:1000", false) }()
	}
	whenTheyWait(3, 3) // a host that was never heard waits, however often it comes
	disk.SetHook(nil)
	close(release)
	for range 5 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	later := remembering(t, disk.Image(crashfs.LoseAll, nil), member(1))
	if later.known[2].Life != 60 || later.known[3].Life != 50 {
		t.Errorf("written down: %+v", later.known)
	}
}

// Two directories of one id come at the same moment: only one of them is admitted.
func TestAdmissionOfTwoAtOnce(t *testing.T) {
	for range 20 {
		a := remembering(t, crashfs.New(), member(1))
		var both sync.WaitGroup
		admitted := make(chan byte, 10)
		for d := range byte(8) {
			both.Go(func() {
				i := member(2)
				i.Incarnation = transport.Incarnation{d}
				if a.Admit(i, "r", false) == nil {
					admitted <- d
				}
			})
		}
		both.Wait()
		if n := len(admitted); n != 1 {
			t.Fatalf("%d directories were admitted under one id", n)
		}
	}
}

func TestPeersFileDamaged(t *testing.T) {
	for contents, want := range map[string]string{"{": "the file is damaged", `{"version":9}`: "has version 9"} {
		disk := crashfs.New()
		remembering(t, disk, member(1))
		put(t, disk, PeersFile, contents)
		_, err := NewAdmission(disk, "/data/1", member(1), func(uint64) {}, quiet)
		if err == nil || !strings.Contains(err.Error(), PeersFile) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", contents, err, want)
		}
	}
}

// put writes a file into the directory.
func put(t *testing.T, disk vfs.FS, name, contents string) {
	t.Helper()
	f, err := disk.Create("/data/1/" + name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte(contents), 0); err != nil {
		t.Fatal(err)
	}
}

// Hosts with unknown ids come, one after the other. What is recorded of them is bounded.
func TestHostsThatComeAreBounded(t *testing.T) {
	a := remembering(t, crashfs.New(), member(1))
	for id := uint64(10); len(a.known) < MaxHosts-1; id++ {
		a.known[id] = PeerRecord{ID: id, Incarnation: transport.Incarnation{byte(id)}, Generation: 1, Life: id}
	}
	if err := a.Admit(member(3), "r", false); err != nil {
		t.Fatal(err)
	}
	if err := a.Admit(member(2), "r", false); !errors.Is(err, ErrTooManyHosts) {
		t.Errorf("a host more than can be known: %v", err)
	}
	if err := a.Admit(member(3), "r", false); err != nil {
		t.Errorf("a host that is known is refused: %v", err)
	}
}

// Every introduction that is recorded can be read again: other hosts must not be able to lock a host out of
// its own directory.
func TestWhatPeersSayStaysReadable(t *testing.T) {
	var members []transport.Member
	for id := uint64(1); id <= 12; id++ {
		members = append(members, transport.Member{ID: id, Addr: "a"})
	}
	talker := func(id uint64) transport.Introduction {
		i := transport.Introduction{ID: id, Cluster: 4, Members: members, Generation: 1}
		i.Addr = strings.Repeat("<", transport.MaxIntroductionBytes-len(i.Append(nil))) // six bytes each in JSON
		if err := i.Validate(); err != nil {
			t.Fatal(err)
		}
		return i
	}
	disk := crashfs.New()
	a := remembering(t, disk, talker(1))
	for _, m := range members[1:] {
		if err := a.Admit(talker(m.ID), "r", false); err != nil {
			t.Errorf("host %d: %v", m.ID, err)
		}
	}
	if err := a.Admit(talker(2), "r", false); err != nil {
		t.Error(err)
	}
	if again := remembering(t, disk, talker(1)); len(again.known) != len(members)-1 {
		t.Errorf("%d hosts are remembered, want %d", len(again.known), len(members)-1)
	}
}

// An old backup is refused however often its host starts: it says of the life that was heard something else.
// The original is admitted, also after many lives of which this host has heard nothing.
func TestBackupThatStartsOften(t *testing.T) {
	a := remembering(t, crashfs.New(), member(1))
	original := lives{Generation: 1, Lives: []uint32{7}} // and the backup is made here
	for range 3 {
		comeBack(t, a, &original)
	}
	backup := lives{Generation: 1, Lives: []uint32{7}}
	for range transport.MaxPast - 10 {
		i := live(&backup, 1000)
		if err := a.Admit(i, "r", false); err == nil {
			t.Fatalf("life %d of a backup was admitted", i.Generation)
		} else if i.Generation > 4 && !strings.Contains(err.Error(), "but its life 4 was another one") {
			t.Fatal(err)
		}
	}
	for range 600 {
		live(&original, 0)
	}
	comeBack(t, a, &original)
	for range 2 * transport.MaxPast { // more than it says
		live(&original, 0)
	}
	comeBack(t, a, &original)
}

// live returns how host 2 introduces itself in the next life of its directory.
func live(l *lives, copied uint64) transport.Introduction {
	i := member(2)
	i.Generation, i.Life = l.Generation+1, 1<<40+copied+l.Generation+1
	i.Past = l.begin(i.Generation, uint32(i.Life))
	return i
}

func comeBack(t *testing.T, a *Admission, l *lives) {
	t.Helper()
	if i := live(l, 0); a.Admit(i, "r", false) != nil {
		t.Errorf("life %d of the original: %v", i.Generation, a.Admit(i, "r", false))
	}
}

// What a directory says of its lives is true, or nothing.
func TestLivesThatAreNotKnown(t *testing.T) {
	var l lives
	for _, row := range []struct {
		generation uint64
		life       uint32
		want       []uint32
	}{
		{3, 30, nil}, {4, 40, []uint32{30}}, {7, 70, []uint32{30, 40, 0, 0}}, {8, 80, []uint32{30, 40, 0, 0, 70}},
		{8, 81, nil}, {9, 90, []uint32{0}}, {9 + transport.MaxPast, 5, append([]uint32{0, 90}, make([]uint32, transport.MaxPast-1)...)[1:]},
		{10 + 3*transport.MaxPast, 6, nil}, {11 + 3*transport.MaxPast, 7, []uint32{6}},
	} {
		if have := l.begin(row.generation, row.life); !slices.Equal(have, row.want) {
			t.Errorf("before life %d: %v, want %v", row.generation, have, row.want)
		}
	}
}

// A directory knows its lives after restarts, and its host starts without the file, too.
func TestLivesAreRemembered(t *testing.T) {
	disk := crashfs.New()
	var want []uint32
	for generation := uint64(1); generation < 6; generation++ {
		d := &Directory{fs: disk, settings: Settings{Dir: "/data/1"}, identity: Identity{Incarnation: transport.Incarnation{4}}}
		if err := disk.MkdirAll("/data/1"); err != nil {
			t.Fatal(err)
		}
		if generation == 4 {
			if err := disk.Remove("/data/1/" + livesFile); err != nil {
				t.Fatal(err)
			}
			put(t, disk, livesFile, "no JSON")
			want = nil
		}
		if generation == 5 {
			d.identity.Incarnation[0]++ // another log
			want = nil
		}
		past, err := d.EnterLife(generation, 1<<40+generation, slog.New(slog.DiscardHandler))
		if err != nil || !slices.Equal(past, want) {
			t.Errorf("before life %d: %v, %v; want %v", generation, past, err, want)
		}
		want = append(want, uint32(generation))
	}
}

// When a directory takes the place of another one, the connections of that end before it counts as that of
// the host: what it still sends would count as said by the new one.
func TestReplacedDirectoryIsNotHeard(t *testing.T) {
	us := func(id uint64) transport.Introduction {
		return transport.Introduction{ID: id, Cluster: 4, Members: []transport.Member{{ID: 1, Addr: "a"}, {ID: 2, Addr: "b"}}, Generation: 1, Life: 1, Incarnation: transport.Incarnation{byte(id)}}
	}
	a := remembering(t, crashfs.New(), us(1))
	before, after := us(2), us(2)
	after.Incarnation = transport.Incarnation{9}
	if err := a.Admit(before, "r", false); err != nil || !a.Keeps(before) {
		t.Fatalf("%v; it is kept: %v", err, a.Keeps(before))
	}
	reviews := 0
	a.review = func(id uint64) {
		if i, _ := a.Incarnation(id); id != 2 || i != before.Incarnation || a.Keeps(before) || a.Keeps(after) {
			t.Errorf("host %d has directory %v, the one before is kept: %v", id, i, a.Keeps(before))
		}
		if err := a.Admit(before, "r", false); err == nil {
			t.Error("the directory before is admitted while it is replaced")
		}
		reviews++
	}
	if err := a.Admit(after, "r", true); err != nil || reviews != 1 {
		t.Errorf("%v, and %d reviews, want 1", err, reviews)
	}
	if a.Keeps(before) || !a.Keeps(after) {
		t.Errorf("the directory before is kept: %v; the one after: %v", a.Keeps(before), a.Keeps(after))
	}
}
