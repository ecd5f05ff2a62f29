package identity

import (
	"reflect"
	"strings"
	"testing"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal"
)

func ours() Settings {
	return Settings{Dir: "/data/1", Cluster: 4, ID: 1, Members: map[uint64]string{1: "a", 2: "b", 3: "c"}}
}

// takeDirectory takes the directory as Open does, lets run use the log, and releases both.
func takeDirectory(disk vfs.FS, s Settings, run func(*wal.Log)) (_ Identity, err error) {
	d, err := Enter(disk, s)
	if err != nil {
		return Identity{}, err
	}
	defer d.Close()
	var log *wal.Log
	err = d.OpenLog(LogDir(s.Dir), func() (err error) {
		e := env.Real()
		log, err = wal.Open(wal.Options{FS: disk, Dir: LogDir(s.Dir), Owner: s.ID, Scheduler: e.Scheduler, Clock: e.Clock, SegmentBytes: 4 << 10, Logger: quiet, Events: func(wal.Event) {}})
		return err
	})
	if err != nil {
		return Identity{}, err
	}
	defer log.Close()
	if err := d.Claim(log.ID(), func() bool { return len(log.Groups()) > 0 }); err != nil {
		return Identity{}, err
	}
	run(log)
	return d.Identity(), nil
}

func start(*wal.Log) {}

func vote(log *wal.Log) {
	err := log.Append([]wal.Write{{Group: 1, HardState: raftpb.HardState{Term: 1, Vote: 2}}})
	if err == nil {
		err = log.Sync()
	}
	if err != nil {
		panic(err)
	}
}

// A directory belongs to the host that has promised something on it. Until then a corrected configuration
// replaces what an earlier start has written, also in the log.
func TestDirectoryBelongsToAHostThatHasVoted(t *testing.T) {
	other := ours()
	other.ID, other.Cluster = 2, 5
	disk := crashfs.New()
	first, err := takeDirectory(disk, ours(), start)
	if err != nil || first.ID != 1 || first.Incarnation == (transport.Incarnation{}) || len(first.Founders) != 3 {
		t.Fatalf("%+v, %v", first, err)
	}
	if again, err := takeDirectory(disk, ours(), start); err != nil || again.Incarnation != first.Incarnation {
		t.Errorf("a second start: %+v, %v; want %v", again, err, first.Incarnation)
	}
	corrected, err := takeDirectory(disk, other, vote)
	if err != nil || corrected.ID != 2 || corrected.Cluster != 5 {
		t.Errorf("a corrected configuration: %+v, %v", corrected, err)
	}
	if _, err := takeDirectory(disk, ours(), start); err == nil || !strings.Contains(err.Error(), "belongs to host 2") {
		t.Errorf("another host's directory: %v", err)
	}
}

// Another list, before the log has an entry, is another founding. The first list makes it the first one.
func TestFirstListAgain(t *testing.T) {
	whole, shorter := ours(), ours()
	whole.Cluster, shorter.Cluster = 0, 0
	shorter.Members = map[uint64]string{1: "a", 2: "b"}
	disk := crashfs.New()
	first, err := takeDirectory(disk, whole, start)
	if err != nil {
		t.Fatal(err)
	}
	if between, err := takeDirectory(disk, shorter, start); err != nil || len(between.Founders) != 2 || between.Cluster == first.Cluster {
		t.Errorf("a shorter list: %+v, %v", between, err)
	}
	if last, err := takeDirectory(disk, whole, vote); err != nil || !reflect.DeepEqual(last, first) {
		t.Errorf("the first list again: %+v, %v; want %+v", last, err, first)
	}
	if after, err := takeDirectory(disk, shorter, start); err != nil || !reflect.DeepEqual(after, first) {
		t.Errorf("a shorter list of a host that has voted: %+v, %v; want %+v", after, err, first)
	}
}

// An identity and its log stay together, and what a rescue or a restore has left half done is not used.
func TestDirectoryIsRefused(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(disk *crashfs.FS)
		want   string
	}{
		{"no identity", func(disk *crashfs.FS) { remove(t, disk, File) }, "log with entries or votes, but no identity.json"},
		{"no log", func(disk *crashfs.FS) {
			names, err := disk.ReadDir("/data/1/log")
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range names {
				remove(t, disk, "log/"+name)
			}
		}, "its log is missing"},
		{"a rescue", func(disk *crashfs.FS) { put(t, disk, RescuingFile, "{}") }, "a rescue of directory /data/1 has begun"},
		{"a restore", func(disk *crashfs.FS) { put(t, disk, RestoringFile, "{}") }, "a restore in directory /data/1 has not ended"},
	} {
		disk := crashfs.New()
		if _, err := takeDirectory(disk, ours(), vote); err != nil {
			t.Fatal(err)
		}
		row.change(disk)
		if _, err := takeDirectory(disk, ours(), start); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v, want %q", row.name, err, row.want)
		}
	}
}

func remove(t *testing.T, disk *crashfs.FS, name string) {
	t.Helper()
	if err := disk.Remove("/data/1/" + name); err != nil {
		t.Fatal(err)
	}
}
