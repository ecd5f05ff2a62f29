package rescue

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/internal/identity"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal"
)

var quiet = slog.New(slog.DiscardHandler)

// end is where the log of a directory ends: a founding, and then commands of these terms.
type end struct {
	host   uint64
	terms  []uint64
	commit uint64
}

func (e end) dir() string { return fmt.Sprintf("/data/%d", e.host) }

// directories makes the directories of hosts of a group with five members.
func directories(t *testing.T, fsys vfs.FS, ends ...end) {
	t.Helper()
	logs := map[uint64]host.Log{}
	var members entry.Binding
	for id := uint64(1); id <= 5; id++ {
		m := entry.BoundMember{ID: id, Incarnation: transport.Incarnation{9, byte(id)}}
		if at := slices.IndexFunc(ends, func(e end) bool { return e.host == id }); at >= 0 {
			dir := identity.LogDir(ends[at].dir())
			if err := fsys.MkdirAll(dir); err != nil {
				t.Fatal(err)
			}
			log, err := host.OpenWAL(host.LogConfig{FS: fsys, Dir: dir, Owner: id, Scheduler: env.Real().Scheduler, Clock: env.Real().Clock,
				SegmentBytes: 64 << 10, CacheBytes: -1, Logger: quiet, Events: func(wal.Event) {}})
			if err != nil {
				t.Fatal(err)
			}
			logs[id], m.Incarnation = log, transport.Incarnation(log.ID())
		}
		members = append(members, m)
	}
	for _, e := range ends {
		entries := []raftpb.Entry{
			{Type: raftpb.EntryHost, Term: 1, Index: 1, Data: entry.EncodeFound(members)},
			{Type: raftpb.EntryHost, Term: 1, Index: 2, Data: entry.EncodeFounded()},
		}
		for _, term := range e.terms {
			entries = append(entries, raftpb.Entry{Term: term, Index: uint64(len(entries) + 1), Data: []byte("command")})
		}
		log := logs[e.host]
		w := wal.Write{Group: 1, HardState: raftpb.HardState{Term: entries[len(entries)-1].Term, Commit: e.commit}, Entries: entries}
		id := identity.Identity{Version: identity.Version, Cluster: 7, ID: e.host, Incarnation: transport.Incarnation(log.ID())}
		if err := errors.Join(log.Append([]wal.Write{w}), log.Sync(), log.Close(), identity.WriteFile(fsys, e.dir(), identity.File, id)); err != nil {
			t.Fatal(err)
		}
	}
}

// The directory whose log ends with the highest term is the best, then the one with the highest index. What
// it has behind the highest commit index is in doubt.
func TestBestDirectory(t *testing.T) {
	for _, c := range []struct {
		a, b               end
		best               uint64
		committed, doubted int
	}{
		{end{1, []uint64{2, 2, 2}, 3}, end{2, []uint64{2, 2}, 4}, 1, 4, 1},
		{end{1, []uint64{2, 2, 2}, 5}, end{2, []uint64{3}, 2}, 2, 3, 0},
		{end{1, []uint64{2}, 2}, end{2, []uint64{2, 2}, 2}, 2, 2, 2},
	} {
		disk := crashfs.New()
		directories(t, disk, c.a, c.b)
		for _, dirs := range [][]string{{c.a.dir(), c.b.dir()}, {c.b.dir(), c.a.dir()}} {
			report, err := Rescue{Dirs: dirs}.Run(t.Context(), Options{FS: disk, Logger: quiet})
			if err != nil || len(report.Refused) > 0 || report.Host != c.best || report.Done {
				t.Fatalf("%+v and %+v: %v, %+v", c.a, c.b, err, report)
			}
			if g := report.Groups[0]; int(g.Committed) != c.committed || len(g.Doubtful) != c.doubted {
				t.Errorf("%+v and %+v: %d entries are committed and %d in doubt, want %d and %d", c.a, c.b, g.Committed, len(g.Doubtful), c.committed, c.doubted)
			}
		}
	}
}

// With three of five directories a quorum is left, and nothing is rescued.
func TestQuorumNeedsNoRescue(t *testing.T) {
	disk := crashfs.New()
	ends := []end{{1, []uint64{2}, 3}, {2, []uint64{2}, 3}, {3, []uint64{2}, 3}}
	directories(t, disk, ends...)
	r := Rescue{Dirs: []string{ends[0].dir(), ends[1].dir(), ends[2].dir()}, Write: true, AcceptLoss: true}
	report, err := r.Run(t.Context(), Options{FS: disk, Logger: quiet})
	if !errors.Is(err, ErrNotRescued) || !strings.Contains(strings.Join(report.Refused, "\n"), "has lost no majority") {
		t.Errorf("%v, %+v", err, report)
	}
}

// The power fails at every third operation of the disk in turn, and each time the rescue is run again. Then
// the directory is that of one new cluster, and the group in it ends with the entry of the rescue. (The race
// detector, for which tests are short, watches each read of a zero byte: it gets every twelfth.)
func TestRescueIsRepeatable(t *testing.T) {
	survivor := end{2, []uint64{2, 2, 3}, 4}
	r := Rescue{Dirs: []string{survivor.dir()}, Write: true, AcceptLoss: true}
	step := int64(3)
	if testing.Short() {
		step = 40 // it reads whole segments each time, which the race detector watches byte for byte
	}
	for crashAt := int64(1); ; crashAt += step {
		disk := crashfs.New()
		directories(t, disk, survivor)
		var ops atomic.Int64 // the log makes segments beside the rescue
		disk.SetHook(func(op crashfs.Op) error {
			if op.Kind == crashfs.OpOpen || op.Kind == crashfs.OpRead || op.Kind == crashfs.OpReadDir {
				return nil
			}
			if ops.Add(1) == crashAt {
				disk.Crash(crashfs.LoseAll, nil)
			}
			return nil
		})
		if _, err := r.Run(t.Context(), Options{FS: disk.Mount(), Logger: quiet}); err == nil {
			if crashAt < 30 {
				t.Errorf("a rescue has %d operations", ops.Load())
			}
			return
		}
		mounted := disk.Mount()
		report, err := r.Run(t.Context(), Options{FS: mounted, Logger: quiet})
		if err != nil || !report.Done {
			t.Fatalf("after %d operations: %v, %+v", crashAt, err, report)
		}
		id, _, err := identity.Read(mounted, survivor.dir())
		if err != nil || id.Cluster != report.Cluster || id.Incarnation != report.Incarnation || id.Cluster == 7 {
			t.Fatalf("after %d operations: %+v, %v; the rescue says %+v", crashAt, id, err, report)
		}
		in, err := wal.Inspect(t.Context(), wal.InspectOptions{FS: mounted, Dir: identity.LogDir(survivor.dir())})
		if err != nil || len(in.Groups) != 1 || in.Groups[0].Last != 6 || in.Groups[0].Commit != 6 || len(in.Findings) > 0 {
			t.Fatalf("after %d operations: %v, %+v", crashAt, err, in)
		}
		if err := in.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
