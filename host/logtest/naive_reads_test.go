package logtest

import (
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/wal"
)

// Entries implements host.GroupLog.
func (g *naiveGroup) Entries(lo, hi, maxBytes uint64) ([]raftpb.Entry, error) {
	g.log.disk.waitForReads()
	if g.log.has("a read is of two moments") && hi > lo+2 {
		mid, before := max(lo+1, hi-5), g.get().hs
		first, err := g.get().read(lo, mid, maxBytes, "")
		if err != nil || len(first) < int(mid-lo) {
			return first, err
		}
		letRun(func() bool { return g.get().hs != before })
		second, err := g.get().read(mid, hi, maxBytes, "")
		if err != nil || maxBytes != 1<<20 {
			return g.get().read(lo, hi, maxBytes, "")
		}
		return append(first, second...), nil
	}
	return g.get().read(lo, hi, maxBytes, g.log.disk.bug)
}

// Recent implements host.GroupLog.
func (g *naiveGroup) Recent(lo, hi, maxBytes uint64) ([]raftpb.Entry, bool) {
	if g.log.has("Recent reads the disk") {
		g.log.disk.waitForReads()
	}
	g.mu.Lock()
	s := g.recent
	g.mu.Unlock()
	if g.log.has("Recent shows what is there of a range") {
		hi = max(lo, min(hi, s.last()+1))
	}
	es, err := s.read(lo, hi, maxBytes, "")
	return es, err == nil
}

// Typed implements host.GroupLog.
func (g *naiveGroup) Typed(lo, hi uint64) []uint64 {
	s := g.get()
	if g.log.has("Typed ignores its range") {
		lo, hi = 0, s.last()+1
	}
	return s.typed(lo, hi)
}

// read returns the entries [lo, hi) within a limit.
func (s groupState) read(lo, hi, maxBytes uint64, bug string) ([]raftpb.Entry, error) {
	switch {
	case lo >= hi:
		return nil, nil
	case lo <= s.start.Index:
		return nil, wal.ErrCompacted
	case hi > s.last()+1 && bug != "a read ends where the log does":
		return nil, wal.ErrUnavailable
	}
	hi = min(hi, s.last()+1)
	es, bytes := []raftpb.Entry{}, uint64(0)
	for i := lo; i < hi; i++ {
		e := s.entries[i-s.start.Index-1]
		if bytes += uint64(len(e.Data)) + 20; bytes > maxBytes && bug != "a read ignores its limit" && (len(es) > 0 || bug == "a read may be empty") {
			break
		}
		es = append(es, e)
	}
	if bug == "a read belongs to the log" && len(es) == int(hi-lo) {
		return s.entries[lo-s.start.Index-1 : hi-s.start.Index-1], nil
	}
	if bug == "a read returns one entry" && len(es) > 1 {
		return es[:1], nil
	}
	return es, nil
}
