//go:build linux

package chaos

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"os/exec"
	"slices"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/encoding/protojson"
)

// What `millrace serve log` says of a stopped member, and the events that follow from it: a naive machine
// applies each request once more.

// logLine is a line without its text.
type logLine struct {
	Index    uint64          `json:"index,string"`
	Pos      uint32          `json:"pos"`
	Term     uint64          `json:"term,string"`
	Revision int64           `json:"revision,string"` // 0: the log begins behind a snapshot, and does not tell it
	Error    string          `json:"error"`           // nor this
	Mark     string          `json:"mark"`
	Request  json.RawMessage `json:"request"`
	Own      json.RawMessage `json:"millrace"`

	hash uint64 // of all that each log tells
}

func (l logLine) compare(o logLine) int { return l.where().compare(o.where()) }

// maxRequestBytes bounds the requests that a log keeps in full. The value of a longer put is kept in brief.
const maxRequestBytes = 4 << 10

// finish hashes a line that was decoded, and makes it short.
func (l *logLine) finish() error {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %s %s %s", l.Term, l.Mark, l.Request, l.Own)
	if l.hash, l.Own = h.Sum64(), nil; len(l.Request) <= maxRequestBytes {
		return nil
	}
	var r pb.InternalRaftRequest
	if err := protojson.Unmarshal(l.Request, &r); err != nil || r.Put == nil {
		return err
	}
	r.Put.Value = []byte(brief(r.Put.Value))
	short, err := protojson.Marshal(&r)
	l.Request = short
	return err
}

// serviceLog is the log of a member.
type serviceLog struct {
	dir, binary string
	lines       []logLine
	notes       string
}

func readServiceLog(ctx context.Context, binary, dir string) (*serviceLog, error) {
	l := &serviceLog{dir: dir, binary: binary}
	err := l.each(ctx, func(line logLine) error {
		l.lines = append(l.lines, line)
		return nil
	})
	return l, err
}

// each calls f with each line.
func (l *serviceLog) each(ctx context.Context, f func(logLine) error) error {
	cmd := exec.CommandContext(ctx, l.binary, "serve", "log", l.dir)
	var notes bytes.Buffer
	cmd.Stderr = &notes
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := theWorld.start(nil, cmd); err != nil {
		return err
	}
	from := json.NewDecoder(out)
	for {
		var text json.RawMessage
		if err = from.Decode(&text); err != nil {
			break
		}
		var line logLine
		if err = json.Unmarshal(text, &line); err != nil {
			break
		}
		if err = line.finish(); err != nil {
			break
		}
		if err = f(line); err != nil {
			break
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	} else {
		_ = cmd.Process.Kill()
	}
	ended := cmd.Wait()
	if l.notes = notes.String(); err == nil && ended != nil {
		err = fmt.Errorf("millrace serve log %s: %w\n%s", l.dir, ended, notes.String())
	}
	return err
}

// sameLines compares two logs where both have lines, and returns how many they share.
func sameLines(a, b []logLine) (shared int, err error) {
	for len(a) > 0 && len(b) > 0 {
		switch order := a[0].compare(b[0]); {
		case order == 0 && (a[0].hash != b[0].hash || a[0].Revision*b[0].Revision > 0 && (a[0].Revision != b[0].Revision || a[0].Error != b[0].Error)):
			return shared, fmt.Errorf("line %d/%d differs: revisions %d and %d", a[0].Index, a[0].Pos, a[0].Revision, b[0].Revision)
		case order == 0:
			a, b, shared = a[1:], b[1:], shared+1
		case shared > 0:
			return shared, fmt.Errorf("line %d/%d of one log is missing in the other", min(a[0].Index, b[0].Index), a[0].Pos)
		case order < 0:
			a = a[1:]
		default:
			b = b[1:]
		}
	}
	return shared, nil
}

// model is all keys at all revisions, made from requests by a machine of a few lines.
type model struct {
	revision int64
	now      map[string]string
	events   []event
	of       map[string][]event // by key
	pending  []event            // of the request

	compacted   int64   // -1: never
	compactions []int64 // that were not refused
}

func newModel() *model {
	return &model{revision: 1, compacted: -1, now: map[string]string{}, of: map[string][]event{}}
}

// apply applies a line and compares the revision, if the line has it. Clients send nothing that is refused,
// except compactions.
func (m *model) apply(l logLine) error {
	if l.Request != nil {
		var r pb.InternalRaftRequest
		if err := protojson.Unmarshal(l.Request, &r); err != nil {
			return err
		}
		if err := m.request(l, &r); err != nil {
			return fmt.Errorf("line %d/%d: %w", l.Index, l.Pos, err)
		}
		m.commit()
	}
	if l.Revision > 0 && l.Revision != m.revision {
		return fmt.Errorf("line %d/%d has revision %d, and the requests before it make %d", l.Index, l.Pos, l.Revision, m.revision)
	}
	return nil
}

func (m *model) request(l logLine, r *pb.InternalRaftRequest) error {
	if r.Compaction != nil {
		before := m.compacted
		if took := m.compact(r.Compaction.Revision); l.Revision > 0 && took != (l.Error == "") {
			return fmt.Errorf("a compaction at revision %d, of %d, behind one at %d, was answered %q", r.Compaction.Revision, m.revision, before, l.Error)
		}
		return nil
	}
	if l.Error != "" {
		return nil
	}
	switch {
	case r.Put != nil:
		m.put(r.Put)
	case r.DeleteRange != nil:
		m.delete(r.DeleteRange)
	case r.Txn != nil:
		return m.txn(r.Txn)
	}
	return nil
}

// compact reports whether a compaction is in order.
func (m *model) compact(revision int64) bool {
	if revision <= m.compacted || revision > m.revision {
		return false
	}
	m.compacted, m.compactions = revision, append(m.compactions, revision)
	return true
}

func (m *model) commit() {
	if len(m.pending) > 0 {
		m.revision++
	}
	for _, e := range m.pending {
		e.revision = m.revision
		m.events, m.of[e.key] = append(m.events, e), append(m.of[e.key], e)
	}
	m.pending = nil
}

func (m *model) put(r *pb.PutRequest) {
	e := event{key: string(r.Key), value: brief(r.Value)}
	m.now[e.key] = e.value
	m.pending = append(m.pending, e)
}

func (m *model) delete(r *pb.DeleteRangeRequest) {
	for _, key := range slices.Sorted(maps.Keys(m.now)) {
		if key == string(r.Key) || key >= string(r.Key) && key < string(r.RangeEnd) {
			delete(m.now, key)
			m.pending = append(m.pending, event{key: key, deleted: true})
		}
	}
}

func (m *model) txn(r *pb.TxnRequest) error {
	do := r.Success
	for _, c := range r.Compare {
		have, is := m.now[string(c.Key)]
		var holds bool
		switch {
		case c.Result == pb.Compare_EQUAL && c.Target == pb.Compare_VALUE:
			holds = is && have == brief(c.GetValue())
		case c.Result == pb.Compare_EQUAL && c.Target == pb.Compare_CREATE && c.GetCreateRevision() == 0:
			holds = !is
		default:
			return fmt.Errorf("no client here sends the comparison %v", c)
		}
		if !holds {
			do = r.Failure
		}
	}
	for _, op := range do {
		if put := op.GetRequestPut(); put != nil {
			m.put(put)
		} else if del := op.GetRequestDeleteRange(); del != nil {
			m.delete(del)
		}
	}
	return nil
}

// through returns the events through a revision.
func (m *model) through(revision int64) []event {
	n, _ := slices.BinarySearchFunc(m.events, revision+1, func(e event, r int64) int { return cmp.Compare(e.revision, r) })
	return m.events[:n]
}

// at returns the value of a key at a revision, "" if it is not there.
func (m *model) at(key string, revision int64) string {
	all := m.of[key]
	n, _ := slices.BinarySearchFunc(all, revision+1, func(e event, r int64) int { return cmp.Compare(e.revision, r) })
	if n == 0 {
		return ""
	}
	return all[n-1].value
}

// all returns the keys with a prefix that exist at a revision, with their values.
func (m *model) all(prefix string, revision int64) map[string]string {
	found := map[string]string{}
	for key := range m.of {
		if value := m.at(key, revision); value != "" && strings.HasPrefix(key, prefix) {
			found[key] = value
		}
	}
	return found
}
