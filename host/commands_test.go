package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/host/internal/apply"
	"github.com/millrace/millrace/host/internal/budget"
	"github.com/millrace/millrace/host/internal/divergence"
	"github.com/millrace/millrace/host/internal/proposals"
	"github.com/millrace/millrace/host/internal/reports"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/session"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/internal/scratch"
	"pgregory.net/rapid"
)

// listMachine keeps what it applies. Its result is the command and how many came before it.
type listMachine struct {
	commands []statemachine.Command
	batches  int
}

func (m *listMachine) Apply(batch []statemachine.Command) error {
	m.batches++
	for i := range batch {
		c := &batch[i]
		c.Result = fmt.Appendf(nil, "%s is number %d", c.Data, len(m.commands))
		m.commands = append(m.commands, statemachine.Command{Index: c.Index, Term: c.Term, Time: c.Time, Data: c.Data, Session: c.Session, Number: c.Number})
		if c.Caller != nil {
			c.Caller.(*echoCaller).result <- string(c.Result)
		}
	}
	return nil
}

func (m *listMachine) digest() (sum uint64) {
	for _, c := range m.commands {
		sum = sum*31 + uint64(crc32.ChecksumIEEE(c.Data))
	}
	return sum
}

// bareGroup is a group of commands without host, log and core: nothing but Apply may be called.
type bareGroup struct {
	*apply.Commands
	group *Group
}

// bareCommands is one whose machine holds the first commands.
func bareCommands(t interface{ Fatal(...any) }, m *listMachine, o statemachine.CommandOptions, held uint64) bareGroup {
	if held > 0 {
		o.Applied = func() (uint64, error) { return held, nil }
	}
	return bareMember(t, m, o, nil)
}

func bareMember(t interface{ Fatal(...any) }, m statemachine.CommandMachine, o statemachine.CommandOptions, openObjects func(bareGroup) error) bareGroup {
	s := Commands(m, o).(*apply.Commands)
	h := &Host{reports: hostReports{events: new(reports.Events)}, network: hostNetwork{transport: &controlTransport{recordingTransport: &recordingTransport{}}}}
	h.env.env = new(manualEnv).env()
	h.clock.metronome = newMetronome(h.env.env.Clock.Now, time.Millisecond)
	g := &Group{member: member{id: 1, self: 1, host: h}, proposals: groupProposals{Queue: proposals.NewQueue(proposals.Settings{})}}
	g.life.status.Store(diagnosis.Status{Leader: 2}) // which gets the checkpoints
	g.machine.apply = apply.New((*machineGroup)(g), apply.Settings{Group: 1, Self: 1, Log: endlessLog{}})
	bare, of := bareGroup{s, g}, g.opening(s)
	of.Callers = g.proposals.Queue
	of.OpenObjects = func() error { return openObjects(bare) }
	if err := s.Open(g.machine.apply, of); err != nil {
		t.Fatal(err)
	}
	return bare
}

// endlessLog is a log that has every entry, and gives none.
type endlessLog struct{ apply.Log }

func (endlessLog) LastIndex() uint64 { return math.MaxUint64 }

// checkpointsOf returns the checkpoints that a member of bareCommands has told its leader.
func checkpointsOf(t interface{ Fatal(...any) }, s bareGroup) (all []divergence.Checkpoint) {
	for _, b := range s.group.host.network.transport.(*controlTransport).bodies {
		r, _, err := divergence.Decode(b.body)
		if err != nil || b.to != 2 {
			t.Fatal(b.to, err)
		}
		last := r.(*divergence.Report).Checkpoints
		all = append(all, last[len(last)-1])
	}
	return all
}

// drawEntries draws entries of a few sessions, in which numbers come back, and stamps that pass seconds.
func drawEntries(rng *rand.Rand, n int) (entries []statemachine.Entry) {
	var now time.Duration
	low := [4]uint64{1, 1, 1, 1}
	for i := range n {
		var h session.Header
		if rng.IntN(5) == 0 {
			now += time.Duration(rng.IntN(300)) * time.Millisecond
			h.Stamp, h.HasStamp = now, true
		}
		if client := rng.IntN(6); client < len(low) {
			number := low[client] + rng.Uint64N(4)
			h.Mark, h.HasMark = session.Mark{ID: session.ID{Client: [16]byte{byte(client + 1)}}, Number: number, Low: low[client]}, true
			if rng.IntN(4) == 0 {
				low[client]++
			}
		}
		data := append(make([]byte, session.Room), fmt.Sprint("command ", i)...)
		entries = append(entries, statemachine.Entry{Index: uint64(i + 1), Term: 3, Data: h.Put(data)})
	}
	return entries
}

// TestCommandsAreAppliedOnce: a number of a session is applied at its first entry and at no other, whatever
// the batches. Two members have the same commands and sums, and so has one whose machine holds the first
// commands already.
func TestCommandsAreAppliedOnce(t *testing.T) {
	suppressed, checkpoints, compared := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		entries := drawEntries(rng, 300-rapid.IntRange(0, 299).Draw(t, "fewer"))
		held := rng.Uint64N(uint64(len(entries)) + 1)

		var want []string // naively
		var wantHeld int
		seen := map[string]bool{}
		low := map[session.ID]uint64{}
		for _, e := range entries {
			h, command, _ := session.Decode(e.Data)
			key := fmt.Sprint(h.Mark.Client, h.Mark.Number)
			if low[h.Mark.ID] = max(low[h.Mark.ID], h.Mark.Low); h.HasMark && (seen[key] || h.Mark.Number < low[h.Mark.ID]) {
				suppressed++
				continue
			}
			seen[key] = true
			want = append(want, string(command))
			if e.Index <= held {
				wantHeld++
			}
		}

		one, two, durable := &listMachine{}, &listMachine{}, &listMachine{}
		members := []bareGroup{}
		for _, m := range []*listMachine{one, two, durable} {
			o := statemachine.CommandOptions{KeepResults: true, Digest: m.digest}
			if m == durable {
				members = append(members, bareCommands(t, m, o, held))
			} else {
				members = append(members, bareCommands(t, m, o, 0))
			}
		}
		for i, s := range members {
			if i == 2 { // what it has on its disk
				durable.commands = slices.Clone(one.commands[:wantHeld])
			}
			for rest := entries; len(rest) > 0; {
				n := 1
				if i > 0 {
					n += rng.IntN(len(rest))
				}
				if err := s.Apply(rest[:n:n]); err != nil {
					t.Fatal(err)
				}
				rest = rest[n:]
			}
		}
		for i, m := range []*listMachine{one, two, durable} {
			var have []string
			for _, c := range m.commands {
				have = append(have, string(c.Data))
			}
			if !slices.Equal(have, want) {
				t.Fatalf("member %d has applied %q, want %q", i+1, have, want)
			}
		}
		a := checkpointsOf(t, members[0])
		for i, s := range members[1:] {
			sessions, sums, _ := s.Capture()
			firstSessions, firstSums, _ := members[0].Capture()
			_, _, suppressed := s.Counts()
			_, _, firstSuppressed := members[0].Counts()
			if sums.Commands != firstSums.Commands || suppressed != firstSuppressed {
				t.Fatalf("member %d: sums %+v, member 1 has %+v", i+2, sums, firstSums)
			}
			if !bytes.Equal(sessions, firstSessions) && i == 0 {
				t.Fatal("two members have other tables")
			}
			b := checkpointsOf(t, s)
			if len(b) != len(a) {
				t.Fatalf("%d checkpoints, member 1 has %d", len(b), len(a))
			}
			for k := range a {
				checkpoints++
				x, y := a[k], b[k]
				if i == 0 && x != y {
					t.Fatalf("checkpoint %+v, member 1 has %+v", y, x)
				}
				if i == 1 {
					if y.Index < held && (y.HasDigest || y.HasResults) || y.Index >= held && !y.HasDigest {
						t.Fatalf("the machine holds %d entries, checkpoint %+v", held, y)
					}
					if y.Commands != x.Commands || y.HasResults && y.Results != x.Results {
						t.Fatalf("checkpoint %+v of a machine that holds %d entries, member 1 has %+v", y, held, x)
					}
					if y.HasResults {
						compared++
					}
				}
			}
		}
	})
	if suppressed == 0 || checkpoints == 0 || compared == 0 {
		t.Errorf("%d commands suppressed, %d checkpoints, %d with results of a machine that held something", suppressed, checkpoints, compared)
	}
}

// TestADuplicateInTheSameBatch gets the result of the entry before it.
func TestADuplicateInTheSameBatch(t *testing.T) {
	s := bareCommands(t, &listMachine{}, statemachine.CommandOptions{KeepResults: true}, 0)
	h := session.Header{HasMark: true, Mark: session.Mark{ID: session.ID{Client: [16]byte{1}}, Number: 1, Low: 1}}
	var entries []statemachine.Entry
	for index := range uint64(3) {
		entries = append(entries, statemachine.Entry{Index: index + 1, Term: 3, Data: h.Put(append(make([]byte, session.Room), "a"...))})
	}
	c := &storyCaller{*newEchoCaller(), make(chan string, 1)}
	call := c.call("a")
	call.state.Data, call.state.Owner, call.state.Session = call.Data, c, &h.Mark
	q := proposals.NewQueue(proposals.Settings{Budget: &budget.Budget{}, Clock: s.group.now, Callers: (*callers)(s.group)})
	s.group.proposals.Queue, s.Callers = q, q
	q.Offer([]proposals.Proposal{call.state.Begin(q)}, 0)
	q.Accept(3, 2, q.Next(), false)
	if err := s.Apply(entries); err != nil {
		t.Fatal(err)
	}
	select {
	case have := <-c.duplicate:
		if want := `duplicate, kept: true, "a is number 0"`; have != want {
			t.Errorf("%s, want %s", have, want)
		}
	default:
		t.Error("the caller was not told")
	}
}

// TestWhatComesBeforeABadHeaderIsApplied: all members stop after the same command.
func TestWhatComesBeforeABadHeaderIsApplied(t *testing.T) {
	m := &listMachine{}
	var h session.Header
	good := statemachine.Entry{Index: 1, Term: 3, Data: h.Put(append(make([]byte, session.Room), "good"...))}
	err := bareCommands(t, m, statemachine.CommandOptions{}, 0).Apply([]statemachine.Entry{good, {Index: 2, Term: 3, Data: []byte("bad")}})
	if !errors.Is(err, session.ErrHeader) || len(m.commands) != 1 {
		t.Errorf("%d commands applied, %v", len(m.commands), err)
	}
}

// openCommands opens a host with one group of commands, which leads.
func openCommands(t *testing.T, dir string, m statemachine.CommandMachine, o statemachine.CommandOptions) *Group {
	t.Helper()
	g := startCommands(t, dir, m, o)
	if _, err := g.WaitLeader(t.Context()); err != nil {
		t.Fatal(err)
	}
	return g
}

// startCommands opens the group and does not wait for anything.
func startCommands(t *testing.T, dir string, m statemachine.CommandMachine, o statemachine.CommandOptions) *Group {
	t.Helper()
	h, err := Open(t.Context(), Config{ID: 1, Dir: dir, Members: map[uint64]string{1: "127.0.0.1:0"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close(context.Background()) })
	g, err := h.OpenGroup(t.Context(), GroupConfig{ID: 1}, Commands(m, o))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// storyCaller notes how its call ends.
type storyCaller struct {
	echoCaller
	duplicate chan string
}

func (c *storyCaller) Duplicate(r outcome.Receipt, result []byte, kept bool) {
	c.duplicate <- fmt.Sprintf("duplicate, kept: %v, %q", kept, result)
}

// outcomeOf calls a command of a session, and returns its outcome in words.
func outcomeOf(t *testing.T, g *Group, m session.Mark, command string) string {
	t.Helper()
	c := &storyCaller{*newEchoCaller(), make(chan string, 1)}
	call := c.call(command)
	call.Owner, call.Session = c, &m
	if err := g.Call(call); err != nil {
		t.Fatal(err)
	}
	select {
	case r := <-c.result:
		return r
	case d := <-c.duplicate:
		return d
	case err := <-c.failed:
		return err.Error()
	}
}

// storyMachine is a listMachine for callers of a story.
type storyMachine struct{ listMachine }

func (m *storyMachine) Apply(batch []statemachine.Command) error {
	callers := make([]outcome.Caller, len(batch))
	for i := range batch {
		callers[i], batch[i].Caller = batch[i].Caller, nil
	}
	if err := m.listMachine.Apply(batch); err != nil {
		return err
	}
	for i := range batch {
		if batch[i].Caller = callers[i]; callers[i] != nil {
			callers[i].(*storyCaller).result <- string(batch[i].Result)
		}
	}
	return nil
}

// TestOutcomesOfSessions: what the client of a session is told, and what it is told after a restart, when the
// machine has its state on disk and the table of sessions is built again from the log.
func TestOutcomesOfSessions(t *testing.T) {
	dir, m := scratch.Dir(t), &storyMachine{}
	id := session.ID{Client: [16]byte{1}}
	future := session.ID{Client: [16]byte{2}, Birth: time.Hour}
	steps := func(g *Group, steps [][3]any) {
		t.Helper()
		for _, s := range steps {
			m, command, want := s[0].(session.Mark), s[1].(string), s[2].(string)
			if have := outcomeOf(t, g, m, command); !strings.HasPrefix(have, want) {
				t.Errorf("number %d, lowest %d: %s, want %s", m.Number, m.Low, have, want)
			}
		}
	}
	o := statemachine.CommandOptions{KeepResults: true}
	g := openCommands(t, dir, m, o)
	steps(g, [][3]any{
		{session.Mark{ID: id, Number: 1, Low: 1}, "a", "a is number 0"},
		{session.Mark{ID: id, Number: 1, Low: 1}, "b", `duplicate, kept: true, "a is number 0"`},
		{session.Mark{ID: id, Number: 3, Low: 3}, "c", "c is number 1"},
		{session.Mark{ID: id, Number: 2, Low: 2}, "d", outcome.ErrIndeterminate.Error() + ": its session said before"},
		{session.Mark{ID: future, Number: 1, Low: 1}, "e", outcome.ErrSessionExpired.Error()},
	})
	if n := g.Status().DuplicatesSuppressed; n != 3 {
		t.Errorf("%d commands were suppressed, want 3", n)
	}
	if err := g.host.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	held := m.commands[len(m.commands)-1].Index
	o.Applied = func() (uint64, error) { return held, nil }
	g = openCommands(t, dir, m, o)
	steps(g, [][3]any{
		{session.Mark{ID: id, Number: 3, Low: 3}, "f", `duplicate, kept: false, ""`},
		{session.Mark{ID: id, Number: 4, Low: 3}, "g", "g is number 2"},
		{session.Mark{ID: id, Number: 4, Low: 3}, "h", `duplicate, kept: true, "g is number 2"`},
	})
	if len(m.commands) != 3 {
		t.Errorf("the machine has applied %d commands, want 3", len(m.commands))
	}
}

// TestASessionMayBeFull: the client of a full session is told so, as an outcome that is not known: a copy may
// be applied later.
func TestASessionMayBeFull(t *testing.T) {
	o := statemachine.CommandOptions{Sessions: session.Options{MaxBytes: 4 << 10, MaxSessionBytes: 4 << 10}}
	g := openCommands(t, scratch.Dir(t), &storyMachine{}, o)
	m := session.Mark{ID: session.ID{Client: [16]byte{1}}, Low: 1}
	for m.Number = 1; int(m.Number) <= o.Sessions.MaxNumbers(); m.Number++ {
		if have := outcomeOf(t, g, m, "x"); !strings.HasPrefix(have, "x is number") {
			t.Fatalf("number %d: %s", m.Number, have)
		}
	}
	if have, want := outcomeOf(t, g, m, "x"), apply.ErrSessionFull.Error(); !strings.HasPrefix(have, want) {
		t.Errorf("%s, want %s", have, want)
	}
	if !outcome.MayHaveCommitted(apply.ErrSessionFull) || !outcome.MayHaveCommitted(apply.ErrForgotten) || !errors.Is(apply.ErrSessionFull, outcome.ErrSessionFull) {
		t.Error("the errors do not say that a copy may be applied")
	}
}

// TestAnEntryWithoutHeaderHaltsTheMachine: a group of plain entries cannot be opened as one of commands.
func TestAnEntryWithoutHeaderHaltsTheMachine(t *testing.T) {
	dir := scratch.Dir(t)
	h, err := Open(t.Context(), Config{ID: 1, Dir: dir, Members: map[uint64]string{1: "127.0.0.1:0"}})
	if err != nil {
		t.Fatal(err)
	}
	g, err := h.OpenGroup(t.Context(), GroupConfig{ID: 1}, plainMachine{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.WaitLeader(t.Context()); err != nil {
		t.Fatal(err)
	}
	r, err := g.Propose(t.Context(), []byte("plain"))
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	g = startCommands(t, dir, &listMachine{}, statemachine.CommandOptions{}) // it may stop before a leader is known
	var read Read
	g.StartApplied(&read, r.Index)
	_, err = read.Wait(t.Context())
	want := fmt.Sprintf("entry %d of group 1: %v: it begins with 0x70, version 7", r.Index, session.ErrHeader)
	if !errors.Is(err, outcome.ErrMachineHalted) || !errors.Is(err, session.ErrHeader) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

type plainMachine struct{}

func (plainMachine) Apply([]statemachine.Entry) error { return nil }

func TestCommandsAreRefusedAtOpen(t *testing.T) {
	h, err := Open(t.Context(), Config{ID: 1, Dir: scratch.Dir(t), Members: map[uint64]string{1: "127.0.0.1:0"}})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close(t.Context())
	broken := errors.New("no such table")
	for _, row := range []struct {
		machine statemachine.CommandMachine
		o       statemachine.CommandOptions
		c       GroupConfig
		want    string
	}{
		{nil, statemachine.CommandOptions{}, GroupConfig{}, "millrace: Commands needs a CommandMachine for group 1"},
		{&listMachine{}, statemachine.CommandOptions{Version: strings.Repeat("v", 129)}, GroupConfig{}, "millrace: CommandOptions.Version of group 1 has 129 bytes, want at most 128"},
		{&listMachine{}, statemachine.CommandOptions{Sessions: session.Options{Expiry: 5}}, GroupConfig{}, "millrace: sessions expire after 5ns, want at least 1s (CommandOptions.Sessions of group 1)"},
		{&listMachine{}, statemachine.CommandOptions{Applied: func() (uint64, error) { return 0, broken }}, GroupConfig{}, "millrace: the state machine of group 1 does not say what it has applied: no such table"},
		{&listMachine{}, statemachine.CommandOptions{Applied: func() (uint64, error) { return 7, nil }}, GroupConfig{}, "millrace: the state machine of group 1 has applied entry 7, and the log in " + h.config.Dir + " ends at entry 0: one of the two was restored or replaced; restore both from the same moment, or empty the state machine, so that it gets all commands again"},
		{&listMachine{}, statemachine.CommandOptions{Applied: func() (uint64, error) { return 0, nil }}, GroupConfig{Volatile: true}, "millrace: Volatile of group 1 is set, and its state machine keeps its state on disk (CommandOptions.Applied); a power cut could leave there what the log does not have"},
	} {
		row.c.ID = 1
		if _, err := h.OpenGroup(t.Context(), row.c, Commands(row.machine, row.o)); err == nil || err.Error() != row.want {
			t.Errorf("%v\nwant %s", err, row.want)
		}
	}
	m := Commands(&listMachine{}, statemachine.CommandOptions{})
	if _, err := h.OpenGroup(t.Context(), GroupConfig{ID: 1}, m); err != nil {
		t.Fatal(err)
	}
	const want = "millrace: group 2 cannot have the state machine of an earlier OpenGroup; make another one with Commands"
	if _, err := h.OpenGroup(t.Context(), GroupConfig{ID: 2}, m); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// BenchmarkCommands is what the adapter costs for each command, with nothing else around it.
func BenchmarkCommands(b *testing.B) {
	for _, withSession := range []bool{false, true} {
		b.Run(fmt.Sprint("session=", withSession), func(b *testing.B) {
			s := bareMember(b, nothing{}, statemachine.CommandOptions{}, nil)
			const n = 64
			entries := make([]statemachine.Entry, n)
			h := session.Header{HasMark: withSession, Mark: session.Mark{ID: session.ID{Client: [16]byte{1}}}}
			var data [n][session.Room + 100]byte
			number := uint64(0)
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				for i := range entries {
					number++
					h.Mark.Number, h.Mark.Low = number, number
					entries[i] = statemachine.Entry{Index: number, Term: 1, Data: h.Put(data[i][:])}
				}
				b.StartTimer()
				if err := s.Apply(entries); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

type nothing struct{}

func (nothing) Apply([]statemachine.Command) error { return nil }
