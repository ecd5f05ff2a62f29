package wal

import (
	"errors"
	"fmt"
	"path"
	"syscall"
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/vfs/crashfs"
)

// opening is what the tests of failed opens do with a log: it rolls, recycles, compacts, is swept, votes,
// reads cold segments and ends its amnesia. try is called with what may be refused for lack of a descriptor,
// until it is not.
type opening struct {
	t    *testing.T
	log  *Log
	want twin
	run  func()
}

// try repeats do while a descriptor is missing. Any other error, or one that is never over, fails the test.
func (o *opening) try(what string, do func() error) {
	o.t.Helper()
	for range 64 {
		err := do()
		if err == nil {
			return
		}
		if !vfs.IsShort(err) || errors.Is(err, ErrDiskFailed) {
			o.t.Fatalf("%s: %v", what, err)
		}
		o.run()
	}
	o.t.Fatalf("%s is never possible again", what)
}

func (o *opening) append(writes ...Write) {
	o.t.Helper()
	o.try("append", func() error { return o.log.Append(writes) })
	o.want.apply(writes)
	mustSync(o.t, o.log)
	o.run()
}

// live gives the log everything to do for which it opens something after Open.
func (o *opening) live() {
	o.t.Helper()
	o.append(Write{Group: 1, HardState: raftpb.HardState{Term: 1}, Entries: entries(1, 3, 1, 30)})
	for i := uint64(1); i < 24; i++ {
		o.append(Write{Group: 2, HardState: raftpb.HardState{Term: i, Vote: 1 + i%3}, Entries: entries(i, i+1, i, 900)})
		if i%6 == 0 {
			o.append(Write{Group: 2, CompactThrough: i - 2})
		}
	}
	o.try("read", func() error {
		_, err := o.log.Group(1).Entries(1, 3, 1<<20)
		return err
	})
	o.try("end of amnesia", o.log.CaughtUp)
	o.append(Write{Group: 3, Entries: entries(1, 40, 1, 500)})
	o.append(Write{Group: 1, CompactThrough: 1})
}

// A process has no descriptor left for a while, at each open of the log in turn. The log stops never, what
// it refuses can be done later, and what it has acknowledged is there after a power cut. (Seen: a directory
// that could not be opened was taken for a sync that had failed, which is final; so was FENCE that could not
// be opened.)
func TestNoOpenEndsTheLog(t *testing.T) {
	enumerates(t)
	causes := []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM}
	for _, times := range []int{1, 3, 8} {
		for nth, hit := 1, 1; hit > 0 && !t.Failed(); nth++ {
			t.Run(fmt.Sprintf("%d from open %d on", times, nth), func(t *testing.T) {
				disk, sched := crashfs.New(), &manual{}
				opts := testOptions(disk, sched)
				opts.CacheBytes = -1
				l := mustOpen(t, opts)
				hit = 0
				fail := crashfs.FailOpens(nth, times, causes[nth%len(causes)])
				disk.SetHook(func(op crashfs.Op) error {
					err := fail(op)
					if err != nil {
						hit++
					}
					return err
				})
				o := opening{t: t, log: l, want: twin{}, run: sched.runIdle}
				o.live()
				if err := l.failure(); err != nil {
					t.Fatal(err)
				}
				disk.SetHook(nil)
				o.want.check(t, l)
				if nth%2 == 0 {
					mustClose(t, l)
				}
				disk.Crash(crashfs.LoseAll, nil)
				o.want.check(t, mustOpen(t, opts))
			})
		}
	}
}

// The log opens nothing but segments and spares while it works: its directory and FENCE are held until
// Close. So the table of host/testdata/opens.md says all that may be refused.
func TestLogHoldsItsDirectory(t *testing.T) {
	disk, sched := crashfs.New(), &manual{}
	opts := testOptions(disk, sched)
	opts.CacheBytes = -1
	l := mustOpen(t, opts)
	seen := map[string]bool{}
	disk.SetHook(func(op crashfs.Op) error {
		if op.Kind.Opens() {
			seen[op.Kind.String()+" "+path.Ext(op.Name)] = true
		}
		return nil
	})
	o := opening{t: t, log: l, want: twin{}, run: sched.runIdle}
	o.live()
	mustClose(t, l)
	want := map[string]bool{"create .wal": true, "open .wal": true, "create .spare": true, "open .spare": true}
	for what := range seen {
		if !want[what] {
			t.Errorf("after Open: %s", what)
		}
	}
	for what := range want {
		if !seen[what] {
			t.Errorf("never seen: %s", what)
		}
	}
}
