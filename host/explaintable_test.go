package host

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/apply"
	"github.com/millrace/millrace/host/internal/bulk"
	"github.com/millrace/millrace/host/internal/divergence"
	"github.com/millrace/millrace/host/internal/examination"
	"github.com/millrace/millrace/host/internal/members"
	"github.com/millrace/millrace/host/internal/placement"
	"github.com/millrace/millrace/host/internal/snapshots"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
)

// causeTest makes a cause appear and disappear, in one of the ways in which Explain finds it.
type causeTest struct {
	code       diagnosis.Code
	way        string // if there are several
	open       func(t *testing.T) *testHost
	begin, end func(l *testHost)
}

// openLeader opens host 1 of three, which leads.
func openLeader(t *testing.T) *testHost {
	l := openTestHost(t, 3)
	t.Cleanup(func() { _ = l.Close(over()) })
	l.lead()
	l.leadFor(4 * int64(l.config.electionTicks()))
	l.seesThird(func(*examination.Follower) {})
	return l
}

// leadFor lets ticks pass in which both followers are heard.
func (l *testHost) leadFor(ticks int64) {
	for range ticks {
		l.manual.tick()
		l.deliver(raftpb.Message{Type: raftpb.MsgHeartbeatResp, Term: 1})
		l.hears(l.clock.awakeAtBeat(), 3)
	}
}

// failingSnapshot makes the machine fail to write its state, until it ends.
func failingSnapshot() causeTest {
	var h *keeperHost
	return causeTest{code: diagnosis.CodeSnapshotFails, open: func(t *testing.T) *testHost {
		h = openKeeper(t, GroupConfig{}, false)
		h.t = t
		h.call(t, nil, "a command")
		return h.testHost
	}, begin: func(l *testHost) {
		h.keeper.wrong = func(io.Writer) error { return errors.New("no") }
		_, _ = h.take(l.t)
	}, end: func(l *testHost) {
		h.keeper.wrong = nil
		h.mustTake(l.t)
	}}
}

// hangingSnapshot makes a piece of work hang on a snapshot lane, until it ends.
func hangingSnapshot() causeTest {
	release, ended := make(chan struct{}), make(chan struct{})
	return causeTest{code: diagnosis.CodeSnapshotHangs, open: openLone, begin: func(l *testHost) {
		lane, began := l.bulk.snapshotLanes.All()[0], make(chan struct{})
		for _, other := range l.bulk.snapshotLanes.All() {
			other.Task().(*manualTask).dead = true // a goroutine runs the lane
		}
		l.bulk.snapshotLanes.Enqueue(&snapshots.Work{Seat: &l.group.snapshots.Seat, Doing: "which writes a snapshot", Piece: func() bool {
			close(began)
			<-release
			return false
		}})
		go func() { lane.RunOnce(); close(ended) }()
		<-began
		l.manual.now += snapshots.Stall
	}, end: func(*testHost) { close(release); <-ended }}
}

// openLone opens a host that leads a group of its own.
func openLone(t *testing.T) *testHost {
	l := openTestHost(t, 1)
	t.Cleanup(func() { _ = l.Close(over()) })
	l.lead()
	return l
}

// tolerant is a StallTimeout of eight election timeouts.
func tolerant(c *Config) { c.ElectionTimeout, c.StallTimeout = time.Second, 8*time.Second }

// openTolerant opens a host that leads a group of its own and tolerates a disk that is slow.
func openTolerant(t *testing.T) *testHost {
	l := openTestHostWith(t, 1, tolerant)
	t.Cleanup(func() { _ = l.Close(over()) })
	l.lead()
	return l
}

// openTolerantLeader is openLeader of such a host.
func openTolerantLeader(t *testing.T) *testHost {
	l := openTestHostWith(t, 3, tolerant)
	t.Cleanup(func() { _ = l.Close(over()) })
	l.lead()
	l.leadFor(12 * int64(l.config.electionTicks()))
	l.seesThird(func(*examination.Follower) {})
	return l
}

// openFollower opens host 2 of three, which follows host 1.
func openFollower(t *testing.T) *testHost {
	l := openSecond(t)
	for range 4 * l.config.electionTicks() {
		l.manual.tick()
		l.hearsLeader()
	}
	return l
}

// compares lets the leader compare its state after an entry with that of host 3, which may differ.
func (l *testHost) compares(index, differs uint64) {
	d := &l.group.machine.divergence
	if index == 9 {
		d.Init(1, 1, divergence.Machine{}, (*comparison)(l.group))
	}
	d.Record(divergence.Checkpoint{Index: index, HasDigest: true})
	r := d.Report()
	r.Checkpoints = []divergence.Checkpoint{{Index: index, HasDigest: true, Digest: differs}}
	d.Receive(3, &r)
}

// watches lets host 3 tell the leader the form in which it sums up results.
func (l *testHost) watches(form string) {
	r := l.group.machine.divergence.Report()
	r.Watch.Form = form
	l.group.machine.divergence.Receive(3, &r)
}

// seesThird makes the leader see host 3 in some way.
func (l *testHost) seesThird(change func(*examination.Follower)) {
	now := l.clock.awakeAtBeat()
	v := examination.Follower{ID: 3, At: now, ActiveAt: now, AckedAt: now, LevelAt: now, ReadingSince: -1, LostSince: -1}
	change(&v)
	l.group.life.views.Views = []examination.Follower{v}
	l.hears(now, 3)
	l.network.handshakes.Of(3).HeardSince.Store(0)
}

func (l *testHost) hearsLeader() {
	(*inbound)(l.Host).Receive(1, envelopes(theGroup, raftpb.Message{Type: raftpb.MsgHeartbeat, From: 1, To: 2, Term: 1}))
	l.manual.runIdle()
}

// bindsThird makes the group bind host 3 to a directory.
func (l *testHost) bindsThird(i transport.Incarnation) {
	r := *l.group.roster()
	r.Members = slices.Clone(r.Members)
	r.Members[2].Incarnation = i
	l.group.members.Rosters.Set(&r, 0)
	l.group.members.SetExcluded()
}

var causeTests = []causeTest{
	{code: diagnosis.CodeStopped, open: openLone, begin: func(l *testHost) { l.group.fail(errors.New("broken")) }, end: func(l *testHost) { l.reopen(); l.group = l.Group(theGroup) }},
	{code: diagnosis.CodeIdentityRefused, open: openFollower, begin: func(l *testHost) { (*inbound)(l.Host).RefusedBy(3, "another directory") }, end: func(l *testHost) { (*inbound)(l.Host).AdmittedBy(3) }},
	{code: diagnosis.CodeIdentityRefused, way: "this host refuses", open: openFollower, begin: func(l *testHost) {
		l.Host.reports.watch.RecordRefusal(3, errors.New("another directory"), examination.FixDirectory, "there", l.clock.awakeAtBeat(), 1)
	}, end: func(l *testHost) { l.silenceBut(l.timeouts(l.config.bounds().Refused())) }},
	{code: diagnosis.CodeIdentityRefused, way: "another directory is bound", open: openFollower, begin: func(l *testHost) {
		l.hears(l.clock.awakeAtBeat(), 3)
		l.bindsThird(incarnationOf(9))
	}, end: func(l *testHost) { l.bindsThird(incarnationOf(3)) }},
	{code: diagnosis.CodeIdentityRefused, way: "the group has stopped for it", open: openLone, begin: func(l *testHost) {
		l.group.fail(&members.RefusedDirectoryError{Err: errors.New("another directory")})
	}, end: func(l *testHost) { l.reopen(); l.group = l.Group(theGroup) }},
	{code: diagnosis.CodeCertificateRefused, way: "by the other host", open: openFollower, begin: func(l *testHost) {
		l.hears(0, 3)
		l.Host.reports.watch.RecordCertificate(3, examination.Certificate{ByPeer: true, Err: errors.New("expired")}, l.clock.awakeAtBeat(), 1)
	}, end: func(l *testHost) { l.silenceBut(l.timeouts(l.config.bounds().Refused())) }},
	{code: diagnosis.CodeCertificateRefused, open: openFollower, begin: func(l *testHost) {
		l.hears(0, 3)
		l.Host.reports.watch.RecordCertificate(3, examination.Certificate{Err: errors.New("expired")}, l.clock.awakeAtBeat(), 1)
	}, end: func(l *testHost) { l.hears(l.clock.awakeAtBeat(), 3) }},
	{code: diagnosis.CodeNotFounded, open: func(t *testing.T) *testHost {
		l := openTestHost(t, 3)
		t.Cleanup(func() { _ = l.Close(over()) })
		return l
	}, begin: func(l *testHost) { l.silence(3) }, end: func(l *testHost) { l.group.members.founding.Restore(nil, 0); l.group.members.founding.Publish() }},
	{code: diagnosis.CodeNotAdded, open: openFollower, begin: func(l *testHost) {
		r := *l.group.roster()
		r.Members = slices.Clone(r.Members)
		r.Members[1].Incarnation = incarnationOf(9)
		l.group.members.Joins = true
		l.group.life.roleTimes.Opened.Store(0)
		l.group.members.Rosters.Set(&r, 0)
	}, end: func(l *testHost) {
		r := *l.group.roster()
		r.Members[1].Incarnation = l.incarnation()
	}},
	{code: diagnosis.CodeWithoutAuthority, open: openFollower, begin: func(l *testHost) { l.group.members.withoutAuthority.Store(true) }, end: func(l *testHost) { l.group.members.withoutAuthority.Store(false) }},
	{code: diagnosis.CodeWithoutAuthority, way: "a follower", open: openLeader, begin: func(l *testHost) { l.seesThird(func(v *examination.Follower) { v.LostSince = v.At }) }, end: func(l *testHost) { l.seesThird(func(*examination.Follower) {}) }},
	{code: diagnosis.CodeDiskFull, open: openFollower, begin: func(l *testHost) { l.group.writes.append.Full.Store(true) }, end: func(l *testHost) { l.group.writes.append.Full.Store(false) }},
	{code: diagnosis.CodeDiskStalled, open: openLone, begin: func(l *testHost) { l.storage.lane.Working.Store(true); l.silence(3) }, end: func(l *testHost) { l.storage.lane.Working.Store(false) }},
	{code: diagnosis.CodeDiskStalled, way: "a read", open: openLeader, begin: func(l *testHost) {
		l.leadFor(l.config.stallTicks() + 1)
		l.seesThird(func(v *examination.Follower) { v.ReadingSince = 0 })
	}, end: func(l *testHost) { l.seesThird(func(*examination.Follower) {}) }},
	{code: diagnosis.CodeDiskSlow, way: "it waits", open: openTolerant, begin: func(l *testHost) { l.storage.lane.Working.Store(true); l.silence(2) }, end: func(l *testHost) { l.storage.lane.Working.Store(false); l.silence(3) }},
	{code: diagnosis.CodeDiskSlow, way: "it works", open: openTolerant, begin: func(l *testHost) {
		l.storage.lane.Working.Store(true)
		l.silence(2)
		l.storage.lane.Pieces.Add(1)
		l.manual.tick()
	}, end: func(l *testHost) { l.storage.lane.Working.Store(false); l.silence(3) }},
	{code: diagnosis.CodeDiskStalled, way: "of a follower", open: openLeader, begin: func(l *testHost) { l.seesThird(func(v *examination.Follower) { v.Behind, v.AckedAt = 5, -1000 }) }, end: func(l *testHost) { l.seesThird(func(*examination.Follower) {}) }},
	{code: diagnosis.CodeMachineHalted, open: openLone, begin: func(l *testHost) {
		l.machine.fail = func(statemachine.Entry) error { return errMachine }
		l.submit("x")
		l.manual.runIdle()
	}, end: func(l *testHost) {
		l.machine.fail = nil
		l.reopen()
	}},
	{code: diagnosis.CodeApplyStuck, way: "a call", open: openLone, begin: func(l *testHost) {
		l.appliers.Enqueue(&l.group.machine.apply.Seat)
		l.appliers.All()[0].Begin()
		l.passStall()
	}, end: func(l *testHost) { l.appliers.All()[0].End(&l.group.machine.apply.Seat, false) }},
	{code: diagnosis.CodeApplyStuck, way: "no lane is free", open: openLone, begin: func(l *testHost) {
		_ = l.holdApply()
		l.submit("x")
		l.manual.runIdle()
		l.passStall()
	}, end: func(l *testHost) {
		for _, lane := range l.appliers.All() {
			lane.Task().(*manualTask).dead = false
			lane.Task().Wake()
		}
		l.manual.runIdle()
	}},
	{code: diagnosis.CodeApplyStuck, way: "in the turn", open: openLone, begin: func(l *testHost) {
		l.group.wake()
		w := l.worker()
		for _, task := range l.manual.tasks {
			task.dead = task.dead || task.worker == env.Worker(w) // it is in that turn
		}
		w.Begin()
		l.passStall()
	}, end: func(l *testHost) {
		for _, w := range l.group.seat.Shard().Workers() {
			if w.Turn() != nil {
				w.End(&l.group.seat, true, never)
			}
		}
		l.manual.runIdle()
	}},
	{code: diagnosis.CodeObjectLacking, open: openFollower, begin: func(l *testHost) { l.group.machine.apply.Park(&apply.WaitingForObject{Since: 1}) }, end: func(l *testHost) { l.group.machine.apply.Park(nil) }},
	{code: diagnosis.CodeNoQuorum, open: openFollower, begin: func(l *testHost) { l.silence(5); l.hears(0, 1, 3) }, end: (*testHost).hearsLeader},
	{code: diagnosis.CodeNoLeader, open: openFollower, begin: func(l *testHost) { l.silence(5); l.hears(l.clock.awakeAtBeat(), 1, 3) }, end: (*testHost).hearsLeader},
	{code: diagnosis.CodeMemberUnreachable, open: openLeader, begin: func(l *testHost) { l.hears(0, 3) }, end: func(l *testHost) { l.hears(l.clock.awakeAtBeat(), 3) }},
	{code: diagnosis.CodeMemberSilent, open: openLeader, begin: func(l *testHost) { l.seesThird(func(v *examination.Follower) { v.ActiveAt = 0 }) }, end: func(l *testHost) { l.seesThird(func(*examination.Follower) {}) }},
	{code: diagnosis.CodeSlowMember, open: openLeader, begin: func(l *testHost) { l.seesThird(func(v *examination.Follower) { v.Slow, v.Behind = true, 5 }) }, end: func(l *testHost) { l.seesThird(func(*examination.Follower) {}) }},
	{code: diagnosis.CodeSlowMember, way: "less than StallTimeout", open: openTolerantLeader, begin: func(l *testHost) {
		l.seesThird(func(v *examination.Follower) { v.Behind, v.AckedAt = 5, v.At-5*int64(l.config.electionTicks()) })
	}, end: func(l *testHost) { l.seesThird(func(*examination.Follower) {}) }},
	{code: diagnosis.CodeSlowMember, way: "it needs a snapshot", open: openLeader, begin: func(l *testHost) {
		l.seesThird(func(v *examination.Follower) { v.Behind, v.Snapshot, v.AckedAt = 5, 9, -1000 })
	}, end: func(l *testHost) { l.seesThird(func(*examination.Follower) {}) }},
	{code: diagnosis.CodeNotSent, open: openLeader, begin: func(l *testHost) {
		for range 3 {
			l.network.handshakes.Of(3).Unsent.Add(1, l.clock.awakeAtBeat(), 1000)
		}
		l.network.handshakes.Of(3).Unsent.Since.Store(0)
		l.seesThird(func(v *examination.Follower) { v.Behind, v.AckedAt = 5, 0 })
	}, end: func(l *testHost) { l.seesThird(func(*examination.Follower) {}) }},
	{code: diagnosis.CodeDiverged, open: openLeader, begin: func(l *testHost) { l.compares(9, 1) }, end: func(l *testHost) { l.compares(10, 0) }},
	{code: diagnosis.CodeDiverged, way: "told by the leader", open: openFollower, begin: func(l *testHost) {
		l.group.machine.divergence.Init(1, l.group.self, divergence.Machine{}, (*comparison)(l.group))
		l.group.machine.divergence.Receive(l.group.Status().Leader, &divergence.Finding{Group: 1, In: event.DivergedState, Index: 9})
	}, end: func(l *testHost) {
		l.group.machine.divergence.Receive(l.group.Status().Leader, &divergence.Finding{Group: 1})
	}},
	failingSnapshot(),
	hangingSnapshot(),
	{code: diagnosis.CodeSnapshotStuck, open: openLone, begin: (*testHost).sticks, end: func(l *testHost) {
		l.disk.SetHook(nil)
		l.reopen()
	}},
	{code: diagnosis.CodeSnapshotRefused, open: openFollower, begin: func(l *testHost) {
		st := l.group.Status()
		l.group.snapshots.Offer(st.Leader, bulk.Offer{Index: st.Committed + 1})
	}, end: func(l *testHost) {
		st := l.group.Status()
		(*inbound)(l.Host).Receive(1, envelopes(theGroup, raftpb.Message{Type: raftpb.MsgApp, From: 1, To: 2, Term: st.Term, LogTerm: st.Term, Index: st.LastIndex, Commit: st.LastIndex + 1, Entries: []raftpb.Entry{{Term: st.Term, Index: st.LastIndex + 1}}}))
		l.manual.runIdle()
	}},
	{code: diagnosis.CodePlacementRests, open: openLeader, begin: func(l *testHost) {
		_ = l.group.SetPlacement(Placement{Priorities: map[uint64]int{3: 5}})
		for n := range uint64(placement.MaxPlacements) {
			l.group.leadership.placing.Told(placement.Moved{Group: theGroup, MoveName: placement.MoveName{Term: 1, Number: n + 1}})
		}
	}, end: func(l *testHost) { _ = l.group.SetPlacement(Placement{}) }},
	{code: diagnosis.CodeSettingsDiffer, open: openFollower, begin: func(l *testHost) {
		c := l.config
		c.ElectionTimeout *= 2
		l.control(1, c.settings().Encode())
	}, end: func(l *testHost) { l.control(1, l.config.settings().Encode()) }},
	{code: diagnosis.CodeSingleEntries, way: "an earlier version", open: openLeader, begin: func(l *testHost) {
		l.config.SingleEntries = false
		l.control(2, l.config.settings().Encode())
	}, end: func(l *testHost) { l.control(3, l.config.settings().Encode()) }},
	{code: diagnosis.CodeSingleEntries, way: "by its settings", open: openLeader, begin: func(l *testHost) {
		single := l.config
		l.config.SingleEntries = false
		l.control(2, l.config.settings().Encode())
		l.control(3, single.settings().Encode())
	}, end: func(l *testHost) { l.control(3, l.config.settings().Encode()) }},
	{code: diagnosis.CodeNotCompared, open: openLeader, begin: func(l *testHost) {
		l.group.machine.divergence.Init(1, 1, divergence.Machine{Form: "f"}, (*comparison)(l.group))
		l.watches("")
	}, end: func(l *testHost) { l.watches("f") }},
	{code: diagnosis.CodePaused, open: openLone, begin: func(l *testHost) { l.manual.tickLate(10 * l.config.electionTicks()) }, end: func(l *testHost) { l.silence(l.timeouts(l.config.bounds().Paused())) }},
	{code: diagnosis.CodeOverloaded, way: "commands", open: openLone, begin: func(l *testHost) { l.group.countOverload(1) }, end: func(l *testHost) { l.silence(4) }},
	{code: diagnosis.CodeOverloaded, way: "messages", open: openFollower, begin: func(l *testHost) {
		for range 4 {
			l.group.countNoSpace(1)
			l.silenceBut(1)
		}
	}, end: func(l *testHost) { l.silenceBut(4) }},
	{code: diagnosis.CodeOverloaded, way: "a slow machine", open: openLone, begin: func(l *testHost) {
		l.group.machine.backlog.Max = 1
		_ = l.holdApply()
		for range 2 {
			if _, err := l.group.Submit([]byte("x")); err != nil {
				l.t.Fatal(err)
			}
			l.manual.runIdle()
		}
	}, end: func(l *testHost) {
		for _, lane := range l.appliers.All() {
			lane.Task().(*manualTask).dead = false
			lane.Task().Wake()
		}
		l.manual.runIdle()
		l.silence(4)
	}},
}

// silenceBut lets election timeouts pass in which only the leader is heard.
func (l *testHost) silenceBut(timeouts int) {
	for range timeouts {
		l.silence(1)
		l.hearsLeader()
	}
}

// timeouts is how many election timeouts are longer than some ticks.
func (l *testHost) timeouts(ticks int64) int { return int(ticks)/l.config.electionTicks() + 1 }

// passStall lets the longest time pass that work may take.
func (l *testHost) passStall() {
	for range l.config.stallTicks() + 1 {
		l.manual.tick()
	}
}

// Each cause of Explain appears, and disappears, and the metrics say the same as Explain at each moment.
func TestEachCauseBeginsAndEnds(t *testing.T) {
	for _, row := range causeTests {
		t.Run(strings.TrimSpace(string(row.code)+" "+row.way), func(t *testing.T) {
			l := row.open(t)
			is := func(when string, want bool) {
				t.Helper()
				d := l.group.Explain()
				if d.Has(row.code) != want {
					t.Fatalf("%s: %v", when, d)
				}
				m := l.Metrics()
				if m.Unhealthy > 0 == d.Healthy {
					t.Errorf("%s: the metrics count %d groups that are not healthy, and %v", when, m.Unhealthy, d)
				}
				for _, c := range m.Causes {
					if c.Groups > 0 != d.Has(c.Code) {
						t.Errorf("%s: the metrics count %d groups with %q, and %v", when, c.Groups, c.Code, d)
					}
				}
			}
			is("before", false)
			row.begin(l)
			is("meanwhile", true)
			row.end(l)
			is("afterwards", false)
		})
	}
}

// Each code that package diagnosis declares is listed, for the metrics, and has a test for each place of
// the code that finds it.
func TestEachCauseIsListed(t *testing.T) {
	files, _ := filepath.Glob("internal/examination/*.go")
	words, _ := filepath.Glob("diagnosis/*.go")
	var declared []diagnosis.Code
	names, found := map[diagnosis.Code]string{}, map[string]int{}
	for _, name := range append(files, words...) {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(name, "_test.go") {
			countFinds(f, found)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			s, is := n.(*ast.ValueSpec)
			if !is || len(s.Values) != 1 {
				return true
			}
			if of, is := s.Type.(*ast.Ident); is && of.Name == "Code" {
				code := diagnosis.Code(strings.Trim(s.Values[0].(*ast.BasicLit).Value, `"`))
				declared, names[code] = append(declared, code), s.Names[0].Name
			}
			return true
		})
	}
	for _, code := range declared {
		if !slices.Contains(diagnosis.Codes(), code) {
			t.Errorf("%q is not in Codes", code)
		}
		rows := 0
		for _, c := range causeTests {
			if c.code == code {
				rows++
			}
		}
		if n := found[names[code]]; n == 0 || rows != n {
			t.Errorf("%q is found in %d places, and has %d rows in causeTests", code, n, rows)
		}
	}
	if len(declared) != len(diagnosis.Codes()) {
		t.Errorf("%d codes are declared and %d listed", len(declared), len(diagnosis.Codes()))
	}
}

// countFinds counts where a file finds causes, by the name of the code: e.found(diagnosis.CodeX, …) and
// diagnosis.Cause{Code: diagnosis.CodeX}.
func countFinds(f *ast.File, found map[string]int) {
	count := func(e ast.Expr) {
		if s, is := e.(*ast.SelectorExpr); is && strings.HasPrefix(s.Sel.Name, "Code") {
			found[s.Sel.Name]++
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if s, is := n.Fun.(*ast.SelectorExpr); is && s.Sel.Name == "found" && len(n.Args) > 0 {
				count(n.Args[0])
			}
		case *ast.KeyValueExpr:
			if key, is := n.Key.(*ast.Ident); is && key.Name == "Code" {
				count(n.Value)
			}
		}
		return true
	})
}
