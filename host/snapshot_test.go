package host

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/apply"
	"github.com/millrace/millrace/host/internal/identity"
	"github.com/millrace/millrace/host/internal/snapshots"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/session"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs/crashfs"
	"pgregory.net/rapid"
)

// fataler is a *testing.T or a *rapid.T.
type fataler interface {
	Helper()
	Fatal(...any)
}

// keeper is a state machine with sessions, whose state is the list of what it has applied. As a durable
// machine it keeps its state beyond its process, as if on a disk.
type keeper struct {
	list     []string
	index    uint64 // of the last command,
	places   uint32 // and how many commands it has of that entry
	restored int
	durable  bool
	wrong    func(w io.Writer) error           // what WriteTo does in place of writing, if it is not nil
	refuses  error                             // of Snapshot
	fails    func(*statemachine.Command) error // what Apply asks before each command, if it is not nil
	sum      func() uint64                     // in place of the digest, if it is not nil
	views    []*keeperView                     // that were given out
}

func (k *keeper) Apply(batch []statemachine.Command) error {
	for i := range batch {
		c := &batch[i]
		switch {
		case c.Index > k.index && c.Pos == 0:
			k.places = 0
		case c.Index != k.index || c.Pos != k.places:
			return fmt.Errorf("command %d of entry %d comes after %d commands of entry %d", c.Pos, c.Index, k.places, k.index)
		}
		if k.fails != nil {
			if err := k.fails(c); err != nil {
				return err
			}
		}
		k.index = c.Index
		k.places++
		k.list = append(k.list, fmt.Sprintf("%d %s at %v", c.Index, c.Data, c.Time))
		c.Result = fmt.Appendf(nil, "the result of %s, number %d", c.Data, len(k.list))
		if c.Caller != nil {
			c.Caller.(*answer).text = string(c.Result)
		}
	}
	return nil
}

func (k *keeper) digest() (sum uint64) {
	if k.sum != nil {
		return k.sum()
	}
	for _, s := range k.list {
		sum = sum*31 + uint64(crc32.ChecksumIEEE([]byte(s)))
	}
	return sum
}

func (k *keeper) Snapshot() (statemachine.Snapshot, error) {
	if k.refuses != nil {
		return nil, k.refuses
	}
	v := &keeperView{keeper: k, text: fmt.Sprintf("%d\n%s", k.index, strings.Join(k.list, "\n"))}
	k.views = append(k.views, v)
	return v, nil
}

func (k *keeper) Restore(_ context.Context, r io.Reader) error {
	text, err := io.ReadAll(r)
	if err != nil {
		return errors.New("the keeper says nothing of its reader's error")
	}
	first, rest, _ := strings.Cut(string(text), "\n")
	var index uint64
	if _, err := fmt.Sscan(first, &index); err != nil {
		return err
	}
	k.index, k.places, k.list = index, 1<<20, nil // a snapshot has whole entries
	if rest != "" {
		k.list = strings.Split(rest, "\n")
	}
	k.restored++
	return nil
}

type keeperView struct {
	keeper *keeper
	text   string
	closed int
}

func (v *keeperView) WriteTo(_ context.Context, w io.Writer) error {
	if v.keeper.wrong != nil {
		return v.keeper.wrong(w)
	}
	_, err := io.WriteString(w, v.text)
	return err
}

func (v *keeperView) Close() error {
	if v.closed++; v.closed > 1 {
		panic("a view is closed twice")
	}
	return nil
}

// keeperHost is a host that is alone, with one group of a keeper, on a disk that stays.
type keeperHost struct {
	*testHost
	keeper *keeper
	shares bool // commands of a turn are one entry
	config GroupConfig
	events []event.Event
}

func (h *keeperHost) options() statemachine.CommandOptions {
	o := statemachine.CommandOptions{KeepResults: true, Digest: h.keeper.digest, Sessions: session.Options{Expiry: 2 * time.Second, MaxSessionBytes: 4 << 10, MaxBytes: 8 << 10}}
	if h.keeper.durable {
		o.Applied = func() (uint64, error) { return h.keeper.index, nil }
	}
	return o
}

// start starts the host with an empty machine, or a durable one as it is.
func (h *keeperHost) start() error {
	h.manual, h.out = &manualEnv{now: h.now()}, &recordingTransport{}
	// Most scripts name entries: each has one command.
	c := Config{ID: 1, Dir: "data", Members: map[uint64]string{1: "nowhere"}, SegmentBytes: 64 << 10, MemoryBytes: 4 << 20, SingleEntries: !h.shares}
	process, err := Open(context.Background(), c, WithEnv(h.manual.env()), WithFS(h.disk.Mount()), WithTransport(h.out), WithLogger(quiet), WithEvents(func(e event.Event) { h.events = append(h.events, e) }))
	if err != nil {
		return err
	}
	h.Host = process
	if k := h.keeper; k == nil || !k.durable {
		h.keeper = &keeper{}
		if k != nil {
			h.keeper.wrong, h.keeper.refuses = k.wrong, k.refuses
		}
	}
	h.config.ID, h.config.MaxCommandBytes = theGroup, 1<<10
	if h.group, err = process.OpenGroup(context.Background(), h.config, Commands(h.keeper, h.options())); err != nil {
		return errors.Join(err, process.Close(context.Background()))
	}
	h.manual.runIdle()
	h.group.Campaign()
	h.manual.runIdle()
	return h.group.Err()
}

func (h *keeperHost) now() time.Duration {
	if h.testHost == nil || h.manual == nil {
		return 0
	}
	return h.manual.now
}

func openKeeper(t fataler, c GroupConfig, durable bool) *keeperHost {
	return openKeeperWith(t, &keeperHost{config: c}, durable)
}

// openSharing opens a host whose commands share entries.
func openSharing(t fataler) *keeperHost { return openKeeperWith(t, &keeperHost{shares: true}, false) }

func openKeeperWith(t fataler, h *keeperHost, durable bool) *keeperHost {
	h.testHost = &testHost{disk: crashfs.New()}
	if durable {
		h.keeper = &keeper{durable: true}
	}
	if err := h.start(); err != nil {
		t.Fatal(err)
	}
	return h
}

// restart is a crash of the process, or a power cut.
func (h *keeperHost) restart(t fataler, loss crashfs.Loss, rng func() uint64) {
	t.Helper()
	h.disk.Crash(loss, rng)
	if err := h.start(); err != nil {
		t.Fatal(err)
	}
}

// answer is what a caller learns.
type answer struct{ text string }

func (o *answer) Committed(outcome.Receipt) {}
func (o *answer) Failed(err error)          { o.text = err.Error() }
func (o *answer) Duplicate(r outcome.Receipt, result []byte, _ bool) {
	o.text = fmt.Sprintf("duplicate of %d, %s", r.Index, result)
}

// call hands a command in, runs until it is applied, and returns what its caller was told.
func (h *keeperHost) call(t fataler, mark *session.Mark, data string) string {
	t.Helper()
	o := &answer{}
	c := &Call{Owner: o, Session: mark, Data: append(make([]byte, CallRoom), data...)}
	if err := h.group.Call(c); err != nil {
		t.Fatal(err)
	}
	h.manual.runIdle()
	return o.text
}

// take takes a snapshot, or returns why not.
func (h *keeperHost) take(t fataler) (SnapshotInfo, error) {
	t.Helper()
	s := h.group.StartSnapshot()
	for range 8 {
		h.manual.tick()
	}
	info, done, err := s.Poll()
	if !done {
		t.Fatal("the snapshot is not done")
	}
	return info, err
}

// mustTake takes a snapshot.
func (h *keeperHost) mustTake(t fataler) SnapshotInfo {
	t.Helper()
	info, err := h.take(t)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// beside is what a member knows beside the state of its machine, without the sum of results.
func (h *keeperHost) beside() string {
	m := h.group.machine.apply.Machine.(*apply.Commands)
	sessions, sums, _ := m.Capture()
	sums.Results, sums.Whole = 0, false
	return fmt.Sprintf("%x %+v %v", sessions, sums, m.Table().Now())
}

// A snapshot is published, the log behind it is compacted, and the group begins from it after a restart: with
// the state, the sessions, the sums and the founding, and with what came after it in the log.
func TestAGroupBeginsFromItsSnapshot(t *testing.T) {
	h := openKeeper(t, GroupConfig{Snapshots: SnapshotPolicy{LogBytes: 1000}}, false)
	mark := session.Mark{ID: session.ID{Client: [16]byte{7}}, Number: 1, Low: 1}
	h.call(t, &mark, "first")
	for i := range 200 {
		h.manual.tick()
		h.call(t, nil, fmt.Sprint("command ", i))
	}
	info, ok := h.group.LatestSnapshot()
	if !ok || info.Index < 100 {
		t.Fatalf("the latest snapshot is %+v, %t", info, ok)
	}
	first := h.group.writes.storage.log.FirstIndex()
	if first < 50 || first > info.Index+1 {
		t.Errorf("the log begins at %d behind a snapshot of %d", first, info.Index)
	}
	info = h.mustTake(t)
	for i := range 3 {
		h.call(t, nil, fmt.Sprint("later ", i))
	}
	list, beside := slices.Clone(h.keeper.list), h.beside()
	for _, loss := range []crashfs.Loss{crashfs.LoseNothing, crashfs.LoseAll} {
		h.restart(t, loss, nil)
		if h.keeper.restored != 1 || !slices.Equal(h.keeper.list, list) {
			t.Fatalf("after %v the machine was restored %d times and has %d commands, want 1 and %d", loss, h.keeper.restored, len(h.keeper.list), len(list))
		}
		if have := h.beside(); have != beside {
			t.Errorf("after %v the member knows\n%s, want\n%s", loss, have, beside)
		}
		if now, ok := h.group.LatestSnapshot(); !ok || now.Index != info.Index {
			t.Errorf("after %v the latest snapshot is %+v, want %+v", loss, now, info)
		}
		if !h.group.Founding().Founded {
			t.Errorf("after %v the group is not founded", loss)
		}
	}
	if text := h.call(t, &mark, "first"); !strings.HasPrefix(text, "expired") && !strings.Contains(text, "duplicate") && !strings.Contains(text, "session") {
		t.Errorf("a duplicate was answered with %q", text)
	}
}

// Between a command that the group skips and the entry that says so no snapshot is taken. Members that do not
// know the entry yet differ rightly there, those that begin from such a snapshot and those that have the
// effect, and would be compared.
func TestNoSnapshotBetweenASkippedCommandAndItsEntry(t *testing.T) {
	h := openKeeper(t, GroupConfig{}, false)
	h.call(t, nil, "first")
	skipped := h.group.Status().Applied
	h.group.machine.apply.Skips.Add(raftpb.Position{Index: skipped}, skipped+3)
	s := h.group.StartSnapshot()
	for range 2 {
		for range 8 {
			h.manual.tick()
		}
		if _, done, err := s.Poll(); done {
			t.Fatalf("a snapshot is taken at %d, of a command that entry %d skips: %v", h.group.Status().Applied, skipped+3, err)
		}
		h.call(t, nil, "another")
	}
	h.call(t, nil, "the entry")
	for range 8 {
		h.manual.tick()
	}
	if info, done, err := s.Poll(); !done || err != nil || info.Index < skipped+3 {
		t.Errorf("behind the entry: %+v, %t, %v", info, done, err)
	}
}

// A group that takes snapshots and one that takes none are given the same commands, copies of earlier ones
// among them, and are restarted at the same moments. Their machines, results, sessions, sums and what their
// callers are told stay equal. (The times of the log are those of the twin's entries: both clocks are equal.)
func TestSnapshotsChangeNothing(t *testing.T) {
	oneGoroutine(t)
	taken, restored, duplicates, compacted := 0, 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		durable := rng.IntN(3) == 0
		c := GroupConfig{Volatile: !durable && rng.IntN(2) == 0, NonBlocking: rng.IntN(2) == 0}
		twin := openKeeper(t, c, durable)
		twin.config.Snapshots.Disabled = true
		c.Snapshots = SnapshotPolicy{LogBytes: int64(200 + rng.IntN(4000))}
		if rng.IntN(4) == 0 {
			c.Snapshots.Every = time.Second
		}
		h := openKeeper(t, c, durable)
		hosts := []*keeperHost{h, twin}
		marks := make([]session.Mark, 3)
		for i := range marks {
			marks[i] = session.Mark{ID: session.ID{Client: [16]byte{byte(i + 1)}, Birth: 0}, Number: 0, Low: 1}
		}
		for step := range 120 - rapid.IntRange(0, 100).Draw(t, "fewer") {
			switch op := rng.IntN(20); {
			case op < 12:
				data := fmt.Sprint("command ", step)
				var mark *session.Mark
				if m := &marks[rng.IntN(3)]; rng.IntN(2) == 0 {
					if m.Number > 0 && rng.IntN(3) == 0 {
						again := *m
						again.Number = m.Low + rng.Uint64N(m.Number-m.Low+1)
						mark = &again
					} else {
						m.Number++
						if rng.IntN(4) == 0 {
							m.Low = m.Number
						}
						again := *m
						mark = &again
					}
				}
				a, b := h.call(t, mark, data), twin.call(t, mark, data)
				if durable { // the twin does not know the results of what its machine holds
					a, _, _ = strings.Cut(a, ",")
					b, _, _ = strings.Cut(b, ",")
				}
				if a != b {
					t.Fatalf("step %d: a caller is told %q, and %q by the twin", step, a, b)
				}
				if strings.HasPrefix(a, "duplicate") {
					duplicates++
				}
			case op < 16:
				for range rng.IntN(8) {
					for _, h := range hosts {
						h.manual.tick()
					}
				}
			case op < 17:
				h.take(t)
				for range 8 {
					twin.manual.tick()
				}
			default:
				loss := []crashfs.Loss{crashfs.LoseNothing, crashfs.LoseAll}[rng.IntN(2)]
				if durable {
					// What the machine has is on its disk, so the log must be there, too. Its entries were
					// synced.
					loss = crashfs.LoseNothing
				}
				for _, h := range hosts {
					h.restart(t, loss, rng.Uint64)
				}
				restored += h.keeper.restored
			}
			if !slices.Equal(h.keeper.list, twin.keeper.list) {
				t.Fatalf("step %d: the machine has %q, the twin's %q", step, h.keeper.list, twin.keeper.list)
			}
			if a, b := h.beside(), twin.beside(); a != b && !durable {
				t.Fatalf("step %d: the member knows\n%s, the twin\n%s", step, a, b)
			}
		}
		taken += int(h.group.snapshots.Counts().Taken)
		if h.group.writes.storage.log.FirstIndex() > 1 {
			compacted++
		}
	})
	if taken == 0 || restored == 0 || duplicates == 0 || compacted == 0 {
		t.Errorf("%d snapshots were taken, %d machines restored, %d duplicates told and %d logs compacted, want more than 0 of each", taken, restored, duplicates, compacted)
	}
}

// What a machine does wrong fails its snapshot and nothing else. The next one is taken.
func TestASnapshotThatFails(t *testing.T) {
	for name, wrong := range map[string]func(k *keeper){
		"Snapshot returns an error": func(k *keeper) { k.refuses = errors.New("no") },
		"WriteTo returns an error":  func(k *keeper) { k.wrong = func(io.Writer) error { return errors.New("no") } },
		"WriteTo panics":            func(k *keeper) { k.wrong = func(io.Writer) error { panic("no") } },
		"a full disk": func(k *keeper) {
			k.wrong = func(w io.Writer) error { return fmt.Errorf("write: %w", syscall.ENOSPC) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := openKeeper(t, GroupConfig{Snapshots: SnapshotPolicy{LogBytes: 500}}, false)
			wrong(h.keeper)
			if _, err := h.take(t); err == nil {
				t.Skip("there was nothing to take yet")
			}
			for i := range 20 {
				h.call(t, nil, fmt.Sprint("command ", i))
			}
			if _, err := h.take(t); err == nil {
				t.Fatal("the snapshot was taken")
			}
			if _, ok := h.group.LatestSnapshot(); ok || h.group.Err() != nil || h.group.writes.storage.log.FirstIndex() != 1 {
				t.Fatalf("there is a snapshot: %t, the group says %v, the log begins at %d", ok, h.group.Err(), h.group.writes.storage.log.FirstIndex())
			}
			if !slices.ContainsFunc(h.events, func(e event.Event) bool { _, is := e.(event.SnapshotFailed); return is }) {
				t.Error("no event reports it")
			}
			if d := h.group.Explain(); !d.Has(diagnosis.CodeSnapshotFails) {
				t.Errorf("Explain says:\n%v", d)
			}
			h.keeper.refuses, h.keeper.wrong = nil, nil
			for range 4096 * ticksPerHeartbeat { // until the next try
				if _, ok := h.group.LatestSnapshot(); ok {
					break
				}
				h.manual.tick()
			}
			if _, ok := h.group.LatestSnapshot(); !ok {
				t.Fatal("it is not tried again")
			}
			if d := h.group.Explain(); d.Has(diagnosis.CodeSnapshotFails) {
				t.Errorf("Explain says:\n%v", d)
			}
			h.restart(t, crashfs.LoseAll, nil)
			if h.keeper.restored != 1 || len(h.keeper.list) != 20 {
				t.Errorf("after a restart the machine has %d commands", len(h.keeper.list))
			}
		})
	}
}

// A snapshot of a machine that ends its goroutine in WriteTo fails, too. (The goroutine is that of the test.)
func TestASnapshotWhoseGoroutineEnds(t *testing.T) {
	h := openKeeper(t, GroupConfig{}, false)
	h.call(t, nil, "a command")
	h.keeper.wrong = func(io.Writer) error { runtime.Goexit(); return nil }
	s := h.group.StartSnapshot()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		h.manual.runIdle()
	}()
	<-ended
	h.keeper.wrong = nil
	if _, done, err := s.Poll(); !done || err == nil {
		t.Fatalf("done: %t, %v", done, err)
	}
	if info := h.mustTake(t); info.Index < begun {
		t.Fatalf("taken: %+v", info)
	}
}

// The power is cut at each operation of the disk while a snapshot is taken and the log is compacted, with any
// loss. The next start has everything that was applied, with the old snapshot or the new one.
func TestSnapshotsSurviveCrashes(t *testing.T) {
	oneGoroutine(t)
	for _, loss := range []crashfs.Loss{crashfs.LoseAll, crashfs.LoseSome, crashfs.LoseNothing} {
		rng := rand.New(rand.NewPCG(3, uint64(loss)))
		began := [3]int{}
		for n := 1; ; n++ {
			h := openKeeper(t, GroupConfig{Snapshots: SnapshotPolicy{Disabled: true, LogBytes: 100}}, false)
			for i := range 20 {
				h.call(t, nil, fmt.Sprint("command ", i))
			}
			old := h.mustTake(t)
			for i := range 20 {
				h.call(t, nil, fmt.Sprint("command ", 20+i))
			}
			want, beside := slices.Clone(h.keeper.list), h.beside()
			left := n
			h.disk.SetHook(func(crashfs.Op) error {
				if left--; left == 0 {
					h.disk.Crash(loss, rng.Uint64)
				}
				return nil
			})
			h.group.StartSnapshot()
			for range 8 {
				h.manual.tick()
			}
			h.disk.SetHook(nil)
			if left > 0 {
				if n < 20 {
					t.Fatalf("taking a snapshot has %d operations", n)
				}
				break
			}
			if err := h.start(); err != nil {
				t.Fatalf("%v at operation %d: %v", loss, n, err)
			}
			if !slices.Equal(h.keeper.list, want) || h.beside() != beside {
				t.Fatalf("%v at operation %d: the machine has %d commands, want %d", loss, n, len(h.keeper.list), len(want))
			}
			switch p := h.group.snapshots.Latest(); {
			case p == nil:
				t.Fatalf("%v at operation %d: no snapshot is left", loss, n)
			case p.ID.Index == old.Index:
				began[1]++
			default:
				began[2]++
			}
			h.call(t, nil, "one more")
			h.mustTake(t) // and the directory can be used
		}
		if began[1] == 0 || began[2] == 0 {
			t.Errorf("%v: %d starts had the old snapshot, %d the new one", loss, began[1], began[2])
		}
	}
}

// A log that begins behind a snapshot which is not there, or is damaged, is refused with a sentence.
func TestALogWithoutItsSnapshotIsRefused(t *testing.T) {
	h := openKeeper(t, GroupConfig{Snapshots: SnapshotPolicy{Disabled: true, LogBytes: 4}}, false)
	for i := range 20 {
		h.call(t, nil, fmt.Sprint("command ", i))
		h.mustTake(t)
	}
	if first := h.group.writes.storage.log.FirstIndex(); first == 1 {
		t.Fatal("setup: the log is whole")
	}
	h.disk.Crash(crashfs.LoseNothing, nil)
	process, err := Open(t.Context(), Config{ID: 1, Dir: "data", Members: map[uint64]string{1: "nowhere"}, SegmentBytes: 64 << 10, MemoryBytes: 4 << 20},
		WithEnv((&manualEnv{}).env()), WithFS(h.disk.Mount()), WithTransport(&recordingTransport{}), WithLogger(quiet))
	if err != nil {
		t.Fatal(err)
	}
	_, err = process.OpenGroup(t.Context(), GroupConfig{ID: theGroup}, Commands(&listMachine{}, h.options()))
	if !errors.Is(err, outcome.ErrNoSnapshots) {
		t.Errorf("a machine without snapshots: %v", err)
	}
	process.Close(t.Context())
	h.disk.Crash(crashfs.LoseNothing, nil)

	part := h.statePart(t)
	f, err := h.disk.Open(part)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("damage"), 3); err != nil {
		t.Fatal(err)
	}
	if err := h.start(); err == nil || !strings.Contains(err.Error(), "begins at entry") || !strings.Contains(err.Error(), "snapshot") {
		t.Errorf("a damaged snapshot: %v", err)
	}
	if err := snapshots.RemoveAll(h.disk, "data", theGroup); err != nil {
		t.Fatal(err)
	}
	if err := h.start(); err == nil || !strings.Contains(err.Error(), "begins at entry") {
		t.Errorf("no snapshot: %v", err)
	}
}

// statePart returns the name of a part of the latest snapshot.
func (h *keeperHost) statePart(t *testing.T) string {
	t.Helper()
	dir := identity.SnapshotsDir("data", theGroup)
	names, err := h.disk.ReadDir(dir)
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	dir += "/" + names[len(names)-1]
	if names, err = h.disk.ReadDir(dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasPrefix(name, "part-") {
			return dir + "/" + name
		}
	}
	t.Fatalf("no part in %v", names)
	return ""
}

// With a damaged snapshot and a whole log, the group begins at entry 1.
func TestADamagedSnapshotBesideAWholeLog(t *testing.T) {
	h := openKeeper(t, GroupConfig{Snapshots: SnapshotPolicy{Disabled: true}}, false)
	for i := range 20 {
		h.call(t, nil, fmt.Sprint("command ", i))
	}
	h.mustTake(t)
	list := slices.Clone(h.keeper.list)
	h.disk.Crash(crashfs.LoseNothing, nil)
	f, err := h.disk.Open(h.statePart(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("damage"), 3); err != nil {
		t.Fatal(err)
	}
	if err := h.start(); err != nil {
		t.Fatal(err)
	}
	if h.keeper.restored != 0 || !slices.Equal(h.keeper.list, list) {
		t.Errorf("restored %d times, %d commands", h.keeper.restored, len(h.keeper.list))
	}
	h.mustTake(t)
}
