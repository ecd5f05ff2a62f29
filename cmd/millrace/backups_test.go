package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace"
)

// schedule is a schedule of backups in virtual time, with a host that fails as its script says.
type schedule struct {
	backups
	t      *testing.T
	time   time.Time
	waited []time.Duration
	script []error // of each backup; after the last one the schedule gets its signal
	stop   context.CancelFunc
	good   []byte
	index  uint64
}

func newSchedule(t *testing.T, dir string, keep int, script ...error) (*schedule, context.Context) {
	t.Helper()
	_, archive := writeHost(t)
	good, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	s := &schedule{t: t, time: time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC), script: script, good: good}
	ctx, stop := context.WithCancel(t.Context())
	s.stop = stop
	s.backups = backups{
		of: saving{dir: "host", group: 1}, to: dir, keep: keep, every: time.Hour, stall: time.Minute,
		now: func() time.Time { return s.time },
		wait: func(ctx context.Context, d time.Duration) error {
			if len(s.script) == 0 {
				stop()
			}
			s.waited, s.time = append(s.waited, d), s.time.Add(d)
			return ctx.Err()
		},
		save: func(of saving, ctx context.Context) (*saved, error) {
			fails := s.script[0]
			s.script = s.script[1:]
			s.index++
			_, err := of.archive(func(w io.Writer) (int64, error) {
				data := slices.Clone(s.good)
				if errors.Is(fails, errDamaged) {
					data[len(data)-1] ^= 1
				}
				n, err := w.Write(data)
				if fails != nil && !errors.Is(fails, errDamaged) {
					err = fails
				}
				return int64(n), err
			})
			return &saved{Group: 1, Index: s.index}, err
		},
	}
	return s, ctx
}

// errDamaged makes the archive of a schedule one whose last byte is wrong.
var errDamaged = errors.New("damaged")

// run runs the schedule to its signal, and returns what it said on standard error.
func (s *schedule) run(ctx context.Context) (stdout, stderr string) {
	s.t.Helper()
	errs, err := os.CreateTemp(s.t.TempDir(), "stderr")
	if err != nil {
		s.t.Fatal(err)
	}
	defer errs.Close()
	var out strings.Builder
	if err := s.backups.run(ctx, app{stdout: &out, stderr: errs}, false); err != nil {
		s.t.Errorf("the schedule ended with %v, want nil after its signal", err)
	}
	text, err := os.ReadFile(errs.Name())
	if err != nil {
		s.t.Fatal(err)
	}
	return out.String(), string(text)
}

func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// A backup that fails is tried again after growing times, and removes nothing: neither the good ones, nor
// files of others. A draft never gets a name.
func TestScheduleRetriesAndKeeps(t *testing.T) {
	dir := t.TempDir()
	for _, other := range []string{"notes", "group-2-20200101T000000Z-00000000000000000001.archive", "group-1-yesterday.archive"} {
		if err := os.WriteFile(filepath.Join(dir, other), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	full := errors.New("no space left")
	s, ctx := newSchedule(t, dir, 2, nil, nil, nil, full, errDamaged, full, full, full, full, full, full, full, full, full, nil)
	stdout, stderr := s.run(ctx)
	seconds := func(n int) time.Duration { return time.Duration(n) * time.Second }
	want := []time.Duration{0, time.Hour, time.Hour, time.Hour,
		seconds(10), seconds(20), seconds(40), seconds(80), seconds(160), seconds(320), seconds(640), seconds(1280), seconds(2560), time.Hour, time.Hour, time.Hour}
	if !slices.Equal(s.waited, want) {
		t.Errorf("waited %v, want %v", s.waited, want)
	}
	if strings.Count(stdout, "saved ") != 4 || strings.Count(stderr, "no backup: no space left; the next try is in ") != 10 ||
		strings.Count(stderr, "is read back wrong") != 1 {
		t.Errorf("%s%s", stdout, stderr)
	}
	have := names(t, dir)
	if kept := []string{".group-1", "group-1-20261128T140000Z-00000000000000000003.archive", "group-1-20261128T182510Z-00000000000000000015.archive",
		"group-1-yesterday.archive", "group-2-20200101T000000Z-00000000000000000001.archive", "notes"}; !slices.Equal(have, kept) {
		t.Errorf("there are %q, want %q", have, kept)
	}
	if left := names(t, filepath.Join(dir, ".group-1")); !slices.Equal(left, []string{"LOCK"}) {
		t.Errorf("left behind: %q", left)
	}
}

// After a restart the next backup is due when it would have been. What a killed program has left is removed.
func TestScheduleResumes(t *testing.T) {
	dir := t.TempDir()
	first, ctx := newSchedule(t, dir, 3, nil)
	first.run(ctx)
	if err := os.WriteFile(filepath.Join(dir, ".group-1", "draft"), []byte("torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	second, ctx := newSchedule(t, dir, 3, nil)
	second.time = second.time.Add(20 * time.Minute)
	second.index = 1
	second.run(ctx)
	if want := []time.Duration{40 * time.Minute, time.Hour}; !slices.Equal(second.waited, want) {
		t.Errorf("waited %v, want %v", second.waited, want)
	}
	if have := len(names(t, dir)); have != 3 {
		t.Errorf("%q", names(t, dir))
	}

	// The clock was a year ahead, and is right again: the new backup stays although its name is the lowest.
	third, ctx := newSchedule(t, dir, 1, nil)
	third.time = third.time.AddDate(-1, 0, 0)
	third.run(ctx)
	if have := names(t, dir); len(have) != 2 || have[1] != "group-1-20251128T120000Z-00000000000000000001.archive" {
		t.Errorf("%q", have)
	}
}

// A host that sends nothing is given up, and the signal of the end breaks a backup off.
func TestScheduleEndsABackup(t *testing.T) {
	dir := t.TempDir()
	s, ctx := newSchedule(t, dir, 0, nil)
	s.stall = time.Millisecond
	s.save = func(of saving, ctx context.Context) (*saved, error) {
		s.script = nil
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	if _, stderr := s.run(ctx); !strings.Contains(stderr, "no backup: the host has sent nothing of the backup for 1ms") {
		t.Error(stderr)
	}
	s, ctx = newSchedule(t, dir, 0, nil)
	s.save = func(of saving, ctx context.Context) (*saved, error) {
		return nil, errors.Join(func() error {
			_, err := of.archive(func(w io.Writer) (int64, error) { s.stop(); return 0, ctx.Err() })
			return err
		}(), ctx.Err())
	}
	if _, stderr := s.run(ctx); stderr != "" {
		t.Error(stderr)
	}
	if have := names(t, filepath.Join(dir, ".group-1")); !slices.Equal(have, []string{"LOCK"}) {
		t.Errorf("%q", have)
	}
}

// A running host is saved into a directory twice, and once to standard output; and what is refused.
func TestSaveToADirectory(t *testing.T) {
	t.Chdir(t.TempDir())
	n := openCounterWith(t, millrace.Config{ID: 1, Dir: "one", Members: map[uint64]string{1: "127.0.0.1:7001"}, Listen: "127.0.0.1:0", AdminSocket: true})
	propose(t, n, 7, 7)
	is := func(want int, text string, args ...string) string {
		t.Helper()
		status, out, wrong := askAll(t, args...)
		if status != want || !strings.Contains(out+wrong, text) {
			t.Errorf("%v: status %d, want %d, and %q: %s%s", args, status, want, text, out, wrong)
		}
		return out
	}
	is(exitCannot, "make the directory first", "save", "one", "--to", "backups")
	if err := os.Mkdir("backups", 0o700); err != nil {
		t.Fatal(err)
	}
	is(exitOK, "saved       backups/group-1-", "save", "one", "--to", "backups", "--keep", "1")
	one := names(t, "backups")[1]
	is(exitOK, "whole", "verify", filepath.Join("backups", one))
	if err := os.WriteFile("stream", []byte(is(exitOK, "saved       standard output", "save", "one", "--to", "-")), 0o600); err != nil {
		t.Fatal(err)
	}
	is(exitOK, "whole", "verify", "stream")
	for _, c := range []struct{ text, args string }{
		{"want one of the two", "save one file --to backups"},
		{"--to is empty", "save one --to="},
		{"name it with --to", "save one file --every 1h"},
		{"name it with --to", "save one --to - --keep 3"},
		{"--every is 1ms, want 1s to", "save one --to backups --every 1ms"},
		{"--every is -1h0m0s, want 1s to", "save one --to backups --every -1h"},
		{"--keep is -1, want 0 to 100000", "save one --to backups --keep -1"},
		{"--snapshot-only is for a stopped host", "save one --to backups --every 1h --snapshot-only"},
		{"want a directory and a file, or a directory and --to, have 1", "save one"},
		{"invalid argument", "save one --to backups --every daily"},
	} {
		is(exitUsage, c.text, strings.Fields(c.args)...)
	}
	// The schedule of a real host, to its signal.
	ctx, cancel := context.WithCancelCause(t.Context())
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	ended := make(chan string, 1)
	go func() {
		status, out, wrong := runVerb(t, ctx, "snapshot", "save", "one", "--to", "backups", "--every", "1s", "--keep", "2")
		ended <- fmt.Sprint(status, out, wrong)
	}()
	for len(names(t, "backups")) < 3 {
		<-look.C
	}
	is(exitCannot, "another program makes backups of group 1", "save", "one", "--to", "backups")
	cancel(errInterrupted)
	if said := <-ended; !strings.HasPrefix(said, "0saved") {
		t.Error(said)
	}
	if err := n.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}
