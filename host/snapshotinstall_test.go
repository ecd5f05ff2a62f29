package host

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/host/internal/apply"
	"github.com/millrace/millrace/host/internal/identity"
	"github.com/millrace/millrace/host/internal/snapshots"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/snapshot"
	"github.com/millrace/millrace/vfs/crashfs"
)

// putReceived publishes a snapshot on the host's disk as one that was received: of an entry far beyond its
// log, with a list of one command.
func (h *keeperHost) putReceived(t *testing.T, change func(*snapshot.Manifest)) snapshot.ID {
	t.Helper()
	store, err := snapshot.OpenStore(h.disk, identity.SnapshotsDir("data", theGroup))
	if err != nil {
		t.Fatal(err)
	}
	id := snapshot.ID{Index: 500, Term: 9}
	w, err := store.Create(id)
	if err != nil {
		t.Fatal(err)
	}
	write := func(kind snapshot.Kind, name string, data []byte) {
		s, err := w.Stream(kind, name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Write(data); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	g := h.group
	m := g.machine.apply.Machine.(*apply.Commands)
	write(snapshot.KindMachine, snapshots.StateStream, []byte("499\n499 a command that was received"))
	write(snapshot.KindHost, snapshots.SessionsStream, m.Table().AppendTo(nil))
	block := (*snapshotGroup)(g).CaptureState(g.machine.apply.Position().Index).Block
	block.Last = 499
	manifest := snapshot.Manifest{
		Cluster: h.trust.directory.Identity().Cluster, Group: theGroup, Index: id.Index, Term: id.Term, Conf: raftpb.ConfState{Voters: []uint64{1}},
		Members: []snapshot.Member{{ID: 1, Incarnation: h.incarnation()}}, Host: block.Encode(),
	}
	change(&manifest)
	if err := w.SyncParts(); err != nil {
		t.Fatal(err)
	}
	if err := w.Publish(manifest); err != nil {
		t.Fatal(err)
	}
	return id
}

// A snapshot that was published, and not yet installed when the power failed, is installed when the host is
// opened, whichever operation of that is the last before the next power cut.
func TestAnInterruptedInstallIsFinished(t *testing.T) {
	for _, loss := range []crashfs.Loss{crashfs.LoseAll, crashfs.LoseSome, crashfs.LoseNothing} {
		rng := rand.New(rand.NewPCG(8, uint64(loss)))
		for n := 0; ; n++ {
			h := openKeeper(t, GroupConfig{}, false)
			h.call(t, nil, "a command that is replaced")
			h.putReceived(t, func(*snapshot.Manifest) {})
			h.disk.Crash(crashfs.LoseNothing, nil)
			left := n
			h.disk.SetHook(func(crashfs.Op) error {
				if left--; left == 0 {
					h.disk.Crash(loss, rng.Uint64)
				}
				return nil
			})
			h.start()
			h.disk.SetHook(nil)
			ended := n > 0 && left > 0
			if !ended {
				h.disk.Crash(loss, rng.Uint64)
				if err := h.start(); err != nil {
					t.Fatalf("%v at operation %d: %v", loss, n, err)
				}
			}
			if want := []string{"499 a command that was received"}; !slices.Equal(h.keeper.list, want) {
				t.Fatalf("%v at operation %d: the machine has %q, want %q", loss, n, h.keeper.list, want)
			}
			if s := h.group.Status(); s.FirstIndex != 501 || s.Term < 9 || s.Committed < 500 || !h.group.Founding().Founded {
				t.Fatalf("%v at operation %d: %+v", loss, n, s)
			}
			if text := h.call(t, nil, "one more"); !strings.Contains(text, "number 2") {
				t.Fatalf("%v at operation %d: the next command: %q", loss, n, text)
			}
			if h.mustTake(t); ended {
				break
			}
		}
	}
}

// A snapshot that is newer than the log may be the only one: after a power cut in an unsafe mode the log has
// lost the mark of its install. If it cannot be read, it is not removed, and the refusal says why.
func TestTheOnlySnapshotIsNotRemoved(t *testing.T) {
	h := openKeeper(t, GroupConfig{Snapshots: SnapshotPolicy{Disabled: true, LogBytes: 4}}, false)
	for i := range 20 {
		h.call(t, nil, fmt.Sprint("command ", i))
		h.mustTake(t)
	}
	if first := h.group.writes.storage.log.FirstIndex(); first == 1 {
		t.Fatal("setup: the log is whole")
	}
	if err := snapshots.RemoveAll(h.disk, "data", theGroup); err != nil {
		t.Fatal(err)
	}
	h.putReceived(t, func(*snapshot.Manifest) {})
	h.disk.Crash(crashfs.LoseNothing, nil)
	part := h.statePart(t)
	h.disk.SetHook(func(op crashfs.Op) error {
		if op.Kind == crashfs.OpRead && op.Name == part {
			return crashfs.Flip(3, 1)
		}
		return nil
	})
	if err := h.start(); !snapshots.IsDamage(err) || !strings.Contains(err.Error(), "begins at entry") {
		t.Fatalf("a snapshot that is read wrongly: %v", err)
	}
	h.disk.SetHook(nil)
	h.disk.Crash(crashfs.LoseNothing, nil)
	if err := h.start(); err != nil {
		t.Fatalf("when it is read rightly: %v", err)
	}
	if want := []string{"499 a command that was received"}; !slices.Equal(h.keeper.list, want) {
		t.Fatalf("the machine has %q, want %q", h.keeper.list, want)
	}
}

// A group that is closed between the publication and the install of a snapshot, and opened again, begins
// without it.
func TestAnInstallThatACloseInterrupts(t *testing.T) {
	h := openKeeper(t, GroupConfig{}, false)
	h.call(t, nil, "a command")
	info := h.mustTake(t)
	received := h.putReceived(t, func(*snapshot.Manifest) {})
	list := slices.Clone(h.keeper.list)
	for range 2 {
		h.group.Close(gone(t))
		h.manual.runIdle()
		if err := h.group.Close(gone(t)); err != nil {
			t.Fatal(err)
		}
		var err error
		h.keeper = &keeper{}
		if h.group, err = h.OpenGroup(t.Context(), h.config, Commands(h.keeper, h.options())); err != nil {
			t.Fatal(err)
		}
		h.leadAlone(h.group)
		if s := h.group.Status(); !slices.Equal(h.keeper.list, list) || s.FirstIndex != 1 || h.keeper.restored != 1 {
			t.Fatalf("%+v, with %q", s, h.keeper.list)
		}
		if now, ok := h.group.LatestSnapshot(); !ok || now.Index < info.Index || now.Index >= 500 {
			t.Fatalf("the latest snapshot is %+v", now)
		}
		store, err := h.group.snapshots.Store()
		if err != nil || slices.Contains(store.List(), received) {
			t.Fatalf("%v is left, %v", store.List(), err)
		}
		h.mustTake(t)
	}
}

// A snapshot that is not this member's is not installed, and the group begins from its log.
func TestAnInstallThatDoesNotFit(t *testing.T) {
	for name, change := range map[string]func(*snapshot.Manifest){
		"another cluster":   func(m *snapshot.Manifest) { m.Cluster++ },
		"another group":     func(m *snapshot.Manifest) { m.Group++ },
		"another directory": func(m *snapshot.Manifest) { m.Members[0].Incarnation[3]++ },
		"another member":    func(m *snapshot.Manifest) { m.Members[0].ID++; m.Conf.Voters[0]++ },
		"other voters":      func(m *snapshot.Manifest) { m.Conf.Voters = []uint64{1, 2, 3} },
		"no voters":         func(m *snapshot.Manifest) { m.Conf.Voters = nil },
		"a voter twice":     func(m *snapshot.Manifest) { m.Conf.Voters = []uint64{1, 1} },
		"a learner":         func(m *snapshot.Manifest) { m.Conf.Learners = []uint64{2} },
		"a joint one":       func(m *snapshot.Manifest) { m.Conf.VotersOutgoing = []uint64{1, 2, 3} },
		"no block":          func(m *snapshot.Manifest) { m.Host = nil },
	} {
		t.Run(name, func(t *testing.T) {
			h := openKeeper(t, GroupConfig{}, false)
			h.call(t, nil, "a command")
			list := slices.Clone(h.keeper.list)
			h.putReceived(t, change)
			h.restart(t, crashfs.LoseNothing, nil)
			if s := h.group.Status(); !slices.Equal(h.keeper.list, list) || s.FirstIndex != 1 {
				t.Errorf("%+v, with %q", s, h.keeper.list)
			}
		})
	}
	t.Run("damage", func(t *testing.T) {
		h := openKeeper(t, GroupConfig{}, false)
		h.call(t, nil, "a command")
		list := slices.Clone(h.keeper.list)
		h.putReceived(t, func(*snapshot.Manifest) {})
		f, err := h.disk.Open(h.statePart(t))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt([]byte("x"), 1); err != nil {
			t.Fatal(err)
		}
		h.restart(t, crashfs.LoseNothing, nil)
		if s := h.group.Status(); !slices.Equal(h.keeper.list, list) || s.FirstIndex != 1 {
			t.Errorf("%+v, with %q", s, h.keeper.list)
		}
	})
}

// filesKeeper is a keeper whose state is in files, one for each ten commands.
type filesKeeper struct {
	keeper
	disk  *crashfs.FS
	dir   string
	wrote map[string]bool
}

type filesView struct {
	*keeperView
	files []statemachine.File
}

func (v *filesView) WriteTo(context.Context, io.Writer) error { return nil }
func (v *filesView) Files() []statemachine.File               { return v.files }

func (k *filesKeeper) Snapshot() (statemachine.Snapshot, error) {
	v := &filesView{keeperView: &keeperView{keeper: &k.keeper}}
	for i := 0; i < len(k.list); i += 10 {
		part := strings.Join(k.list[i:min(i+10, len(k.list))], "\n")
		name := fmt.Sprintf("file-%d-%d", i, len(part))
		if !k.wrote[name] {
			f, err := k.disk.Create(k.dir + "/" + name)
			if err != nil {
				return nil, err
			}
			if _, err := f.WriteAt([]byte(part), 0); err != nil {
				return nil, err
			}
			f.Close()
			k.wrote[name] = true
		}
		v.files = append(v.files, statemachine.File{Name: name, Path: k.dir + "/" + name})
	}
	return v, nil
}

func (k *filesKeeper) RestoreFiles(_ context.Context, _ io.Reader, files statemachine.SnapshotFiles) error {
	k.list = nil
	for _, name := range files.Names() {
		f, err := files.Open(name)
		if err != nil {
			return err
		}
		part, err := io.ReadAll(f)
		if err != nil {
			return err
		}
		k.list = append(k.list, strings.Split(string(part), "\n")...)
	}
	fmt.Sscan(k.list[len(k.list)-1], &k.index)
	k.restored++
	return nil
}

// A machine hands files over by name, and gets them back.
func TestASnapshotOfFiles(t *testing.T) {
	h := openKeeper(t, GroupConfig{}, false)
	k := &filesKeeper{disk: h.disk, dir: "files", wrote: map[string]bool{}}
	if err := h.disk.MkdirAll(k.dir); err != nil {
		t.Fatal(err)
	}
	config := GroupConfig{ID: 2, Snapshots: SnapshotPolicy{KeepBytes: 1, LogBytes: 100}}
	open := func() (g *Group) {
		g, err := h.OpenGroup(t.Context(), config, Commands(k, statemachine.CommandOptions{}))
		if err != nil {
			t.Fatal(err)
		}
		h.leadAlone(g)
		return g
	}
	g := open()
	for i := range 35 {
		if err := g.Call(&Call{Owner: &answer{}, Data: fmt.Appendf(make([]byte, CallRoom), "command %d", i)}); err != nil {
			t.Fatal(err)
		}
		h.manual.runIdle()
		h.manual.tick()
	}
	if g.Status().FirstIndex < 20 {
		t.Fatalf("setup: %+v", g.Status())
	}
	list := slices.Clone(k.list)
	g.Close(gone(t))
	h.manual.runIdle()
	if err := g.Close(gone(t)); err != nil {
		t.Fatal(err)
	}
	k = &filesKeeper{disk: h.disk, dir: "files", wrote: k.wrote}
	open()
	if k.restored != 1 || !slices.Equal(k.list, list) {
		t.Errorf("restored %d times to %q, want %q", k.restored, k.list, list)
	}
}
