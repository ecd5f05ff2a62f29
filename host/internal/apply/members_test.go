package apply

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/host/internal/divergence"
	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/internal/feed"
	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/host/session"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
)

// watcher is a machine that observes members. It keeps what it gets, in order, and can fail at an index.
type watcher struct {
	has    []string
	failAt uint64
	how    func() error
	held   uint64
	all    []statemachine.Configuration
}

func (m *watcher) Apply(batch []statemachine.Command) error {
	for i := range batch {
		m.has = append(m.has, string(batch[i].Data))
	}
	return nil
}

func (m *watcher) MembersChanged(c statemachine.Configuration) error {
	if c.Index == m.failAt {
		return m.how()
	}
	m.all = append(m.all, c)
	text := fmt.Sprintf("%d: %v", c.Index, c.Voters)
	if c.Outgoing != nil {
		text += fmt.Sprintf(" before %v", c.Outgoing)
	}
	if c.Learners != nil {
		text += fmt.Sprintf(" learners %v", c.Learners)
	}
	if c.Version > 0 {
		text += fmt.Sprintf(" at version %d", c.Version)
	}
	m.has = append(m.has, text)
	return nil
}

// watched is a script of a group with such a machine.
type watched struct {
	*script
	*watcher
	commands *Commands
}

func newWatched(t *testing.T, m *watcher) *watched {
	w := &watched{watcher: m, commands: &Commands{Machine: m, Options: statemachine.CommandOptions{Versions: statemachine.Versions{Highest: 1}}}}
	if m.held > 0 {
		w.commands.Options.Applied = func() (uint64, error) { return m.held, nil }
	}
	w.script = newScript(w.commands)
	w.log = watchedLog(t)
	err := w.commands.Open(w.queue, Opening{Feed: feed.New(1<<10, func() {}), Now: func() time.Duration { return 0 }, Callers: callers{}, Compared: func(divergence.Machine) {}, Checkpoint: func(divergence.Checkpoint) {}})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// handOut hands entries out, and lets the lane work.
func (w *watched) handOut(after, through uint64) {
	w.queue.Hand(raftpb.Message{Type: raftpb.MsgStorageApply, Index: after, Commit: through, Responses: []raftpb.Message{{Type: raftpb.MsgStorageApplyResp, Index: through}}})
	w.run()
}

// from makes the machine that of a snapshot.
func (w *watched) from(r *membership.Roster, index uint64, at entry.At) {
	w.commands.Restored(session.New(session.Options{}), index, entry.Sums{}, feed.Content{})
	w.queue.Restored(raftpb.EntryID{Index: index, Term: 1}, nil, at, r)
}

// watchedLog is the log of a group of hosts 1 to 3, in which host 4 takes the place of host 3.
func watchedLog(t *testing.T) (log []raftpb.Entry) {
	add := func(typ raftpb.EntryType, data []byte) uint64 {
		log = append(log, raftpb.Entry{Term: 1, Index: uint64(len(log)) + 1, Type: typ, Data: data})
		return uint64(len(log))
	}
	binding := func(n uint64) (b entry.Binding) {
		for id := range n {
			b = append(b, entry.BoundMember{ID: id + 1, Incarnation: transport.Incarnation{byte(id + 1)}})
		}
		return b
	}
	var r *membership.Roster
	put := func(typ raftpb.EntryType, data []byte) {
		add(typ, data)
		next, _, err := entry.RosterAfter(r, &log[len(log)-1])
		if err != nil {
			t.Fatal(err)
		}
		r = next
	}
	change := func(c membership.Change) {
		cc := c.Entry()
		put(raftpb.EntryConfChangeV2, cc.Append(nil))
	}
	add(raftpb.EntryHost, entry.EncodeFound(binding(2)))
	add(raftpb.EntryHost, entry.EncodeFound(binding(3)))
	add(raftpb.EntryHost, entry.EncodeFounded())
	r = binding(3).Roster()
	add(raftpb.EntryNormal, []byte(headed("a")[0]))
	four := membership.Member{ID: 4, Incarnation: transport.Incarnation{4}}
	stages := [][]membership.Step{{{Op: membership.Add, Member: four}}, {{Op: membership.Promote, Member: membership.Member{ID: 4}}, {Op: membership.Remove, Member: membership.Member{ID: 3}}}}
	p := membership.Plan{ID: membership.PlanID{9}, Stages: stages}
	put(raftpb.EntryHost, append([]byte{entry.PlanKind}, p.Encode()...))
	change(membership.Change{Base: r.Changed, Plan: p.ID, Steps: stages[0]})
	add(raftpb.EntryNormal, []byte(headed("b")[0]))
	late := membership.Change{Base: r.Changed - 1, Plan: p.ID, Stage: 1, Steps: stages[1]}.Entry()
	add(raftpb.EntryConfChangeV2, late.Append(nil)) // of another version: it changes nothing
	change(membership.Change{Base: r.Changed, Plan: p.ID, Stage: 1, Steps: stages[1]})
	add(raftpb.EntryNormal, []byte(headed("c")[0]))
	put(raftpb.EntryConfChangeV2, nil) // it leaves the joint configuration
	add(raftpb.EntryNormal, []byte(headed("d")[0]))
	add(raftpb.EntryHost, entry.Version{To: 1}.Encode())
	add(raftpb.EntryHost, entry.Version{To: 1}.Encode()) // it is that already
	add(raftpb.EntryNormal, []byte(headed("e")[0]))
	return log
}

var allWatched = []string{"3: [1 2 3]", "a", "6: [1 2 3] learners [4]", "b", "9: [1 2 4] before [1 2 3]", "c", "11: [1 2 4]", "d", "13: [1 2 4] at version 1", "e"}

// A machine learns of each configuration once, between the commands, however the entries are cut into rounds.
func TestMembersChanged(t *testing.T) {
	for size := range uint64(16) {
		w := newWatched(t, &watcher{})
		for at, last := uint64(0), uint64(len(w.log)); at < last; at += size + 1 {
			w.handOut(at, min(at+size+1, last))
		}
		if !slices.Equal(w.has, allWatched) {
			t.Errorf("in rounds of %d: %q", size+1, w.has)
		}
		if _, _, last := w.commands.Capture(); last != 15 {
			t.Errorf("the machine has entry %d", last)
		}
	}
	for through, want := range map[uint64]uint64{2: 0, 3: 3, 5: 4, 6: 6, 8: 7, 9: 9, 11: 11, 14: 13} {
		w := newWatched(t, &watcher{})
		w.handOut(0, through)
		if _, _, last := w.commands.Capture(); last != want {
			t.Errorf("through entry %d the machine has entry %d, want %d", through, last, want)
		}
	}
}

// A machine that begins from a snapshot learns of what is behind it, also between the two entries of a joint
// configuration. A machine on disk does not learn again of what it holds.
func TestMembersChangedAfterASnapshot(t *testing.T) {
	whole := newWatched(t, &watcher{})
	rosters := map[uint64]*membership.Roster{}
	var members entry.Members
	for i := range whole.log {
		members.Take(&whole.log[i])
		rosters[whole.log[i].Index] = members.Roster()
	}
	indexes := []uint64{3, 4, 6, 7, 9, 10, 11, 12, 13, 15} // of what the machine gets
	for index := range uint64(16) {
		left := allWatched[len(slices.DeleteFunc(slices.Clone(indexes), func(i uint64) bool { return i > index })):]
		for _, held := range []uint64{0, index} {
			if held == 0 && (index == 1 || index == 2) {
				continue // before the founding no snapshot is taken
			}
			w := newWatched(t, &watcher{held: held})
			if index > 0 && held == 0 {
				at := entry.At{}
				if index >= 13 {
					at = entry.At{Version: 1, Since: 13}
				}
				w.from(rosters[index], index, at)
				w.handOut(index, 15)
			} else {
				w.handOut(0, 15)
			}
			if !slices.Equal(w.has, left) {
				t.Errorf("from entry %d, on disk: %t: %q, want %q", index, held > 0, w.has, left)
			}
		}
	}
}

// A machine that fails with a configuration halts at that entry. When the group skips the entry, it works
// again from a snapshot, and does not get it.
func TestMembersChangedFails(t *testing.T) {
	for name, how := range map[string]func() error{
		"panic": func() error { panic("boom") }, "goexit": func() error { runtime.Goexit(); return nil }, "error": func() error { return errWrong },
	} {
		w := newWatched(t, &watcher{failAt: 9, how: how})
		w.restore = func() error {
			w.has = nil
			w.from(nil, 0, entry.At{})
			return nil
		}
		w.handOut(0, 15)
		h := w.queue.Halted()
		if h == nil || h.First != 9 || h.Last != 9 || !slices.Equal(w.has, allWatched[:4]) {
			t.Fatalf("%s: halted: %v, with %q", name, h, w.has)
		}
		if name == "error" && !errors.Is(h, errWrong) || name != "error" && !strings.Contains(h.Error(), "MembersChanged of the state machine") {
			t.Errorf("%s: %v", name, h)
		}
		w.queue.Skips.Add(raftpb.Position{Index: 9}, 16)
		w.queue.Wake()
		w.run()
		if want := slices.Delete(slices.Clone(allWatched), 4, 5); w.queue.Halted() != nil || !slices.Equal(w.has, want) {
			t.Errorf("%s, skipped: halted: %v, with %q, want %q", name, w.queue.Halted(), w.has, want)
		}
		if !slices.Equal(w.queue.Passed(), []raftpb.Position{{Index: 9}}) {
			t.Errorf("%s: passed %v", name, w.queue.Passed())
		}
	}
}

// A machine waits in front of a configuration that may be skipped, and gets it when that is decided.
func TestMembersChangedWaits(t *testing.T) {
	for _, index := range []uint64{9, 13} {
		w := newWatched(t, &watcher{})
		w.queue.Skips.AddHold(Hold{At: raftpb.Position{Index: index}, By: 16, Term: 1})
		w.handOut(0, 15)
		if h := w.queue.Halted(); h == nil || h.Held != 16 || h.First != index || w.queue.Position().Index != index-1 {
			t.Fatalf("it does not wait: %v, %q", h, w.has)
		}
		w.queue.Skips.EndHolds(func(Hold) bool { return true })
		w.queue.Wake()
		w.run()
		if w.queue.Halted() != nil || !slices.Equal(w.has, allWatched) {
			t.Errorf("freed at %d: %v, %q", index, w.queue.Halted(), w.has)
		}
	}
}

// What a machine gets is its own: it may change it.
func TestMembersChangedGivesCopies(t *testing.T) {
	w := newWatched(t, &watcher{})
	w.handOut(0, 9)
	for i := range w.all {
		clear(w.all[i].Voters)
		clear(w.all[i].Outgoing)
	}
	w.handOut(9, 15)
	if !slices.Equal(w.has, allWatched) {
		t.Errorf("%q", w.has)
	}
}

// A machine whose program cannot do the version of the group learns of no members either.
func TestMembersChangedAtAWrongVersion(t *testing.T) {
	w := newWatched(t, &watcher{})
	w.commands.Options.Versions = statemachine.Versions{Lowest: 1, Highest: 1}
	w.handOut(0, 15)
	if h := w.queue.Halted(); h == nil || !h.WrongVersion || h.First != 3 || len(w.has) > 0 {
		t.Errorf("halted: %v, with %q", h, w.has)
	}
}
