// Package audit reads the committed requests of a stopped member, in the form that etcd gives to what is in
// its log: etcdserverpb.InternalRaftRequest. It writes nothing.
//
// The log has requests and no revisions. So the requests are applied once more, to a machine in memory, if
// the log begins at its first entry. A log that begins later has lost what came before to a snapshot: then
// the lines have no revision, and Log.Notes says why.
package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/session"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/server/command"
	"github.com/millrace/millrace/server/kv"
	"github.com/millrace/millrace/snapshot"
	"github.com/millrace/millrace/wal"
	"github.com/millrace/millrace/wal/inspect"
)

// Line is a committed request. Numbers of 64 bits are text, as in protobuf's JSON.
type Line struct {
	Index uint64 `json:"index,string"`
	Pos   uint32 `json:"pos,omitempty"` // among the requests of an entry, from 0
	Term  uint64 `json:"term,string"`
	// Revision is that of the store behind the request; missing if the log does not tell it.
	Revision int64 `json:"revision,string,omitempty"`
	// Error is why the request was refused: it changed nothing.
	Error string `json:"error,omitempty"`
	// Mark names the command of a session. A command that its host has sent again has the same mark, and is
	// applied once. A log that begins behind a snapshot cannot tell what was applied before.
	Mark string `json:"mark,omitempty"`
	// Request is an etcdserverpb.InternalRaftRequest. It is empty for what etcd has no message for.
	Request json.RawMessage `json:"request,omitempty"`
	// Own is such a request: renewals and expiries of leases, and settings.
	Own *Own `json:"millrace,omitempty"`
}

// Own is a request that etcd has no message for.
type Own struct {
	Renewals   []string `json:"renewals,omitempty"`
	Expiries   []string `json:"expiries,omitempty"` // a lease that was renewed meanwhile lives on
	QuotaBytes string   `json:"quotaBytes,omitempty"`
}

// ErrInUse refuses the directory of a member that runs.
var ErrInUse = errors.New("a member runs in this directory")

// Log is the log of a stopped member.
type Log struct {
	in    *wal.Inspection
	group wal.GroupInfo
	// Notes are sentences about what the lines do not tell.
	Notes []string
}

// Open opens the log in the data directory of a member. It takes no lock, and reads all of the log. Close it.
func Open(ctx context.Context, dir string, progress func(done, total int64)) (*Log, error) {
	found, err := inspect.Find(nil, filepath.Join(dir, "raft"))
	if err != nil {
		return nil, fmt.Errorf("%w; give the --data-dir of a member of millrace serve", err)
	}
	in, err := wal.Inspect(ctx, wal.InspectOptions{Dir: found, Progress: progress})
	if err != nil {
		return nil, err
	}
	l := &Log{in: in}
	switch {
	case in.InUse():
		err = fmt.Errorf("%w: %s is held by process %d; stop the member, or copy its directory and read the copy", ErrInUse, found, in.Holder.PID)
	case len(in.Groups) != 1:
		err = fmt.Errorf("%s has %d groups, and a member of millrace serve has one; give the --data-dir of such a member", found, len(in.Groups))
	}
	if err != nil {
		return nil, errors.Join(err, in.Close())
	}
	l.group = in.Groups[0]
	if n := len(in.Findings); n > 0 {
		l.note("the log has %d findings, so lines may be missing: millrace wal verify %s says which", n, found)
	}
	if l.group.First > 1 {
		l.note("the log begins at entry %d: what came before is in a snapshot, so lines have no revision", l.group.First)
	}
	// The log learns late what is committed. What the state or a snapshot has is committed, too.
	if applied, err := kv.AppliedIn(filepath.Join(dir, "state")); err != nil {
		l.note("the state cannot be read, so less is known to be committed: %v", err)
	} else {
		l.group.Commit = max(l.group.Commit, min(applied, l.group.Last))
	}
	l.group.Commit = max(l.group.Commit, throughSnapshots(filepath.Join(dir, "raft"), l.group))
	if l.group.Commit < l.group.Last {
		l.note("%d entries behind %d are left out: nothing in the directory says that they are committed", l.group.Last-l.group.Commit, l.group.Commit)
	}
	return l, nil
}

// throughSnapshots returns the last entry of a log that a snapshot beside it has, 0 if there is none. Entries
// of the same index and term are the same, and so is all before them. A snapshot of another term was
// received, and says nothing about this log.
func throughSnapshots(dir string, log wal.GroupInfo) (through uint64) {
	names, err := os.ReadDir(filepath.Join(dir, "groups", strconv.FormatUint(log.ID, 10), "snapshots"))
	if err != nil {
		return 0 // less is known to be committed, and Open says how much
	}
	for _, name := range names {
		id, err := snapshot.ParseID(name.Name())
		if err != nil {
			continue
		}
		if slices.ContainsFunc(log.Terms, func(r wal.TermRun) bool { return r.Term == id.Term && r.First <= id.Index && id.Index <= r.Last }) {
			through = max(through, id.Index)
		}
	}
	return through
}

func (l *Log) note(format string, args ...any) {
	l.Notes = append(l.Notes, fmt.Sprintf(format, args...))
}

// Close closes the log.
func (l *Log) Close() error { return l.in.Close() }

// pageBytes bounds what is read at a time.
const pageBytes = 4 << 20

// WriteTo writes a line of JSON for each committed request.
func (l *Log) WriteTo(ctx context.Context, w io.Writer) (lines int, err error) {
	r := &reader{seen: map[session.ID]map[uint64]bool{}, out: json.NewEncoder(w)}
	r.out.SetEscapeHTML(false)
	if l.group.First == 1 {
		if r.machine, err = kv.Open(kv.Options{Engine: "memory"}); err != nil {
			return 0, err
		}
		defer r.machine.Close()
	}
	from := l.in.Group(l.group.ID)
	for next := l.group.First; next <= l.group.Commit; {
		if ctx.Err() != nil {
			return r.lines, context.Cause(ctx)
		}
		entries, err := from.Entries(next, l.group.Commit+1, pageBytes)
		if err != nil {
			return r.lines, fmt.Errorf("read entry %d: %w", next, err)
		}
		for k := range entries {
			if err := r.entry(&entries[k]); err != nil {
				return r.lines, err
			}
		}
		next += uint64(len(entries))
	}
	return r.lines, nil
}

// reader turns entries into lines.
type reader struct {
	machine *kv.Machine // nil: revisions are not known
	seen    map[session.ID]map[uint64]bool
	time    time.Duration
	out     *json.Encoder
	lines   int
}

func (r *reader) entry(e *raftpb.Entry) error {
	if e.Type == raftpb.EntryHost && strings.HasPrefix(host.EntryText(e.Type, e.Data), "skip") {
		return fmt.Errorf("entry %d skips a command: such a log cannot be read here; millrace wal dump shows it", e.Index)
	}
	for at, data := range e.Commands() {
		h, cmd, err := session.Decode(data)
		if err != nil {
			return fmt.Errorf("the command at %v: %w", at, err)
		}
		r.time = max(r.time, time.Duration(h.Stamp))
		if h.HasMark && r.repeated(h.Mark) {
			continue // it was sent again, and is applied once
		}
		if err := r.command(e, at, h, cmd); err != nil {
			return fmt.Errorf("the command at %v: %w", at, err)
		}
	}
	return nil
}

// repeated reports whether a command of a session has come before.
func (r *reader) repeated(m session.Mark) bool {
	of := r.seen[m.ID]
	if of == nil {
		of = map[uint64]bool{}
		r.seen[m.ID] = of
	}
	for n := range of { // no number below Low comes again
		if n < m.Low {
			delete(of, n)
		}
	}
	if of[m.Number] || m.Number < m.Low {
		return true
	}
	of[m.Number] = true
	return false
}

func (r *reader) command(e *raftpb.Entry, at raftpb.Position, h session.Header, cmd []byte) error {
	line := Line{Index: e.Index, Pos: at.Pos, Term: e.Term}
	if h.HasMark {
		line.Mark = fmt.Sprintf("%v.%d", h.Mark.ID, h.Mark.Number)
	}
	request, own, err := decode(cmd)
	if err != nil {
		return err
	}
	if request != nil {
		request.ID = e.Index
		if line.Request, err = (protojson.MarshalOptions{}).Marshal(request); err != nil {
			return err
		}
	}
	line.Own = own
	if r.machine != nil {
		results := make([]command.Result, 1)
		batch := []millrace.Command[[]byte]{{Index: e.Index, Term: e.Term, Pos: at.Pos, Time: r.time, Value: cmd}}
		if err := r.machine.Apply(batch, results); err != nil {
			return err
		}
		line.Revision = results[0].Revision
		if err := command.Error(results[0].Err); err != nil {
			line.Error = rpctypes.ErrorDesc(err)
		}
	}
	r.lines++
	return r.out.Encode(line)
}

func texts(ids []int64) (out []string) {
	for _, id := range ids {
		out = append(out, strconv.FormatInt(id, 10))
	}
	return out
}
