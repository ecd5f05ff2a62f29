package reads

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/host/internal/budget"
)

// script is a group without a cluster: what it says, and what its reads have asked of it.
type script struct {
	applied  uint64
	now      time.Duration
	halts    uint64
	ended    bool
	busy     bool   // the core takes no round
	soon     uint64 // is applied as soon as the queue has looked
	number   uint64
	steps    int
	excluded int
	rounds   []uint64 // questions to the quorum
	sent     []sent
}

type sent struct {
	to uint64
	Record
	question bool
}

var errOverloaded = errors.New("too many")

func (s *script) Boottime() time.Duration           { return s.now }
func (s *script) Halts() uint64                     { return s.halts }
func (s *script) WorksSince(halts uint64) bool      { return !s.ended && s.halts == halts }
func (s *script) WaitEnd(ctx context.Context) error { return context.Cause(ctx) }
func (s *script) Step()                             { s.steps++ }
func (s *script) Exclude()                          { s.excluded++ }
func (s *script) Overloaded() error                 { return errOverloaded }

func (s *script) Applied() uint64 {
	applied := s.applied
	s.applied = max(s.applied, s.soon)
	return applied
}

func (s *script) Number() uint64 {
	s.number++
	return s.number
}

func (s *script) Send(to uint64, record []byte) {
	r, question, err := DecodeRecord(record)
	if err != nil {
		panic(err)
	}
	s.sent = append(s.sent, sent{to, r, question})
}

func (s *script) AskQuorum(number uint64) bool {
	s.rounds = append(s.rounds, number)
	return !s.busy
}

const self, life, interval = 1, 77, 10

func begin(most int64) (*script, *Queue, *Round) {
	s, q := &script{}, &Queue{}
	q.Init(Settings{Group: 5, Self: self, Life: life, Interval: interval, Budget: &budget.Budget{Max: most}}, s)
	r := NewRound(q)
	return s, q, &r
}

func anyOther(id uint64) bool { return id != self }

// twinRead is a read, and what must happen to it.
type twinRead struct {
	Read
	question uint64 // the first that was asked after the read had begun; 0: none yet, or it needs none
	asks     bool
	index    uint64 // that must be applied; known with has
	has      bool
	refused  error
}

// twin knows each read and each answer, and nothing of how they are kept.
type twin struct {
	reads     []*twinRead
	confirmed map[uint64]uint64 // number → index
	asked     map[uint64]time.Duration
	latest    confirmed

	// The latest question: at which leader and tick it was asked, and whether it is not answered.
	at       Turn
	underWay bool
	repeats  bool // the leader's core has not taken it
}

// done returns what must be known of a read.
func (w *twin) done(r *twinRead, applied uint64) (bool, error) {
	if r.refused != nil {
		return true, r.refused
	}
	return r.has && r.index <= applied, nil
}

// holds returns how many reads count against the budget.
func (w *twin) holds(applied uint64) (n int64) {
	for _, r := range w.reads {
		if done, _ := w.done(r, applied); !done {
			n++
		}
	}
	return n
}

// Whatever comes, a read is done as soon as it may be, and not before.
func TestReadsBesideTheirTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const most = 20
		s, q, round := begin(most * bytesOf)
		w := &twin{confirmed: map[uint64]uint64{}, asked: map[uint64]time.Duration{}}
		var at Turn
		add := func(r *twinRead) *twinRead {
			if n := w.holds(s.applied); n+1 > most-n && !(r.has && r.index <= s.applied) {
				r.refused = errOverloaded
			}
			w.reads = append(w.reads, r)
			return r
		}
		confirm := func(number, index uint64) {
			if when := w.asked[number]; number+uint64(len(round.sent)) > s.number && (w.latest.index == 0 || when > w.latest.at) {
				w.latest = confirmed{max(index, w.latest.index), when}
			}
			w.underWay = w.underWay && number != s.number
			for _, r := range w.reads {
				if r.refused == nil && r.asks && !r.has && r.question > 0 && r.question <= number {
					r.has, r.index = true, index
				}
			}
		}
		read := func(*rapid.T) { q.Start(&add(&twinRead{asks: true}).Read, 0) }
		turn := func(t *rapid.T) {
			before, sent, underWay := s.number, len(s.sent), w.underWay && w.at.Leader == at.Leader && w.at.Term == at.Term
			due := !underWay || (at.Leader != self || w.repeats) && at.Tick >= w.at.Tick+interval
			wants := q.refresh.Load() || slices.ContainsFunc(w.reads, func(r *twinRead) bool { return r.refused == nil && r.asks && !r.has })
			round.Step(at, anyOther)
			if asks := s.number > before; asks != (at.Leader != 0 && due && wants) {
				t.Fatalf("asks: %t; leader %d, due %t, wanted %t", asks, at.Leader, due, wants)
			} else if asks {
				w.asked[s.number], w.at, w.underWay, w.repeats = s.now, at, true, at.Leader == self && s.busy
				for _, r := range w.reads {
					if r.asks && r.question == 0 {
						r.question = s.number
					}
				}
				if at.Leader != self && (len(s.sent) != sent+1 || s.sent[sent] != struct {
					to uint64
					Record
					question bool
				}{2, Record{Group: 5, Life: life, Number: s.number}, true}) {
					t.Fatalf("sends %+v", s.sent[sent:])
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"linearizable": read,
			"bounded": func(t *rapid.T) {
				maxAge := time.Duration(rapid.IntRange(1, 20).Draw(t, "age"))
				r := &twinRead{asks: true}
				if w.latest.index > 0 && s.now-w.latest.at <= maxAge {
					r.has, r.index, r.asks = true, w.latest.index, false
				}
				q.Start(&add(r).Read, maxAge)
			},
			"applied": func(t *rapid.T) {
				index := rapid.Uint64Range(0, 30).Draw(t, "index")
				q.StartApplied(&add(&twinRead{has: true, index: index}).Read, index)
			},
			"apply": func(t *rapid.T) {
				s.applied += rapid.Uint64Range(0, 5).Draw(t, "entries")
				q.Applied(s.applied)
			},
			"time": func(t *rapid.T) {
				ticks := rapid.IntRange(1, interval).Draw(t, "ticks")
				at.Tick += int64(ticks)
				s.now += time.Duration(ticks)
			},
			"leader": func(t *rapid.T) {
				at.Leader, at.Term = rapid.Uint64Range(0, 2).Draw(t, "leader"), at.Term+1
				turn(t)
			},
			"busy":           func(t *rapid.T) { s.busy = !s.busy },
			"turn":           turn,
			"turn of a read": func(t *rapid.T) { read(t); turn(t) },
			"answer": func(t *rapid.T) {
				number := rapid.Uint64Range(0, s.number+1).Draw(t, "number")
				index := s.applied + rapid.Uint64Range(0, 5).Draw(t, "ahead")
				switch {
				case number == 0:
					return
				case number > s.number: // it was never asked
				case rapid.IntRange(0, 4).Draw(t, "life") == 0: // it is another host's, or of an earlier start
					q.Enqueue(Record{From: 2, Group: 5, Life: life + 1, Number: number, Index: index}, false)
					return
				}
				if at.Leader == self {
					if round.Confirmed(number, index, at.Term, 0); number <= s.number {
						confirm(number, index)
					}
					return
				}
				q.Enqueue(Record{From: 2, Group: 5, Life: life, Number: number, Index: index}, false)
				held := at
				held.Holds = true // so that no question is asked
				if round.Step(held, anyOther); number <= s.number {
					confirm(number, index)
				}
			},
			"give up": func(t *rapid.T) {
				if len(w.reads) == 0 {
					return
				}
				r := w.reads[rapid.IntRange(0, len(w.reads)-1).Draw(t, "which")]
				if done, _ := w.done(r, s.applied); !done {
					r.refused = context.Canceled
					q.giveUp(&r.Read, r.refused)
				}
			},
			"halt": func(t *rapid.T) {
				why := fmt.Errorf("halted")
				for _, r := range w.reads {
					if done, _ := w.done(r, s.applied); !done {
						r.refused = why
					}
				}
				q.Suspend(why)
				q.Resume()
			},
			"": func(t *rapid.T) {
				for i, r := range w.reads {
					want, err := w.done(r, s.applied)
					if at, done, failed := r.Poll(); done != want || failed != err || done && err == nil && at.Index != r.index {
						t.Fatalf("read %d: %+v, %t, %v; want %t, %v at %d", i, at, done, failed, want, err, r.index)
					}
				}
				if used, want := q.settings.Budget.Used(), w.holds(s.applied)*bytesOf; used != want || q.bytes != want {
					t.Fatalf("%d bytes are used, and %d by this group, want %d", used, q.bytes, want)
				}
			},
		})
		q.Close(errors.New("ended"))
		if used := q.settings.Budget.Used(); used != 0 {
			t.Fatalf("%d bytes are used in the end", used)
		}
	})
}
