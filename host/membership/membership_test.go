package membership

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
	"pgregory.net/rapid"
)

func directory(n int) transport.Incarnation { return transport.Incarnation{byte(n), byte(n >> 8), 1} }

func three() *Roster {
	return Founded([]Member{{ID: 1, Incarnation: directory(1)}, {ID: 2, Incarnation: directory(2)}, {ID: 3, Incarnation: directory(3)}})
}

// history is a roster under random plans, with what must hold of all of its changes.
type history struct {
	t     *rapid.T
	now   *Roster
	index uint64
	drawn int                              // directories
	gone  map[transport.Incarnation]uint64 // removed, and the member's id
	used  map[TokenHash]bool
}

func (h *history) enter(next *Roster, err error) {
	if err != nil {
		h.t.Fatalf("index %d: %v", h.index, err)
	}
	before := h.now
	h.now = next
	if next.Version != h.index {
		h.t.Fatalf("version %d after entry %d", next.Version, h.index)
	}
	for _, m := range next.Members {
		if was, ok := before.Member(m.ID); ok && was.Incarnation != m.Incarnation {
			h.t.Fatalf("entry %d exchanges the directory of member %d", h.index, m.ID)
		}
		if _, removed := h.gone[m.Incarnation]; removed {
			h.t.Fatalf("entry %d makes the removed directory of member %d a member again", h.index, m.ID)
		}
	}
	for _, m := range before.Members {
		if next.Role(m.ID) == None {
			h.gone[m.Incarnation] = m.ID
		}
	}
	ids := map[uint64]bool{}
	for _, list := range [][]uint64{next.Conf.Voters, next.Conf.VotersOutgoing, next.Conf.Learners, next.Conf.LearnersNext} {
		for _, id := range list {
			ids[id] = true
		}
	}
	if len(ids) != len(next.Members) {
		h.t.Fatalf("members %v, configuration %v", next.IDs(), next.Conf)
	}
	for _, t := range before.Tokens {
		if _, open := next.Token(t.Hash); !open {
			h.used[t.Hash] = true
		}
	}
	for hash := range h.used {
		if _, open := next.Token(hash); open {
			h.t.Fatalf("entry %d makes token %v valid again", h.index, hash)
		}
	}
	data := next.Encode()
	again, err := DecodeRoster(data)
	if err != nil || !bytes.Equal(again.Encode(), data) {
		h.t.Fatalf("%+v comes back as %+v, %v", next, again, err)
	}
}

// carryOut carries out the plan under way, maybe not to its end.
func (h *history) carryOut(stop int) {
	for h.now.Plan != nil && stop > 0 && !h.now.Ends() {
		stop--
		h.index++
		c, ok := h.now.NextStage()
		if !ok {
			h.t.Fatal("a plan under way has no next stage")
		}
		h.enter(h.now.Next(h.index, c.Entry()))
		if _, err := h.now.Next(h.index+1, c.Entry()); !errors.Is(err, ErrRefused) {
			h.t.Fatalf("a stage is taken twice: %v", err)
		}
		if h.now.IsJoint() {
			h.index++
			h.enter(h.now.Next(h.index, leaveJoint))
		}
	}
	if h.now.Ends() {
		h.index++
		h.enter(h.now.End(h.index, h.now.Plan.ID))
	}
	if h.now.Plan != nil {
		h.index++
		h.enter(h.now.Cancel(h.index, h.now.Plan.ID))
	}
}

// Random plans: what Make returns can be carried out to its end, or cancelled after any stage; no entry
// exchanges a directory, none brings a removed one back; rosters come back from their bytes.
func TestRandomPlans(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := &history{t: t, now: three(), drawn: 3, gone: map[transport.Incarnation]uint64{}, used: map[TokenHash]bool{}}
		planned := 0
		for range rapid.IntRange(1, 12).Draw(t, "plans") {
			h.grant()
			h.rekey()
			var wants []Want
			for range rapid.IntRange(1, 3).Draw(t, "wants") {
				h.drawn++
				w := Want{Op: Op(rapid.IntRange(1, 4).Draw(t, "op")), Member: Member{ID: rapid.Uint64Range(1, 7).Draw(t, "id")}, Learner: rapid.Bool().Draw(t, "learner")}
				if w.Op == Add {
					w.Replace, w.Incarnation = rapid.Bool().Draw(t, "replace"), directory(h.drawn)
					if rapid.Bool().Draw(t, "old directory") {
						w.Incarnation = directory(rapid.IntRange(1, h.drawn).Draw(t, "directory"))
					}
					if n := len(h.now.Tokens); n > 0 && rapid.Bool().Draw(t, "by token") {
						w.Token = h.now.Tokens[rapid.IntRange(0, n-1).Draw(t, "token")].Hash
					}
				}
				wants = append(wants, w)
			}
			stages, err := h.now.Make(wants)
			if err != nil {
				if !errors.Is(err, ErrRefused) {
					t.Fatal(err)
				}
				continue
			}
			planned++
			h.index++
			p := Plan{ID: PlanID{byte(planned)}, Base: h.now.Changed, Time: h.now.Time, Stages: stages}
			again, err := DecodePlan(p.Encode())
			if err != nil || !bytes.Equal(again.Encode(), p.Encode()) {
				t.Fatalf("%v comes back as %v, %v", &p, &again, err)
			}
			if _, err := h.now.Begin(h.index, Plan{ID: p.ID, Base: h.now.Changed + 1, Stages: stages}); !errors.Is(err, ErrRefused) {
				t.Fatalf("a plan for another version begins: %v", err)
			}
			if next, err := h.now.Begin(h.index, p); err == nil {
				h.enter(next, nil)
			} else if h.index--; !p.uses(tokenOf(p)) {
				t.Fatal(err)
			} else {
				continue
			}
			if _, err := h.now.Begin(h.index+1, Plan{ID: PlanID{99}, Base: h.now.Changed, Stages: stages}); !errors.Is(err, ErrRefused) {
				t.Fatalf("a second plan begins: %v", err)
			}
			whole := rapid.Bool().Draw(t, "to its end")
			stop := len(stages)
			if !whole {
				stop = rapid.IntRange(0, len(stages)).Draw(t, "stages")
			}
			h.carryOut(stop)
			if whole {
				h.mustHave(wants)
			}
		}
	})
}

// mustHave checks that what was wanted is there.
func (h *history) mustHave(wants []Want) {
	for _, w := range wants {
		want := Voter
		switch {
		case w.Op == Remove:
			want = None
		case w.Op == Demote, w.Op == Add && w.Learner:
			want = Learner
		case w.Op == Add && w.Replace:
			continue // what it was before
		}
		if have := h.now.Role(w.ID); have != want {
			h.t.Fatalf("after %v member %d is a %v, want %v", w.Op, w.ID, have, want)
		}
		if m, _ := h.now.Member(w.ID); w.Op == Add && m.Incarnation != w.Incarnation {
			h.t.Fatalf("member %d has directory %v, want %v", w.ID, m.Incarnation, w.Incarnation)
		}
	}
}

// How many more voters may fail, also between two halves.
func TestSpare(t *testing.T) {
	for _, row := range []struct {
		in, out []uint64
		works   []uint64
		want    int
	}{
		{[]uint64{1}, nil, []uint64{1}, 0},
		{[]uint64{1, 2}, nil, []uint64{1, 2}, 0},
		{[]uint64{1, 2, 3}, nil, []uint64{1, 2, 3}, 1},
		{[]uint64{1, 2, 3}, nil, []uint64{1, 3}, 0},
		{[]uint64{1, 2, 3}, nil, []uint64{3}, -1},
		{[]uint64{1, 2, 3, 4, 5}, nil, []uint64{1, 2, 3, 4, 5}, 2},
		{[]uint64{1, 2, 3, 4, 5}, []uint64{1, 2}, []uint64{1, 3, 4, 5}, -1},
		{[]uint64{1, 2, 3, 4, 5}, []uint64{1, 2, 3}, []uint64{1, 2, 3, 4, 5}, 1},
	} {
		r := &Roster{Conf: raftpb.ConfState{Voters: row.in, VotersOutgoing: row.out}}
		if have := r.Spare(func(id uint64) bool { return slices.Contains(row.works, id) }); have != row.want {
			t.Errorf("%v and %v, of which %v work: %d, want %d", row.in, row.out, row.works, have, row.want)
		}
	}
}

// An entry whose context and changes differ changes nothing: the core would follow one and the hosts the
// other.
func TestContextAndChangesAgree(t *testing.T) {
	r := three()
	p := Plan{ID: PlanID{1}, Stages: [][]Step{{{Op: Demote, Member: Member{ID: 3}}}}}
	r, err := r.Begin(5, p)
	if err != nil {
		t.Fatal(err)
	}
	c, _ := r.NextStage()
	cc := c.Entry()
	cc.Changes[0].NodeID = 2
	if _, err := r.Next(6, cc); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "its context says") {
		t.Errorf("changes that its context does not name are taken: %v", err)
	}
	cc = c.Entry()
	cc.Transition = raftpb.ConfChangeTransitionJointExplicit // the core would wait for an entry that ends it
	if _, err := r.Next(6, cc); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "its context says") {
		t.Errorf("a transition that its context does not name is taken: %v", err)
	}
	cc.Context = nil
	if _, err := r.Next(6, cc); !errors.Is(err, ErrRefused) {
		t.Errorf("a change without a context is taken: %v", err)
	}
}

// A voter that is replaced has a stage of its own for each step, so that its old and its new directory never
// vote in rosters that are one change apart.
func TestReplaceTakesFourStages(t *testing.T) {
	stages, err := three().Make([]Want{{Op: Add, Replace: true, Member: Member{ID: 3, Incarnation: directory(9)}}})
	if err != nil {
		t.Fatal(err)
	}
	var have []string
	for _, s := range stages {
		have = append(have, Describe(s))
	}
	want := fmt.Sprintf("[make voter 3 a learner remove member 3 add member 3 again as a learner, with directory %v make learner 3 a voter]", directory(9))
	if fmt.Sprint(have) != want {
		t.Errorf("%v\nwant %v", have, want)
	}
}

// FuzzDecode: any bytes are decoded or refused, and what is decoded has these bytes.
func FuzzDecode(f *testing.F) {
	r := three()
	f.Add(r.Encode())
	p := Plan{ID: PlanID{1}, Stages: [][]Step{{{Op: Add, Member: Member{ID: 4, Incarnation: directory(4), Addr: "a:1"}}}}}
	f.Add(p.Encode())
	f.Add(Change{Base: 3, Plan: p.ID, Steps: p.Stages[0]}.Encode())
	with, err := r.Begin(9, p)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(with.Encode())
	f.Fuzz(func(t *testing.T, data []byte) {
		if r, err := DecodeRoster(data); err == nil && !bytes.Equal(r.Encode(), data) {
			t.Fatalf("%x is a roster with the bytes %x", data, r.Encode())
		}
		if p, err := DecodePlan(data); err == nil && !bytes.Equal(p.Encode(), data) {
			t.Fatalf("%x is a plan with the bytes %x", data, p.Encode())
		}
		if c, err := DecodeChange(data); err == nil && !bytes.Equal(c.Encode(), data) {
			t.Fatalf("%x is a change with the bytes %x", data, c.Encode())
		}
	})
}
