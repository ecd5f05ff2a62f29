package host

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/host/internal/identity"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/vfs/crashfs"
)

// A durable machine that was put back, or emptied, beside a log that is compacted is restored from the
// snapshot, and then gets the commands behind it.
func TestADurableMachineThatIsBehind(t *testing.T) {
	h := openKeeper(t, GroupConfig{Snapshots: SnapshotPolicy{LogBytes: 4, KeepBytes: 1, Disabled: true}}, true)
	for i := range 10 {
		h.call(t, nil, fmt.Sprint("command ", i))
	}
	h.mustTake(t)
	for i := range 5 {
		h.call(t, nil, fmt.Sprint("later ", i))
	}
	list, index := slices.Clone(h.keeper.list), h.keeper.index
	for name, behind := range map[string]int{"emptied": 0, "put back": 7, "at the snapshot": 10, "ahead": 12} {
		h.keeper.list, h.keeper.index, h.keeper.restored = slices.Clone(list[:behind]), 0, 0
		if behind > 0 {
			fmt.Sscan(list[behind-1], &h.keeper.index)
		}
		h.restart(t, crashfs.LoseNothing, nil)
		want := 0
		if behind < 10 {
			want = 1
		}
		if !slices.Equal(h.keeper.list, list) || h.keeper.index != index || h.keeper.restored != want {
			t.Errorf("%s: it was restored %d times, want %d, and has %q, want %q", name, h.keeper.restored, want, h.keeper.list, list)
		}
	}
	h.keeper.list, h.keeper.index = append(list, "9999 a command that the log does not have"), 9999
	h.disk.Crash(crashfs.LoseNothing, nil)
	if err := h.start(); err == nil || !strings.Contains(err.Error(), "one of the two was restored or replaced") {
		t.Errorf("a machine that is ahead of the log: %v", err)
	}
}

// A group that is removed takes its snapshots with it; if the power fails before, the next start does.
func TestRemovedGroupsLeaveNoSnapshots(t *testing.T) {
	h := openKeeper(t, GroupConfig{}, false)
	h.call(t, nil, "a command")
	h.mustTake(t)
	_ = h.RemoveGroup(gone(t), theGroup) // its context has ended: it only begins
	h.manual.runIdle()
	if err := h.RemoveGroup(gone(t), theGroup); err != nil {
		t.Fatal(err)
	}
	h.manual.runIdle()
	if names, err := h.disk.ReadDir(identity.GroupsDir("data")); err != nil || len(names) > 0 {
		t.Errorf("%v is left, %v", names, err)
	}
	if err := h.disk.MkdirAll(identity.SnapshotsDir("data", theGroup)); err != nil { // as if the power had failed before
		t.Fatal(err)
	}
	h.disk.Crash(crashfs.LoseAll, nil)
	if err := h.start(); !errors.Is(err, outcome.ErrRemoved) {
		t.Fatal(err)
	}
	if _, err := h.disk.ReadDir(identity.SnapshotsDir("data", theGroup)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the next start leaves the snapshots: %v", err)
	}
}

// The metrics say what is there, and what was done.
func TestSnapshotMetrics(t *testing.T) {
	h := openKeeper(t, GroupConfig{Snapshots: SnapshotPolicy{Disabled: true}}, false)
	h.call(t, nil, "a command")
	if m := h.group.Metrics().Snapshots; m.Index != 0 || m.Taken != 0 || m.LogBytes == 0 || m.LogEntries < begun {
		t.Errorf("before the first snapshot: %+v", m)
	}
	info := h.mustTake(t)
	h.keeper.refuses = errors.New("no")
	h.call(t, nil, "another")
	if _, err := h.take(t); err == nil {
		t.Fatal("setup: it was taken")
	}
	m := h.group.Metrics().Snapshots
	if m.Index != info.Index || m.Bytes != info.Bytes || m.Taken != 1 || m.Failed != 1 || m.FailedInARow != 1 || m.LogBytes <= 0 || m.LogBytes > 1000 {
		t.Errorf("%+v after %+v and a failure", m, info)
	}
}

// 64 groups of one host, some with a thousand times the load of others, take snapshots and compact their
// logs. What the host has on its disk stays below three times what is alive: the entries behind each
// snapshot that followers may need, and the snapshots.
func TestDiskOfManyGroups(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine runs all groups")
	}
	const groups = 64
	h := openKeeper(t, GroupConfig{Snapshots: SnapshotPolicy{Disabled: true}}, false)
	rng := rand.New(rand.NewPCG(5, 6))
	policy := SnapshotPolicy{LogBytes: 32 << 10, KeepBytes: 16 << 10}
	var all []*Group
	for id := uint64(2); id < 2+groups; id++ {
		g, err := h.OpenGroup(t.Context(), GroupConfig{ID: id, Snapshots: policy}, Commands(&forgetful{}, statemachine.CommandOptions{}))
		if err != nil {
			t.Fatal(err)
		}
		h.leadAlone(g)
		all = append(all, g)
	}
	live := func() (bytes int64) {
		for _, g := range all {
			m := g.Metrics().Snapshots
			bytes += int64(m.LogEntries)*1100 + m.Bytes
		}
		return bytes
	}
	worst := 0.0
	for step := range 20_000 {
		g := all[min(int(rng.ExpFloat64()*6), groups-1)]
		if err := g.Call(&Call{Owner: &answer{}, Data: append(make([]byte, CallRoom), strings.Repeat("x", 1000)...)}); err != nil {
			t.Fatal(err)
		}
		h.manual.runIdle()
		if step%100 == 0 {
			h.manual.tick()
		}
		if step > 5000 && step%500 == 0 {
			worst = max(worst, float64(h.disk.UsedBytes())/float64(live()))
		}
	}
	t.Logf("the disk held up to %.2f times what was alive; at the end %d KiB for %d KiB", worst, h.disk.UsedBytes()>>10, live()>>10)
	if worst > 3 {
		t.Errorf("the disk held up to %.1f times what was alive, want at most 3", worst)
	}
}

// forgetful is a keeper with a small state.
type forgetful struct{ keeper }

func (f *forgetful) Apply(batch []statemachine.Command) error {
	err := f.keeper.Apply(batch)
	f.list = f.list[max(len(f.list)-3, 0):]
	return err
}
