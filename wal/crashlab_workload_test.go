package wal_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/internal/crcjoin"
	"github.com/millrace/millrace/raft/raftpb"
)

// What the crash laboratory appends, and the naive twin of the log, which knows what a recovery must find.
// The twin consists of maps and slices, with a state for each write of a group. Each state has a
// fingerprint, so one lookup in a map judges an image. There is no state between the parts of a write: a
// crash leaves all of it or nothing.

const labGroups = 3

// labWrite is what one group wants to have on disk. Its parts take effect in the order of the fields.
type labWrite struct {
	group     uint64
	hs        raftpb.HardState
	snapshot  uint64 // the log begins after it
	snapTerm  uint64
	compact   uint64 // entries up to it are dropped
	truncate  uint64 // entries at and above it are dropped
	deletes   bool   // the group is deleted; then the other parts are empty
	entries   []raftpb.Entry
	entrySums []labEntry
}

// labEntry is an entry without its bytes.
type labEntry struct {
	term uint64
	sum  uint64 // of type and data
}

var labHash = maphash.MakeSeed()

func seal(e *raftpb.Entry) labEntry {
	return labEntry{term: e.Term, sum: maphash.Bytes(labHash, e.Data) ^ uint64(e.Type)<<56}
}

// labGroup is a group of the twin: entries[i] has index start+1+i. States share labGroup values, so entries
// are never changed in place.
type labGroup struct {
	hs               raftpb.HardState
	start, startTerm uint64
	entries          []labEntry
	typed            []uint64 // the indexes of those that have a type, while observe reads them
	deleted          bool
}

func (g *labGroup) last() uint64 { return g.start + uint64(len(g.entries)) }

func (g *labGroup) empty() bool {
	return g.hs == raftpb.HardState{} && g.start == 0 && len(g.entries) == 0 && !g.deleted
}

func (g *labGroup) term(i uint64) uint64 {
	if i == g.start {
		return g.startTerm
	}
	return g.entries[i-g.start-1].term
}

func (g *labGroup) through(i uint64) []labEntry {
	n := i - g.start
	return g.entries[:n:n]
}

// begin makes the log begin after index i.
func (g *labGroup) begin(i, term uint64) {
	switch {
	case i <= g.start:
		return
	case i <= g.last() && g.term(i) == term:
		g.entries = g.entries[i-g.start:]
	default:
		g.entries = nil
	}
	g.start, g.startTerm = i, term
	if g.hs != (raftpb.HardState{}) {
		g.hs.Commit = max(g.hs.Commit, i) // dropped entries were committed
	}
}

// fingerprint covers what a reader sees after a crash.
func (g *labGroup) fingerprint(id uint64) uint64 {
	if g.empty() {
		return 0
	}
	h := mix(id, g.hs.Term)
	if g.deleted {
		h = mix(h, 1)
	}
	h = mix(h, g.hs.Vote)
	h = mix(h, g.hs.Commit)
	h = mix(mix(h, g.start), g.startTerm)
	for _, e := range g.entries {
		h = mix(mix(h, e.term), e.sum)
	}
	return h
}

func mix(h, v uint64) uint64 {
	h ^= v
	h *= 0x9e3779b97f4a7c15
	return h ^ h>>29
}

// labState is the state of all groups.
type labState map[uint64]labGroup

func (s labState) fingerprint() (sum uint64) {
	for id, g := range s {
		sum += g.fingerprint(id)
	}
	return sum
}

func (s labState) clone() labState {
	c := labState{}
	for id, g := range s {
		c[id] = g
	}
	return c
}

// String shows a state in one line, for failure messages.
func (s labState) String() string {
	text := ""
	for _, id := range slices.Sorted(maps.Keys(s)) {
		if g := s[id]; g.deleted {
			text += fmt.Sprintf("[group %d: deleted] ", id)
		} else {
			text += fmt.Sprintf("[group %d: term %d vote %d commit %d, entries %d to %d", id, g.hs.Term, g.hs.Vote, g.hs.Commit, g.start+1, g.last())
			if n := len(g.entries); n > 0 {
				text += fmt.Sprintf(", the last of term %d", g.entries[n-1].term)
			}
			text += "] "
		}
	}
	return text
}

// apply applies a whole write.
func (g *labGroup) apply(w *labWrite) {
	if w.deletes {
		*g = labGroup{deleted: true}
		return
	}
	if w.hs != (raftpb.HardState{}) {
		g.hs = w.hs
	}
	if w.snapshot > 0 {
		g.begin(w.snapshot, w.snapTerm)
	}
	if w.compact > 0 {
		g.begin(w.compact, g.term(w.compact))
	}
	if w.truncate > 0 {
		g.entries = g.through(w.truncate - 1)
	}
	if len(w.entries) > 0 {
		g.entries = append(g.through(w.entries[0].Index-1), w.entrySums...)
	}
}

// labWorkload draws writes that Raft groups could make: terms never fall, a vote changes only with the term,
// and committed entries are not truncated.
type labWorkload struct {
	rng   *rand.Rand
	count uint64
}

func (w *labWorkload) next(now labState) []labWrite {
	now = now.clone()
	var writes []labWrite
	count := 1 + w.rng.IntN(2)
	if w.rng.IntN(8) == 0 {
		count++
	}
	for range count { // a group may have two writes in one append
		id := w.living(now)
		g := now[id]
		wr := w.write(id, g)
		g.apply(&wr)
		now[id] = g
		writes = append(writes, wr)
	}
	return writes
}

// living draws a group. Where a group was deleted, another one takes its place.
func (w *labWorkload) living(now labState) uint64 {
	id := uint64(1 + w.rng.IntN(labGroups))
	for now[id].deleted {
		id += labGroups
	}
	return id
}

func (w *labWorkload) write(id uint64, g labGroup) labWrite {
	draw := w.rng.IntN
	wr := labWrite{group: id}
	if labCompacts && !g.empty() && draw(30) == 0 {
		wr.deletes = true
		return wr
	}
	term := max(g.hs.Term, 1)
	newTerm := g.hs.Term == 0 || draw(4) == 0
	if newTerm {
		term = g.hs.Term + 1
	}
	if labCompacts {
		w.compact(&wr, &g, newTerm)
	}
	low := max(g.hs.Commit, g.start)
	from, count := g.last()+1, draw(4)
	if draw(40) == 0 {
		count = 5 + draw(10) // more than fits into the rest of a small segment
	}
	replaces := draw(4) == 0 && g.last() > low
	if replaces {
		from = g.last() - uint64(draw(int(g.last()-low)))
	}
	for i := range uint64(count) {
		e := raftpb.Entry{Index: from + i, Term: term, Type: raftpb.EntryType(draw(3)), Data: w.data()}
		if e.Index%2 == 0 { // as the runtime appends them
			e.Sum = crcjoin.Sum(e.Data)
		}
		wr.entries, wr.entrySums = append(wr.entries, e), append(wr.entrySums, seal(&e))
	}
	end := g.last()
	if n := len(wr.entries); n > 0 {
		end = wr.entries[n-1].Index
	}
	switch commit := low + uint64(draw(1+int(end-low))); {
	case newTerm:
		wr.hs = raftpb.HardState{Term: term, Vote: uint64(draw(4)), Commit: commit}
	case draw(3) == 0 || replaces && draw(2) == 0:
		wr.hs = raftpb.HardState{Term: term, Vote: g.hs.Vote, Commit: commit}
	}
	return wr
}

// small draws a write that takes at most a few hundred bytes.
func (w *labWorkload) small(now labState) labWrite {
	id := w.living(now)
	g := now[id]
	w.count++
	e := raftpb.Entry{Index: g.last() + 1, Term: max(g.hs.Term, 1), Data: binary.LittleEndian.AppendUint64(nil, w.count)}
	return labWrite{group: id, entries: []raftpb.Entry{e}, entrySums: []labEntry{seal(&e)}}
}

// compact draws the parts of a write that change the ends of a log without entries, and applies them to g.
func (w *labWorkload) compact(wr *labWrite, g *labGroup, newTerm bool) {
	draw := w.rng.IntN
	low := max(g.hs.Commit, g.start)
	switch {
	case draw(3) == 0 && g.hs.Commit > g.start && g.hs.Commit <= g.last():
		wr.compact = g.hs.Commit
		if draw(3) == 0 {
			wr.compact = g.start + 1 + uint64(draw(int(g.hs.Commit-g.start)))
		}
		g.begin(wr.compact, g.term(wr.compact))
	case draw(40) == 0 && !newTerm && g.hs.Term > 0:
		wr.snapshot, wr.snapTerm = g.last()+1+uint64(draw(9)), g.hs.Term
		g.begin(wr.snapshot, wr.snapTerm)
	case draw(15) == 0 && g.last() > low:
		wr.truncate = low + 1 + uint64(draw(int(g.last()-low)))
		g.entries = g.through(wr.truncate - 1)
	}
}

// data draws the bytes of an entry. All entries of a workload differ, except those too short to differ.
func (w *labWorkload) data() []byte {
	n := w.rng.IntN(90)
	switch w.rng.IntN(40) {
	case 0:
		n = 1500 + w.rng.IntN(3500)
	case 1, 2, 3:
		n = 200 + w.rng.IntN(700)
	}
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(w.count + uint64(i)*7)
	}
	w.count++
	if n >= 8 {
		binary.LittleEndian.PutUint64(p, w.count)
	}
	return p
}

// labClock is a clock that the laboratory moves.
type labClock struct {
	mu     sync.Mutex // not held while a timer's function runs
	now    time.Duration
	timers []*labTimer
}

type labTimer struct {
	clock *labClock
	f     func()
	due   time.Duration // 0: not set
}

func (c *labClock) Boottime() time.Duration                    { return c.Now() }
func (c *labClock) Every(time.Duration, func() int) env.Ticker { return nil }

func (c *labClock) Now() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *labClock) Timer(f func()) env.Timer {
	t := &labTimer{clock: c, f: f}
	c.timers = append(c.timers, t)
	return t
}

func (t *labTimer) Set(d time.Duration) {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	t.due = t.clock.now + d
}

func (t *labTimer) Stop() {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	t.due = 0
}

// fires reports whether the timer is due, and is so once.
func (t *labTimer) fires() bool {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	if t.due == 0 || t.due > t.clock.now {
		return false
	}
	t.due = 0
	return true
}

// advance moves the clock and calls the timers that are due.
func (c *labClock) advance(d time.Duration) {
	c.mu.Lock()
	c.now += d
	c.mu.Unlock()
	for _, t := range c.timers {
		if t.fires() {
			t.f()
		}
	}
}

// labScheduler runs the log's workers when the laboratory says so.
type labScheduler struct{ tasks []*labTask }

type labTask struct {
	worker      env.Worker
	woken, dead bool
}

func (s *labScheduler) Go(_ string, _ env.Kind, w env.Worker) env.Task {
	t := &labTask{worker: w}
	s.tasks = append(s.tasks, t)
	return t
}

func (t *labTask) Wake() { t.woken = true }
func (t *labTask) Stop() { t.dead = true }

// step calls each woken worker once.
func (s *labScheduler) step() {
	for _, t := range s.tasks {
		if t.woken && !t.dead {
			t.woken = t.worker.RunOnce()
		}
	}
}

// labLogger passes warnings to warn.
type labLogger struct{ warn func(message string) }

func (l labLogger) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }
func (l labLogger) Handle(_ context.Context, r slog.Record) error {
	l.warn(r.Message)
	return nil
}
func (l labLogger) WithAttrs([]slog.Attr) slog.Handler { return l }
func (l labLogger) WithGroup(string) slog.Handler      { return l }
