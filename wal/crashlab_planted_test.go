package wal_test

import (
	"io/fs"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/vfs/crashfs"
)

// A laboratory that finds nothing has not been tested. Here it examines logs on disks and filesystems that
// are wrong on purpose. It must find each mistake.

// plantedImages bounds the search for one planted mistake, and plantedTime only a search that hangs: what is
// found must not depend on what else the machine does.
const (
	plantedImages = 300_000
	plantedTime   = 10 * time.Minute
)

func TestCrashLabFindsPlantedMistakes(t *testing.T) {
	on := func(w crashfs.When, effect error) func(*crashLab) {
		return func(l *crashLab) { l.faults = hide(l, w.Do(effect)) }
	}
	for _, row := range []struct {
		name  string // rows with a word in capitals are found soonest, and also run with -short
		plant func(*crashLab)
	}{
		{"DIRECTORIES are never synced", on(crashfs.When{Kind: crashfs.OpSyncDir}, crashfs.Lie)},
		{"the first sync of the directory that matters is left out", on(crashfs.When{Kind: crashfs.OpSyncDir, Nth: labFirstDirSync}, crashfs.Lie)},
		{"the one after that is left out", on(crashfs.When{Kind: crashfs.OpSyncDir, Nth: labFirstDirSync + 1}, crashfs.Lie)},
		{"DATA is never synced", on(crashfs.When{Kind: crashfs.OpSync}, crashfs.Lie)},
		{"the 2nd sync of data is left out", on(crashfs.When{Kind: crashfs.OpSync, Nth: 2}, crashfs.Lie)},
		{"the 3rd sync of data is left out", on(crashfs.When{Kind: crashfs.OpSync, Name: labSegments, Nth: 3}, crashfs.Lie)},
		{"the 5th sync of data is left out", on(crashfs.When{Kind: crashfs.OpSync, Name: labSegments, Nth: 5}, crashfs.Lie)},
		{"the 9th sync of data is left out", on(crashfs.When{Kind: crashfs.OpSync, Name: labSegments, Nth: 9}, crashfs.Lie)},
		{"a write is lost", on(crashfs.When{Kind: crashfs.OpWrite, Name: labSegments, Nth: 4}, crashfs.Lie)},
		{"a write is cut short without a check", on(crashfs.When{Kind: crashfs.OpWrite, Name: labSegments, Nth: 4}, crashfs.Short(72, nil))},
		{"a write goes to the next sector", on(crashfs.When{Kind: crashfs.OpWrite, Name: labSegments, Nth: 5}, crashfs.Misdirect(crashfs.SectorBytes))},
		{"a bit is turned over in a write", on(crashfs.When{Kind: crashfs.OpWrite, Name: labSegments, Nth: 5}, crashfs.Flip(130, 3))},
		{"a failed sync of the directory is tried again", func(l *crashLab) {
			l.faults = hide(l, crashfs.When{Kind: crashfs.OpSyncDir, Nth: labFirstDirSync}.Do(syscall.EIO))
			l.plant = func(fs vfs.FS) vfs.FS { return retryingDirs{fs} }
		}},
		{"a failed sync is tried again", func(l *crashLab) {
			l.faults = hide(l, crashfs.When{Kind: crashfs.OpSync, Name: labSegments, Nth: 4}.Do(syscall.EIO))
			l.plant = func(fs vfs.FS) vfs.FS { return wrapped{FS: fs, file: func(f vfs.File) vfs.File { return retrying{f} }} }
		}},
		{"writes reach the disk after the sync that should have covered them", func(l *crashLab) {
			l.plant = func(fs vfs.FS) vfs.FS {
				return wrapped{FS: fs, noDirect: true, file: func(f vfs.File) vfs.File { return &late{File: f} }}
			}
		}},
		{"what RECOVERY found is not synced", func(l *crashLab) {
			l.plant = func(fs vfs.FS) vfs.FS {
				w := &firstSync{}
				return wrapped{FS: fs, file: func(f vfs.File) vfs.File { return skipping{f, w} }}
			}
		}},
	} {
		if testing.Short() && row.name == strings.ToLower(row.name) {
			continue
		}
		t.Run(row.name, func(t *testing.T) {
			stats, failure := runLabs(1, plantedImages, plantedTime, false, func(seed uint64) *crashLab {
				l := newCrashLab(seed)
				l.faults = nil
				row.plant(l)
				return l
			})
			if failure == "" {
				t.Fatalf("not found in %v", &stats)
			}
			t.Logf("found in workload %d, after %d images", stats.seeds, stats.total())
		})
	}
}

// TestCrashLabReplays replays the path of a failure. The replay must find the same failure, and must examine
// no other image.
func TestCrashLabReplays(t *testing.T) {
	plant := func(seed uint64) *crashLab {
		l := newCrashLab(seed)
		l.faults = hide(l, crashfs.When{Kind: crashfs.OpSync}.Do(crashfs.Lie))
		return l
	}
	failure, seed := "", uint64(0)
	for ; failure == ""; seed++ {
		failure = plant(seed).run()
	}
	line, rest, _ := strings.Cut(failure, "\n")
	_, found, _ := strings.Cut(rest, "-crashlab.replay=")
	found, _, _ = strings.Cut(found, "\n")
	from, path, err := parseLabPath(found)
	if err != nil || from != seed-1 || len(path) == 0 {
		t.Fatalf("the path %q: seed %d, %v, %v", found, from, path, err)
	}
	l := plant(from)
	l.replay = path
	if again, _, _ := strings.Cut(l.run(), "\n"); again != line {
		t.Errorf("the replay says\n%s\nafter\n%s", again, line)
	}
	if l.stats.images > 0 {
		t.Errorf("the replay looked at %d other images", l.stats.images)
	}
}

// hide returns the hook of a fault, and keeps the laboratory from knowing of it. So the laboratory does not
// excuse what the fault breaks.
func hide(l *crashLab, hook func(crashfs.Op) error) func(crashfs.Op) error {
	l.hidden = true
	return hook
}

// wrapped is a filesystem that wraps each of its files.
type wrapped struct {
	vfs.FS
	file     func(vfs.File) vfs.File
	noDirect bool
}

func (w wrapped) Create(name string) (vfs.File, error) { return w.wrap(w.FS.Create(name)) }
func (w wrapped) Open(name string) (vfs.File, error)   { return w.wrap(w.FS.Open(name)) }

func (w wrapped) wrap(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return w.file(f), nil
}

func (w wrapped) OpenDirect(name string) (vfs.BlockWriter, error) {
	if w.noDirect {
		return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.ENOTSUP}
	}
	return w.FS.OpenDirect(name)
}

// retrying is the mistake that lost data of PostgreSQL's users: after a failed sync it syncs again, and the
// second sync succeeds.
type retrying struct{ vfs.File }

func (r retrying) Sync() error {
	if err := r.File.Sync(); err == nil {
		return nil
	}
	return r.File.Sync()
}

// retryingDirs is the same mistake with directories.
type retryingDirs struct{ vfs.FS }

func (r retryingDirs) OpenDir(dir string) (vfs.Dir, error) {
	d, err := r.FS.OpenDir(dir)
	return retryingDir{d}, err
}

type retryingDir struct{ vfs.Dir }

func (d retryingDir) Sync() error {
	if err := d.Dir.Sync(); err == nil {
		return nil
	}
	return d.Dir.Sync()
}

// late delays the last write until the next sync has finished.
type late struct {
	vfs.File
	mu   sync.Mutex
	data []byte
	off  int64
}

func (f *late) WriteAt(p []byte, off int64) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.release(); err != nil {
		return 0, err
	}
	f.data, f.off = append([]byte(nil), p...), off
	return len(p), nil
}

func (f *late) release() error {
	if f.data == nil {
		return nil
	}
	_, err := f.File.WriteAt(f.data, f.off)
	f.data = nil
	return err
}

func (f *late) ReadAt(p []byte, off int64) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.release(); err != nil {
		return 0, err
	}
	return f.File.ReadAt(p, off)
}

func (f *late) Sync() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.File.Sync(); err != nil {
		return err
	}
	return f.release()
}

func (f *late) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.release(); err != nil {
		return err
	}
	return f.File.Close()
}

// firstSync says whether a life of the log has synced yet.
type firstSync struct{ done bool }

// skipping skips the first sync of each life.
type skipping struct {
	vfs.File
	first *firstSync
}

func (s skipping) Sync() error {
	if !s.first.done {
		s.first.done = true
		return nil
	}
	return s.File.Sync()
}
