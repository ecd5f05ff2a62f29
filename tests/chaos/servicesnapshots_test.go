//go:build linux

package chaos

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Episodes with snapshots. All members keep a short log, and one is away until what it lacks is in a snapshot
// only. The verdict needs the whole log, which no member has then. So logs are copied while the members run:
// each interval between two snapshots is in one of the copies. `millrace serve log` reads them.

const (
	shortLogBytes = 56 << 10 // more than a second of the load; the log has two to three times as much
	copyEvery     = 100 * time.Millisecond
	minAway       = 10 // episodes in which a snapshot must have been installed

	snapshotsBehind = 5               // after so many snapshots the log has lost what it had before the first
	maxLonger       = 4 * time.Second // that a member is away if the others take few
	fillBytes       = 6 << 10
	fillEvery       = 150 * time.Millisecond

	takenWords = `msg="snapshot taken"`
)

// makeAway keeps a member from all others for longer than a short log reaches back. It is killed, paused or
// isolated.
func makeAway(e *episode, f fault) error {
	h, err := e.hold(f)
	if err != nil {
		return err
	}
	defer h.lock.Unlock()
	var back func() error
	switch f.draw % 4 {
	case 0:
		err, back = h.kill(), h.start
	case 1:
		err, back = h.signal(syscall.SIGSTOP), func() error { return h.signal(syscall.SIGCONT) }
	default:
		back, err = e.links.cut(between(func(a, b int) bool { return a == h.id || b == h.id }, e.memberIDs()))
	}
	if err != nil {
		return err
	}
	waited := e.program.(*service).waitBehind(h, f.lasts)
	e.hit(f.kind.name)
	return errors.Join(waited, back())
}

// waitBehind waits until the logs of a majority begin behind the log of a host that is away. Large values
// make them grow. It waits for a time that the schedule names, and at most for maxLonger more.
func (s *service) waitBehind(away *host, lasts time.Duration) error {
	cl, err := s.connect(slices.DeleteFunc(s.memberIDs(), func(id int) bool { return id == away.id })...)
	if err != nil {
		return err
	}
	defer cl.Close()
	before := map[*host]int{}
	for _, h := range s.members() {
		before[h] = h.said(takenWords)
	}
	began, value := time.Now(), make([]byte, fillBytes)
	for s.wait(fillEvery) == nil {
		ahead := 0
		for h, n := range before {
			if h != away && h.said(takenWords) >= n+snapshotsBehind {
				ahead++
			}
		}
		enough := 2*ahead > len(before)
		if waited := time.Since(began); enough && waited > lasts || waited > lasts+maxLonger {
			break
		}
		if !enough {
			_, _ = rand.Read(value)
			ctx, cancel := context.WithTimeout(s.ctx, time.Second)
			_, _ = cl.Put(ctx, "fill", string(value))
			cancel()
		}
	}
	return nil
}

// copyLogs copies a log as soon as a member has taken a snapshot of more than the last copy has, until ctx
// ends.
func (s *service) copyLogs(ctx context.Context) {
	again := time.NewTicker(copyEvery)
	defer again.Stop()
	for copied := uint64(0); ; {
		select {
		case <-again.C:
		case <-ctx.Done():
			return
		}
		var h *host
		last := copied
		for _, other := range s.members() {
			if n := other.lastSnapshot(); n > last {
				h, last = other, n
			}
		}
		if h == nil {
			continue
		}
		l, err := s.copyLog(h)
		if err != nil {
			s.say("the log of host %d could not be copied: %v", h.id, err)
			continue
		}
		copied = last
		s.seen.copies++
		if n := len(l.lines); n > 0 {
			s.say("the log of host %d was copied, from entry %d to %d", h.id, l.lines[0].Index, l.lines[n-1].Index)
		}
		if err := s.whole.add(l.lines); err != nil {
			s.fail(fmt.Errorf("a copy of the log of host %d: %w", h.id, err))
			return
		}
	}
}

// lastSnapshot returns the last entry in the latest snapshot that a host has taken, 0 if it has taken none.
func (h *host) lastSnapshot() (index uint64) {
	text, _ := os.ReadFile(h.logFile())
	if at := bytes.LastIndex(text, []byte(takenWords)); at >= 0 {
		if _, line, found := bytes.Cut(text[at:], []byte(" index=")); found {
			_, _ = fmt.Sscan(string(line[:min(len(line), 20)]), &index)
		}
	}
	return index
}

// copyLog copies the log of a member that may run, and reads it. The names of snapshots are copied first:
// what they have is committed, and in the log.
func (s *service) copyLog(h *host) (*serviceLog, error) {
	to := filepath.Join(s.dir, "copy")
	if err := os.RemoveAll(to); err != nil {
		return nil, err
	}
	from := filepath.Join(h.dir, "raft")
	snapshots, err := filepath.Glob(filepath.Join(from, "groups", "*", "snapshots", "*"))
	if err != nil {
		return nil, err
	}
	for _, path := range snapshots {
		if err := os.MkdirAll(filepath.Join(to, strings.TrimPrefix(path, h.dir)), 0o700); err != nil {
			return nil, err
		}
	}
	if err := os.MkdirAll(filepath.Join(to, "raft", "log"), 0o700); err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(from, "log", "*.wal"))
	if err != nil {
		return nil, err
	}
	for _, path := range append(files, filepath.Join(from, "log", "FENCE")) {
		if err := copySegment(filepath.Join(to, "raft", "log", filepath.Base(path)), path); err != nil {
			return nil, err
		}
	}
	return readServiceLog(s.ctx, s.binary, to)
}

// copySegment copies a file up to a megabyte of zeros, and makes it as long as it was.
func copySegment(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	chunk := make([]byte, 1<<20)
	zeros := make([]byte, len(chunk))
	for err == nil {
		var n int
		n, err = io.ReadFull(in, chunk)
		if n == len(zeros) && bytes.Equal(chunk, zeros) {
			break
		}
		if _, failed := out.Write(chunk[:n]); failed != nil {
			err = failed
		}
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	if i, failed := in.Stat(); failed != nil {
		err = errors.Join(err, failed)
	} else {
		err = errors.Join(err, out.Truncate(i.Size()))
	}
	return errors.Join(err, out.Close())
}

// said counts the lines with some words in all lives of a host.
func (h *host) said(words string) (n int) {
	text, _ := os.ReadFile(h.logFile())
	return strings.Count(string(text), words)
}

func (s *service) countSnapshots() {
	for _, h := range s.members() {
		s.seen.taken += h.said(takenWords)
		s.seen.installed += h.said(`msg="a snapshot is installed"`)
	}
}
