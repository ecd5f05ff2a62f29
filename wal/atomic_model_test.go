package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal/record"
)

// ruleReader is a twin for rule R11 of wal/record/format.go: it knows which records may follow one another,
// and what state they leave. It also writes the segments.
type ruleReader struct {
	segments []*forged
	whole    twin   // the state after all complete writes
	tried    twin   // whole, plus the parts of the unfinished write
	open     uint64 // the group of the unfinished write; 0: there is none
	loose    bool   // the segments before the first one were dropped, and no record was added yet
	broken   bool   // R11 does not allow the last record
	n        uint64
}

func (r *ruleReader) last() *forged { return r.segments[len(r.segments)-1] }

func (r *ruleReader) add(h record.Header, body []byte, allowed bool) {
	r.last().addPart(h, body)
	r.broken, r.loose = !allowed, false
}

// roll continues in the next segment, even inside a write.
func (r *ruleReader) roll() {
	r.segments = append(r.segments, forge(r.last().id+1).link(r.last()))
}

// outside adds a record that is not part of a write.
func (r *ruleReader) outside(k record.Kind, index uint64) {
	r.add(record.Header{Kind: k, Index: index}, nil, r.open == 0)
}

func (r *ruleReader) void(group uint64) {
	r.add(record.Header{Kind: record.KindVoid, Group: group}, nil, r.open == group || r.open == 0 && r.loose)
	r.open = 0
}

// part adds a part of a write of a group, drawn at random.
func (r *ruleReader) part(group uint64, e record.Edge, draw func(n int) int) {
	allowed := r.open == group && e&record.Begins == 0
	if r.open == 0 {
		allowed = e&record.Begins != 0 || r.loose
		r.tried = r.whole.clone()
	}
	r.n++
	g := r.tried[group]
	h := record.Header{Edge: e, Group: group, Index: g.last() + 1 - uint64(draw(1+len(g.entries))), Term: uint64(1 + draw(2))}
	switch draw(6) {
	case 0:
		h.Kind, h.Index = record.KindHardState, 0
		hs := raftpb.HardState{Term: h.Term, Vote: r.n, Commit: g.start.Index}
		r.add(h, binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, hs.Vote), hs.Commit), allowed)
		r.tried.applyPart(Write{Group: group, HardState: hs})
	case 1:
		h.Kind = record.KindTruncation
		r.add(h, nil, allowed)
		r.tried.applyPart(Write{Group: group, TruncateFrom: h.Index})
	case 2:
		h.Kind, h.Index = record.KindReset, g.last()+1
		r.add(h, nil, allowed)
		r.tried.applyPart(Write{Group: group, Snapshot: Snapshot{h.Index, h.Term}})
	default: // few terms, so that voided and kept entries often differ in their data only
		h.Kind = record.KindEntry
		data := binary.LittleEndian.AppendUint64(nil, r.n)
		r.add(h, data, allowed)
		r.tried.applyPart(Write{Group: group, Entries: []raftpb.Entry{{Index: h.Index, Term: h.Term, Data: data}}})
	}
	if r.open = group; allowed && e&record.Ends != 0 {
		r.whole, r.open = r.tried, 0
	}
}

// Logs of random records with valid checksums. Open accepts a log if and only if R11 allows it, and an
// inspection agrees. A group has the state after its complete writes: when damage is cut off, after the void,
// and after more appends.
func TestLogsOfRandomRecords(t *testing.T) {
	enumerates(t)
	taken, refused := 0, 0
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 11))
		r := ruleReader{whole: twin{}, segments: []*forged{forge(1).link(nil)}}
		if rng.IntN(3) == 0 { // the first segments were dropped; a front record at the end says so
			r.loose, r.segments = true, []*forged{forge(3).linkTo(2, 999, 1)}
		}
		for k := 1 + rng.IntN(14); k > 0 && !r.broken; k-- {
			group := uint64(1 + rng.IntN(2))
			if r.open != 0 && rng.IntN(12) > 0 {
				group = r.open
			}
			switch rng.IntN(12) {
			case 0:
				r.roll()
			case 1:
				if r.open != 0 || r.loose || rng.IntN(8) == 0 {
					r.void(group)
				}
			case 2:
				if r.open == 0 || rng.IntN(8) == 0 {
					r.outside(record.KindWatermark, 0)
				}
			default:
				e := record.Edge(0)
				if begin := r.open == 0 && (!r.loose || rng.IntN(2) == 0); begin != (rng.IntN(30) == 0) {
					e |= record.Begins
				}
				if rng.IntN(2) == 0 {
					e |= record.Ends
				}
				r.part(group, e, rng.IntN)
			}
		}
		if first := r.segments[0].id; first > 1 && !r.broken {
			if r.open != 0 {
				r.void(r.open)
			}
			r.outside(record.KindFront, first)
		} else if first > 1 {
			continue // without a front record the missing segments would be damage
		}
		t.Run(fmt.Sprint(seed), func(t *testing.T) { r.check(t, rng) })
		if r.broken {
			refused++
		} else {
			taken++
		}
	}
	t.Logf("%d accepted, %d refused", taken, refused)
}

func (r *ruleReader) check(t *testing.T, rng *rand.Rand) {
	fs := diskOf(t, forgedDir(r.segments...))
	opts := testOptions(fs, &manual{})
	opts.CacheBytes, opts.IndexBytes = -1, 1
	in := mustInspect(t, fs)
	l, err := Open(opts)
	if r.broken != (in.worst() == Damaged) || r.broken != errors.Is(err, ErrCorrupt) || !r.broken && err != nil {
		t.Fatalf("broken is %t; opened: %v; inspected: %+v", r.broken, err, in.Findings)
	}
	if r.broken {
		opts.Salvage = true
		l = mustOpen(t, opts)
	}
	want := r.whole
	want.mend(r.broken)
	for range 2 { // the second one opens the log that the first one has repaired
		want.check(t, l)
		fs.Crash(crashfs.LoseAll, nil)
		if in := mustInspect(t, fs); len(in.Findings) > 0 {
			t.Errorf("mended: %+v", in.Findings)
		}
		opts.Salvage = false
		l = mustOpen(t, opts)
	}
	for group := uint64(1); group <= 2; group++ {
		first := want[group].last() + 1 - uint64(rng.IntN(1+len(want[group].entries)))
		w := Write{Group: group, Entries: entries(first, first+1+uint64(rng.IntN(4)), uint64(1+rng.IntN(2)), 8)}
		mustAppend(t, l, w)
		want.apply([]Write{w})
	}
	mustSync(t, l)
	want.check(t, l)
	fs.Crash(crashfs.LoseAll, nil)
	want.mend(r.broken) // it is still marked
	want.check(t, mustOpen(t, opts))
}

// mend does what each Open of a salvaged log does: no group is in an earlier term than its last entry.
func (m twin) mend(salvaged bool) {
	for id, s := range m {
		if term := s.term(s.last()); salvaged && term > s.hs.Term {
			s.hs = raftpb.HardState{Term: term, Commit: max(s.hs.Commit, s.start.Index)}
			m[id] = s
		}
	}
}
