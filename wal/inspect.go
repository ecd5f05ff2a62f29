package wal

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/wal/record"
)

// An inspection is a scan that continues where Open would stop, and changes nothing. It reads a directory
// with the functions of a recovery (load, apply, follows, checkTail, checkFront, checkGroup) and notes what
// they reject. So one reader reads the format and one judge judges it: what an inspection calls whole, Open
// opens.
//
// The directory may be in use. A pass then sees a file at several moments, which can look like damage: it
// reads one record before it was written, and behind it a later one that says it is durable. But whatever a
// watermark or a link calls durable was written before the end of the pass that saw it. So the next pass sees
// it whole, while real damage shows again. Hence the rule: a finding counts only when two passes in a row
// saw it at the same place.
//
// Rejected: a separate parser for tools (two readers of one format grow apart, and the tool's is not tested
// against crashes), and taking the lock (a host that starts at that moment would be refused).

// maxPasses bounds how often a changing log is read again to check what seemed wrong.
const maxPasses = 5

// InspectOptions configure Inspect and ReadRecords. Dir must be set.
type InspectOptions struct {
	// FS holds the files. It is only read. Default vfs.OS().
	FS vfs.FS
	// Dir is the log's directory.
	Dir string
	// Progress, if set, is called from time to time with the bytes read and their total. The total may
	// change.
	Progress func(done, total int64)
	// ScanThreads is as in Options.
	ScanThreads int
}

func (o InspectOptions) withDefaults() InspectOptions {
	o.ScanThreads = scanThreads(o.FS, o.ScanThreads)
	if o.FS == nil {
		o.FS = vfs.OS()
	}
	o.FS = vfs.ReadOnly(o.FS)
	if o.Progress == nil {
		o.Progress = func(int64, int64) {}
	}
	return o
}

// Inspection is what a directory holds, and what is wrong with it. It keeps the segments open for the reads
// of its groups: Close it.
type Inspection struct {
	Dir      string
	Holder   vfs.Holder // the process that had the log open when the inspection began
	KnowLock bool       // false: this filesystem cannot tell, and Holder means nothing
	Owner    uint64     // the host that the log belongs to; 0 if no segment says so
	Fence    FenceInfo
	Segments []SegmentInfo
	Groups   []GroupInfo // in order of their ids
	Deleted  []uint64    // groups that were deleted, in order
	Spares   []FileInfo
	Torn     []FileInfo // ends that recoveries cut off and saved
	Others   []FileInfo // files that the log does not know
	Findings []Finding  // in order of place
	Passes   int        // how often the directory was read
	// Missing is what a log with amnesia is known to lack, as Log.Holes after the next Open. MissingUnknown
	// means that there may be more: the record of it cannot be read, or was too long.
	Missing        []Hole
	MissingUnknown bool

	scan *scan
}

// The JSON names below are what "millrace wal --json" prints; they stay as they are.

// FenceInfo is the file FENCE (fence.go).
type FenceInfo struct {
	Found      bool   `json:"found"`
	Generation uint64 `json:"generation"`
	Dirty      bool   `json:"dirty"`   // an unsafe mode was on, and the log was not closed, or is in use
	Amnesia    bool   `json:"amnesia"` // or the next Open will find it so
	Closed     bool   `json:"closed"`  // it was closed, so its end is known exactly
}

// FileInfo is a file of the directory.
type FileInfo struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

// SegmentInfo is one segment.
type SegmentInfo struct {
	ID      uint64 `json:"id"`
	Name    string `json:"name"`
	Bytes   int64  `json:"bytes"`
	Version uint32 `json:"version"` // of its header; 0 if that cannot be read
	Owner   uint64 `json:"owner"`
	End     int64  `json:"end"`        // after the last valid record
	Durable int64  `json:"durable"`    // everything before it is known to be durable
	Records Tally  `json:"records"`    // the valid ones
	Live    int64  `json:"live_bytes"` // of records that are needed; of entries about
}

// GroupInfo is one group, as Open would show it if nothing is wrong.
type GroupInfo struct {
	ID           uint64    `json:"id"`
	First        uint64    `json:"first"`
	Last         uint64    `json:"last"` // First-1 if there are no entries
	Snapshot     Snapshot  `json:"snapshot"`
	HasHardState bool      `json:"has_hard_state"`
	Term         uint64    `json:"term"`
	Vote         uint64    `json:"vote"`
	Commit       uint64    `json:"commit"` // as written down: a crash may have kept an older one than was known
	Terms        []TermRun `json:"terms"`
	Records      Tally     `json:"records"`
	Live         int64     `json:"live_bytes"`
	IndexBytes   int64     `json:"index_bytes"` // in memory, once opened
}

// TermRun says that the entries First to Last are of one term.
type TermRun struct {
	Term  uint64 `json:"term"`
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
}

// Tally counts records by kind: Count["entry"], and their bytes with headers and padding.
type Tally struct {
	Count map[string]int64 `json:"count"`
	Bytes int64            `json:"bytes"`
}

func (t *Tally) add(k record.Kind, bytes int64) {
	if t.Count == nil {
		t.Count = map[string]int64{}
	}
	t.Count[k.String()]++
	t.Bytes += bytes
}

// Inspect reads all of a log. It changes nothing and takes no lock. Its memory is the index and, as in
// Open, the segments that ScanThreads read. What is wrong with the log is in Findings. The error says that
// the directory cannot be read, or that ctx ended.
func Inspect(ctx context.Context, opts InspectOptions) (*Inspection, error) {
	opts = opts.withDefaults()
	var before *Inspection
	var rereads []rereadBlock
	for n := 1; ; n++ {
		in, err := inspectOnce(ctx, opts)
		if err != nil {
			return nil, errors.Join(err, before.Close())
		}
		in.Passes = n
		rereads = append(rereads, in.scan.rereads...)
		doubts := in.suspects()
		if before != nil {
			in.Findings = slices.DeleteFunc(in.Findings, func(f Finding) bool { return f.Kind != TornEnd && !before.saw(f) })
			if err := before.Close(); err != nil {
				return nil, errors.Join(err, in.Close())
			}
		}
		if doubts == 0 || n == maxPasses || before != nil && in.suspects() == doubts {
			in.noteRereads(rereads)
			return in, nil
		}
		before = in
	}
}

// suspects returns how many findings may be due to the moment of reading.
func (in *Inspection) suspects() (n int) {
	for i := range in.Findings {
		if in.Findings[i].Kind != TornEnd {
			n++
		}
	}
	return n
}

func (in *Inspection) saw(f Finding) bool {
	return slices.ContainsFunc(in.Findings, func(g Finding) bool { return g.File == f.File && g.Offset == f.Offset && g.Rule == f.Rule })
}

// InUse reports whether a process had the log open, as far as can be known.
func (in *Inspection) InUse() bool { return in.KnowLock && in.Holder.Held }

// Group returns the reading end of a group, whose Entries reads from disk. Groups of a damaged log may have
// holes.
func (in *Inspection) Group(id uint64) *Group { return in.scan.table.group(id) }

// Close closes the files. A nil Inspection may be closed.
func (in *Inspection) Close() error {
	if in == nil {
		return nil
	}
	return in.scan.close()
}

// inspectOnce is one pass.
func inspectOnce(ctx context.Context, opts InspectOptions) (_ *Inspection, err error) {
	in := &Inspection{Dir: opts.Dir, scan: opts.scan()}
	defer func() {
		if err != nil {
			err = errors.Join(err, in.Close())
		}
	}()
	holder, err := vfs.Held(opts.FS, filepath.Join(opts.Dir, "LOCK"))
	in.Holder, in.KnowLock = holder, err == nil
	names, err := opts.FS.ReadDir(in.Dir)
	if err != nil {
		return nil, fmt.Errorf("wal: %w", err)
	}
	segments, total := in.list(names)
	in.lookAtFence()
	if err := in.scan.rejectDraft(names); err != nil {
		in.note(err, "", 0)
	}
	in.learnOwner(segments)
	s := newInspectionPass(in)
	done := int64(0)
	opts.Progress(0, total)
	err = ahead(opts.ScanThreads, len(segments), func(i int, buf []byte) (contents, []byte) {
		id, _ := record.ParseSegmentName(segments[i].Name)
		return in.scan.load(id, buf)
	}, func(i int, c contents) error {
		s.segment(segments[i], c)
		done += segments[i].Bytes
		opts.Progress(done, max(done, total))
		return context.Cause(ctx)
	})
	if err == nil {
		err = context.Cause(ctx) // of a log without segments
	}
	if err != nil {
		return nil, err
	}
	s.finish()
	return in, in.lookAtLoss()
}

// scan returns the scan that an inspection is. A log's own warnings are findings here.
func (o InspectOptions) scan() *scan {
	return newScan(Options{FS: o.FS, Dir: o.Dir, ScanThreads: o.ScanThreads, CacheBytes: -1}.withDefaults(), nil)
}

// list sorts names into segments, which it returns, and others.
func (in *Inspection) list(names []string) (segments []FileInfo, total int64) {
	for _, name := range names {
		switch name {
		case "LOCK", fenceName, fenceName + ".new", lossName, lossDraftName, draftName:
			continue
		}
		file := FileInfo{Name: name, Bytes: in.sizeOf(name)}
		switch _, ok := record.ParseSegmentName(name); {
		case ok:
			segments = append(segments, file)
			total += file.Bytes
		case strings.HasSuffix(name, spareSuffix):
			in.Spares = append(in.Spares, file)
		case isTornName(name):
			in.Torn = append(in.Torn, file)
		default:
			in.Others = append(in.Others, file)
		}
	}
	return segments, total
}

// lookAtLoss reads LOSS, which speaks of logs with amnesia only.
func (in *Inspection) lookAtLoss() error {
	if !in.Fence.Amnesia {
		return nil
	}
	lost, err := in.scan.dir.readLoss()
	in.Missing, in.MissingUnknown = lost.remaining(in.scan.table), lost.unknown
	return err
}

// sizeOf returns the size of a file, or 0 if it cannot be opened. The pass that reads the file reports
// that.
func (in *Inspection) sizeOf(name string) int64 {
	f, err := in.scan.dir.fs.Open(filepath.Join(in.Dir, name))
	if err != nil {
		return 0
	}
	size, err := f.Size()
	if errors.Join(err, f.Close()) != nil {
		return 0
	}
	return size
}

// describe fills in the groups, and what is live.
func (in *Inspection) describe(tallies map[uint64]*Tally) {
	for _, g := range in.scan.table.allGroups() {
		info := GroupInfo{
			ID: g.id, First: g.start.Index + 1, Last: g.last, Snapshot: Snapshot{g.start.Index, g.start.Term},
			Term: g.hs.Term, Vote: g.hs.Vote, Commit: g.hs.Commit, HasHardState: g.hsAt != 0,
			IndexBytes: int64(len(g.index.runs)) * runBytes,
		}
		if t := tallies[g.id]; t != nil {
			info.Records = *t
		}
		for i := range g.index.runs {
			m := &g.index.runs[i]
			info.Terms = joinTerm(info.Terms, TermRun{Term: m.term, First: m.lo, Last: m.hi() - 1})
			info.Live += m.bytes()
		}
		if g.hsAt != 0 {
			info.Live += record.Bytes(record.HardStateBytes)
		}
		if g.startAt != 0 {
			info.Live += record.Bytes(0)
		}
		in.Groups = append(in.Groups, info)
	}
	in.Deleted = in.scan.table.deletedIDs()
	for i := range in.Segments {
		s := &in.Segments[i]
		s.Live = in.scan.table.indexes.of(uint32(s.ID)).bytes
	}
	slices.SortStableFunc(in.Findings, func(a, b Finding) int { return compareFindings(&a, &b) })
}

// joinTerm adds a run, to the last one if it continues that one.
func joinTerm(runs []TermRun, r TermRun) []TermRun {
	if n := len(runs); n > 0 && runs[n-1].Term == r.Term && runs[n-1].Last+1 == r.First {
		runs[n-1].Last = r.Last
		return runs
	}
	return append(runs, r)
}
