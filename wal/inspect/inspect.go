// Package inspect answers an operator's questions about a log. Is it whole (Verify)? What is in it (Stat),
// and which records does it hold (Dump)? How do the logs of two hosts differ (Diff)? What would a repair
// cost (Repair, which also does it)?
//
// It adds no knowledge of the format: package wal reads and judges, with the same functions with which it
// recovers. This package puts the judgements into words and numbers: what a finding means, what to do, and
// an exit status. Each answer is a value with a text form and a JSON form, whose names stay as they are. A
// dump is one JSON object a line.
//
// Only Repair with Write changes a file or takes a lock.
package inspect

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/wal"
)

// Exit statuses of the answers. 2 is kept for what should wake an operator.
const (
	ExitWhole   = 0 // whole; the logs agree. A torn tail too: each kill leaves one, and the next start cuts it
	ExitDiffers = 1 // the logs differ where they may
	ExitDamaged = 2 // corruption; the logs differ where they must not
	ExitCannot  = 3 // it cannot be read, or what was asked cannot be done
	ExitAmnesia = 4 // whole, but it must not vote: it has amnesia, and its groups are without authority
)

// Answer is the result of every question but Dump.
type Answer interface {
	// WriteText writes what a person reads.
	WriteText(w io.Writer) error
	// Exit returns the exit status that summarises the answer.
	Exit() int
}

// WriteJSON writes an answer, or any value, as one indented JSON object.
func WriteJSON(w io.Writer, a any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(a)
}

// ErrNoLog is wrapped by the error for a directory that holds no log.
var ErrNoLog = errors.New("no log")

// Find returns the directory of the log that dir means: dir itself, or the folder "log" in it if dir is a
// host's directory.
func Find(fsys vfs.FS, dir string) (string, error) {
	if fsys == nil {
		fsys = vfs.OS()
	}
	names, err := fsys.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%w in %s: there is no such directory", ErrNoLog, dir)
	}
	if err != nil {
		return "", fmt.Errorf("cannot read %s: %w", dir, err)
	}
	isSegment := func(name string) bool { return strings.HasSuffix(name, ".wal") }
	if slices.ContainsFunc(names, isSegment) {
		return dir, nil
	}
	if slices.Contains(names, "log") {
		inner := filepath.Join(dir, "log")
		if names, err := fsys.ReadDir(inner); err == nil && slices.ContainsFunc(names, isSegment) {
			return inner, nil
		}
	}
	return "", fmt.Errorf("%w in %s: neither %s nor %s has a file *.wal", ErrNoLog, dir, dir, filepath.Join(dir, "log"))
}

// text collects lines. Errors of writing are reported once, at the end.
type text struct{ strings.Builder }

func (t *text) line(format string, args ...any) {
	line := strings.TrimRight(fmt.Sprintf(format, args...), " ")
	t.WriteString(line)
	t.WriteByte('\n')
}

func (t *text) to(w io.Writer) error {
	_, err := io.WriteString(w, t.String())
	return err
}

// size writes bytes for people.
func size(n int64) string {
	switch {
	case n >= 10<<30:
		return fmt.Sprintf("%d GiB", n>>30)
	case n >= 10<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 10<<10:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d B", n)
}

// plural writes a number of things.
func plural[T int | int64 | uint64](n T, one string) string {
	switch {
	case n == 1:
		return "1 " + one
	case strings.HasSuffix(one, "y"):
		return fmt.Sprintf("%d %sies", n, strings.TrimSuffix(one, "y"))
	}
	return fmt.Sprintf("%d %ss", n, one)
}

// span writes a range of indexes.
func span(first, last uint64) string {
	if first == last {
		return fmt.Sprint(first)
	}
	return fmt.Sprintf("%d-%d", first, last)
}

// spans writes lost entries by group: "group 1: 3-5, 9; group 2: 7".
func spans(ranges []wal.EntryRange) string {
	var b strings.Builder
	for i, r := range ranges {
		switch {
		case i == 0:
			fmt.Fprintf(&b, "group %d: ", r.Group)
		case ranges[i-1].Group != r.Group:
			fmt.Fprintf(&b, "; group %d: ", r.Group)
		default:
			b.WriteString(", ")
		}
		b.WriteString(span(r.First, r.Last))
	}
	return b.String()
}

// wayOn writes what can be done with a log that has amnesia.
func wayOn(t *text, dir string) {
	t.line("Start the host: its groups work without authority until they have caught up. They neither vote nor count, the other members feed")
	t.line("them what is missing, and then the host clears the mark by itself. That needs a leader and a majority of members that have authority;")
	t.line("after a repair all other members must be heard once. (An empty directory is no way: peers refuse the host under its old id.)")
	t.line("Only if so many members are lost or without authority that a group stands still for good, accept the loss:")
	t.line("millrace wal repair --write --accept-loss %s", dir)
	t.line("Then the host votes at once, as if nothing were missing. That may cost committed entries, or give a second vote in one term.")
}

// use says whether a process has the log open.
func use(in *wal.Inspection) string {
	switch {
	case !in.KnowLock:
		return "it is not known whether it is in use"
	case in.Holder.Held && in.Holder.PID > 0:
		return fmt.Sprintf("in use by process %d", in.Holder.PID)
	case in.Holder.Held:
		return "in use"
	}
	return "not in use"
}

// unknownFile describes a file that the log does not know.
func unknownFile(f wal.FileInfo) string {
	switch {
	case strings.HasSuffix(f.Name, ".damaged"):
		return fmt.Sprintf("note: %s, %s, is damaged and was set aside by a repair; it can be removed when the cluster is well", f.Name, size(f.Bytes))
	case strings.HasSuffix(f.Name, ".behind"):
		return fmt.Sprintf("note: %s, %s, is whole and was set aside by a repair, as it was behind damage; it can be removed when the cluster is well", f.Name, size(f.Bytes))
	}
	return fmt.Sprintf("note: %s, %s, is no file of the log", f.Name, size(f.Bytes))
}
