package host

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/host/flight"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/vfs"
)

const (
	flightFolder = "flight"
	flightSuffix = ".flight"
	flightDraft  = "flight.new"
	// maxFlightFiles are kept; the oldest are removed.
	maxFlightFiles = 16
	// maxFlightsOfStops is the most files that one life of a host writes by itself. When the log fails all
	// groups stop at once, and a few of them show why.
	maxFlightsOfStops = 8
)

// newFlightRecorder makes the recorder and its worker, if Config.FlightRecorder is set.
func (h *Host) newFlightRecorder() *flightRecorder {
	if h.config.FlightRecorder.Bytes == 0 {
		return nil
	}
	f := &flightRecorder{host: h}
	f.recorder = flight.NewRecorder(h.config.FlightRecorder.Bytes, h.config.FlightRecorder.Data, h.env.env.Clock.Now)
	f.task = h.env.env.Scheduler.Go(fmt.Sprintf("host %d flight recorder", h.config.ID), env.Disk, f)
	return f
}

// newNode starts the core of a group that is being opened, which the recorder observes.
func (f *flightRecorder) newNode(group uint64, c raft.Config, s flight.Storage) (*flight.Node, error) {
	if f == nil {
		return flight.NewNode(c, s, nil)
	}
	return f.recorder.NewNode(group, c, s)
}

// parts are what must end before the host is closed.
func (f *flightRecorder) parts() []part {
	if f == nil {
		return nil
	}
	return []part{{fixed("the flight recorder, which writes a file about a group that has stopped"), joined(f.task.Stop)}}
}

// groupStopped makes the worker write a file about a group, unless it has stopped because this member was
// removed, which is no failure. It never blocks.
func (f *flightRecorder) groupStopped(id uint64, cause error) {
	if f == nil || errors.Is(cause, outcome.ErrMemberRemoved) {
		return
	}
	f.mu.Lock()
	full := f.written+len(f.waiting) >= maxFlightsOfStops
	if !full {
		f.waiting = append(f.waiting, stoppedGroup{id, cause})
	}
	f.mu.Unlock()
	if !full {
		f.task.Wake()
	}
}

// did is what the group has done.
func (g stoppedGroup) did() string {
	if errors.Is(g.cause, outcome.ErrMachineHalted) {
		return "has halted its machine"
	}
	return "has stopped"
}

// RunOnce implements env.Worker: one file.
func (f *flightRecorder) RunOnce() (more bool) {
	f.mu.Lock()
	if len(f.waiting) == 0 {
		f.mu.Unlock()
		return false
	}
	g := f.waiting[0]
	f.waiting = f.waiting[1:]
	f.written++
	more = len(f.waiting) > 0
	f.mu.Unlock()
	logger := f.host.env.logger
	path, err := f.dump(fmt.Sprintf("group %d %s: %v", g.id, g.did(), g.cause), g.id)
	if err != nil {
		logger.Warn("millrace: the flight recorder cannot write what it has of a group that has stopped, or whose machine is halted; DumpFlight may try again", "group", g.id, "host", f.host.config.ID, "err", err)
		return more
	}
	logger.Warn("millrace: the flight recorder has written the last inputs of a group that has stopped, or whose machine is halted; millrace sim replay explains them", "group", g.id, "host", f.host.config.ID, "file", path)
	return more
}

// WriteFlight writes what the flight recorder has of the given groups, or of all if none are given, as a file
// of package host/flight. The groups go on meanwhile. It needs Config.FlightRecorder.
func (h *Host) WriteFlight(w io.Writer, reason string, groups ...uint64) error {
	if h.reports.flight == nil {
		return outcome.ErrNoFlightRecorder
	}
	return h.reports.flight.recorder.WriteTo(w, h.reports.flight.meta(reason), groups...)
}

// DumpFlight writes what the flight recorder has of the given groups, or of all if none are given, to a new
// file, and returns its path. The file is in Dir/flight, and only the owner can read it. It gets its name
// when it is whole and durable. The latest 16 files are kept. DumpFlight needs Config.FlightRecorder, and a
// host that is not closed: WriteFlight works afterwards, too.
func (h *Host) DumpFlight(ctx context.Context, reason string, groups ...uint64) (path string, err error) {
	if h.reports.flight == nil {
		return "", outcome.ErrNoFlightRecorder
	}
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	if h.shutdown.closing.Load() { // the directory may be another process's already
		return "", fmt.Errorf("%w; WriteFlight works", outcome.ErrStopped)
	}
	return h.reports.flight.dump(reason, groups...)
}

func (f *flightRecorder) meta(reason string) flight.Meta {
	return flight.Meta{
		Host:       f.host.config.ID,
		Cluster:    f.host.trust.directory.Identity().Cluster,
		Version:    flight.Version(),
		Reason:     reason,
		WallMillis: time.Now().UnixMilli(),
		Tick:       f.host.config.tickPeriod(),
	}
}

// dump writes a file.
func (f *flightRecorder) dump(reason string, groups ...uint64) (path string, err error) {
	f.files.Lock()
	defer f.files.Unlock()
	fsys, dir := f.host.env.fs, filepath.Join(f.host.config.Dir, flightFolder)
	defer func() {
		if err != nil {
			path, err = "", fmt.Errorf("millrace: write a file of the flight recorder in %s: %w", dir, err)
		}
	}()
	if err := errors.Join(fsys.MkdirAll(dir), vfs.SyncDir(fsys, f.host.config.Dir)); err != nil {
		return "", err
	}
	numbers, err := flightFiles(fsys, dir)
	if err != nil {
		return "", err
	}
	next := uint64(1)
	if n := len(numbers); n > 0 {
		next = numbers[n-1] + 1
	}
	draft := filepath.Join(dir, flightDraft)
	if err := f.writeDraft(fsys, draft, reason, groups); err != nil {
		return "", err
	}
	path = filepath.Join(dir, flightName(next))
	if err := fsys.Rename(draft, path); err != nil {
		return "", err
	}
	for ; len(numbers) >= maxFlightFiles; numbers = numbers[1:] {
		if err := fsys.Remove(filepath.Join(dir, flightName(numbers[0]))); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	return path, vfs.SyncDir(fsys, dir)
}

func flightName(n uint64) string { return fmt.Sprintf("%06d%s", n, flightSuffix) }

// flightFiles returns the numbers of the files, in ascending order.
func flightFiles(fsys vfs.FS, dir string) (numbers []uint64, err error) {
	names, err := fsys.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		text, ours := strings.CutSuffix(name, flightSuffix)
		if n, err := strconv.ParseUint(text, 10, 63); ours && err == nil && flightName(n) == name {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}

func (f *flightRecorder) writeDraft(fsys vfs.FS, draft, reason string, groups []uint64) error {
	if err := fsys.Remove(draft); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := fsys.Create(draft)
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(&appender{file: file}, 1<<20)
	err = f.recorder.WriteTo(out, f.meta(reason), groups...)
	err = cmp.Or(err, out.Flush())
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return errors.Join(err, fsys.Remove(draft)) // perhaps the disk is full
	}
	return nil
}

// appender writes to a file, starting at its beginning.
type appender struct {
	file vfs.File
	at   int64
}

// Write implements io.Writer.
func (a *appender) Write(b []byte) (int, error) {
	n, err := a.file.WriteAt(b, a.at)
	a.at += int64(n)
	return n, err
}

// reportFailure tells those who write about it that the group has stopped by itself, or has halted its
// machine.
func (g *Group) reportFailure(cause error) { g.host.reports.flight.groupStopped(g.id, cause) }
