package inspect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/millrace/millrace/wal"
	"github.com/millrace/millrace/wal/record"
)

// Stats is the answer to Stat.
type Stats struct {
	Dir        string            `json:"dir"`
	State      string            `json:"state"`
	InUse      bool              `json:"in_use"`
	Holder     int               `json:"holder_pid,omitempty"`
	Owner      uint64            `json:"owner"`
	Bytes      int64             `json:"bytes"`       // of segments and spares, on disk
	Used       int64             `json:"used_bytes"`  // of valid records
	Live       int64             `json:"live_bytes"`  // of those that are needed; of entries about
	Dead       int64             `json:"dead_bytes"`  // Used-Live: what cleaning frees
	IndexBytes int64             `json:"index_bytes"` // in memory, once opened
	Records    map[string]int64  `json:"records"`     // by kind
	Fence      wal.FenceInfo     `json:"fence"`
	Segments   []wal.SegmentInfo `json:"segments"`
	Groups     []wal.GroupInfo   `json:"groups"`
	Deleted    []uint64          `json:"deleted_groups"` // whose ids the log refuses
	Spares     []wal.FileInfo    `json:"spares"`
	Unknown    []wal.FileInfo    `json:"unknown_files"`

	use string
}

// Stat says what is in a log.
func Stat(ctx context.Context, opts wal.InspectOptions) (_ *Stats, err error) {
	in, err := wal.Inspect(ctx, opts)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	s := &Stats{
		Dir: in.Dir, State: state(in.Findings), InUse: in.InUse(), Holder: in.Holder.PID, Owner: in.Owner, Records: map[string]int64{},
		Fence: in.Fence, Segments: in.Segments, Groups: in.Groups, Deleted: append([]uint64{}, in.Deleted...), Spares: in.Spares, Unknown: in.Others, use: use(in),
	}
	for _, f := range in.Spares {
		s.Bytes += f.Bytes
	}
	for _, seg := range in.Segments {
		s.Bytes += seg.Bytes
		s.Used += seg.Records.Bytes
		for kind, n := range seg.Records.Count {
			s.Records[kind] += n
		}
	}
	for _, g := range in.Groups {
		s.Live += g.Live
		s.IndexBytes += g.IndexBytes
	}
	s.Live += int64(len(s.Deleted)) * record.Bytes(0)
	s.Dead = max(0, s.Used-s.Live)
	return s, nil
}

// Exit implements Answer. It does not judge the log, which Verify does.
func (s *Stats) Exit() int { return ExitWhole }

// WriteText implements Answer.
func (s *Stats) WriteText(w io.Writer) error {
	var t text
	t.line("log %s of host %d, %s, %s", s.Dir, s.Owner, s.use, s.State)
	t.line("%s on disk: %s and %s; records %s, of which %s are needed and %s are dead; the index takes %s of memory",
		size(s.Bytes), plural(len(s.Segments), "segment"), plural(len(s.Spares), "spare"), size(s.Used), size(s.Live), size(s.Dead), size(s.IndexBytes))
	t.line("opened %s%s", plural(s.Fence.Generation, "time"), s.past())
	t.line("records: %s", kinds(s.Records))
	t.line("")
	t.table("segment\tversion\tbytes\tused\tdurable to\tlive\trecords", func(row func(...any)) {
		for _, seg := range s.Segments {
			var n int64
			for _, k := range seg.Records.Count {
				n += k
			}
			row(seg.Name, seg.Version, seg.Bytes, seg.End, seg.Durable, seg.Live, n)
		}
	})
	t.line("")
	t.table("group\tfirst\tlast\tterms\tterm\tvote\tcommit\tbegins after\tlive\tindex", func(row func(...any)) {
		for _, g := range s.Groups {
			row(g.ID, g.First, g.Last, terms(g.Terms), g.Term, g.Vote, g.Commit, fmt.Sprintf("%d/%d", g.Snapshot.Index, g.Snapshot.Term), g.Live, g.IndexBytes)
		}
	})
	if n := len(s.Deleted); n > 0 {
		t.line("deleted: %s, whose ids are never reused: %s", plural(n, "group"), ids(s.Deleted))
	}
	for _, f := range s.Unknown {
		t.line("%s", unknownFile(f))
	}
	if s.State == "corrupt" || s.State == "unreadable" {
		t.line("note: the log is not whole, so this is what can be read of it; see \"millrace wal verify\"")
	}
	return t.to(w)
}

// past returns what the fence says besides the generation.
func (s *Stats) past() string {
	var b strings.Builder
	if s.Fence.Dirty {
		b.WriteString(", in an unsafe mode and not closed since")
	}
	if s.Fence.Amnesia {
		b.WriteString(", with amnesia: it must not vote before it has caught up")
	}
	return b.String()
}

// kinds writes the number of records of each kind.
func kinds(count map[string]int64) string {
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(count)) {
		parts = append(parts, fmt.Sprintf("%d %s", count[kind], kind))
	}
	return strings.Join(parts, ", ")
}

// maxRuns bounds the terms in a row of the table.
const maxRuns = 3

// terms writes the last runs of terms: "…, 4: 10-12, 5: 13-20".
func terms(runs []wal.TermRun) string {
	var parts []string
	if len(runs) > maxRuns {
		parts, runs = append(parts, "…"), runs[len(runs)-maxRuns:]
	}
	for _, r := range runs {
		parts = append(parts, fmt.Sprintf("%d: %s", r.Term, span(r.First, r.Last)))
	}
	return strings.Join(parts, ", ")
}

// maxIDs bounds the deleted groups that are written out.
const maxIDs = 20

// ids writes the first ids: "3, 5, 9, …".
func ids(list []uint64) string {
	var parts []string
	for _, id := range list[:min(maxIDs, len(list))] {
		parts = append(parts, strconv.FormatUint(id, 10))
	}
	if len(list) > maxIDs {
		parts = append(parts, "…")
	}
	return strings.Join(parts, ", ")
}

// table writes rows in columns.
func (t *text) table(head string, rows func(row func(...any))) {
	var b strings.Builder
	tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, head)
	rows(func(cells ...any) {
		fmt.Fprintf(tw, strings.Repeat("%v\t", len(cells)-1)+"%v\n", cells...)
	})
	_ = tw.Flush() // into a Builder
	for line := range strings.Lines(b.String()) {
		t.line("%s", strings.TrimRight(line, "\n"))
	}
}
