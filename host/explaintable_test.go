package host

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport/tcp"
)

// causeTest makes a cause appear and disappear. What other tests do for a cause in both directions is named.
type causeTest struct {
	code       CauseCode
	open       func(t *testing.T) *testHost
	begin, end func(l *testHost)
	elsewhere  string
}

// openLeader opens host 1 of three, which leads.
func openLeader(t *testing.T) *testHost {
	l := openTestHost(t, 3)
	t.Cleanup(func() { _ = l.Close(over()) })
	l.lead()
	for range 4 * l.config.electionTicks() {
		l.manual.tick()
		l.deliver(raftpb.Message{Type: raftpb.MsgHeartbeatResp, Term: 1})
		l.hears(l.clock.livedAtBeat(), 3)
	}
	l.seesThird(func(*memberView) {})
	return l
}

// openLone opens a host that leads a group of its own.
func openLone(t *testing.T) *testHost {
	l := openTestHost(t, 1)
	t.Cleanup(func() { _ = l.Close(over()) })
	l.lead()
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

// seesThird makes the leader see host 3 in some way.
func (l *testHost) seesThird(change func(*memberView)) {
	now := l.clock.livedAtBeat()
	v := memberView{id: 3, at: now, activeAt: now, ackedAt: now, levelAt: now, readingSince: -1, lostSince: -1}
	change(&v)
	l.group.views.views = []memberView{v}
	l.hears(now, 3)
	l.meetings.of(3).heardSince.Store(0)
}

func (l *testHost) hearsLeader() {
	(*inbound)(l.Host).Receive(1, envelopes(theGroup, raftpb.Message{Type: raftpb.MsgHeartbeat, From: 1, To: 2, Term: 1}))
	l.manual.runIdle()
}

var causeTests = []causeTest{
	{code: CodeStopped, open: openLone, begin: func(l *testHost) { l.group.fail(errors.New("broken")) }, end: func(l *testHost) { l.reopen(); l.group = l.Group(theGroup) }},
	{code: CodeIdentityRefused, open: openFollower, begin: func(l *testHost) { (*inbound)(l.Host).RefusedBy(3, "another directory") }, end: func(l *testHost) { (*inbound)(l.Host).AdmittedBy(3) }},
	{code: CodeCertificateRefused, open: openFollower, begin: func(l *testHost) {
		l.hears(0, 3)
		l.Host.watch.noteCertificate(tcp.CertificateRefused{Peer: 3, Err: errors.New("expired")}, l.clock.livedAtBeat(), 1)
	}, end: func(l *testHost) { l.hears(l.clock.livedAtBeat(), 3) }},
	{code: CodeNotFounded, open: func(t *testing.T) *testHost {
		l := openTestHost(t, 3)
		t.Cleanup(func() { _ = l.Close(over()) })
		return l
	}, begin: func(l *testHost) { l.silence(3) }, end: func(l *testHost) { l.group.founded = true; l.group.publishFounding() }},
	{code: CodeNotAdded, open: openFollower, begin: func(l *testHost) {
		r := *l.group.roster()
		r.Members = slices.Clone(r.Members)
		r.Members[1].Incarnation = incarnationOf(9)
		l.group.members.joins = true
		l.group.roleTimes.opened.Store(0)
		l.group.members.roster.Store(&r)
	}, end: func(l *testHost) {
		r := *l.group.roster()
		r.Members[1].Incarnation = l.incarnation()
	}},
	{code: CodeWithoutAuthority, open: openFollower, begin: func(l *testHost) { l.group.withoutAuthority.Store(true) }, end: func(l *testHost) { l.group.withoutAuthority.Store(false) }},
	{code: CodeDiskFull, open: openFollower, begin: func(l *testHost) { l.group.append.full.Store(true) }, end: func(l *testHost) { l.group.append.full.Store(false) }},
	{code: CodeDiskStalled, open: openLone, begin: func(l *testHost) { l.lane.working.Store(true); l.silence(3) }, end: func(l *testHost) { l.lane.working.Store(false) }},
	{code: CodeMachineHalted, open: openLone, begin: func(l *testHost) {
		l.machine.fail = func(Entry) error { return errMachine }
		l.submit("x")
		l.manual.runIdle()
	}, end: func(l *testHost) {
		l.machine.fail = nil
		l.reopen()
	}},
	{code: CodeApplyStuck, elsewhere: "the ailment MachineStuck of sim.Explain"},
	{code: CodeObjectLacking, open: openFollower, begin: func(l *testHost) { l.group.apply.parked.Store(&parked{since: 0}) }, end: func(l *testHost) { l.group.apply.parked.Store(nil) }},
	{code: CodeNoQuorum, open: openFollower, begin: func(l *testHost) { l.silence(5); l.hears(0, 1, 3) }, end: (*testHost).hearsLeader},
	{code: CodeNoLeader, open: openFollower, begin: func(l *testHost) { l.silence(5); l.hears(l.clock.livedAtBeat(), 1, 3) }, end: (*testHost).hearsLeader},
	{code: CodeMemberUnreachable, open: openLeader, begin: func(l *testHost) { l.hears(0, 3) }, end: func(l *testHost) { l.hears(l.clock.livedAtBeat(), 3) }},
	{code: CodeMemberSilent, open: openLeader, begin: func(l *testHost) { l.seesThird(func(v *memberView) { v.activeAt = 0 }) }, end: func(l *testHost) { l.seesThird(func(*memberView) {}) }},
	{code: CodeSlowMember, open: openLeader, begin: func(l *testHost) { l.seesThird(func(v *memberView) { v.slow, v.behind = true, 5 }) }, end: func(l *testHost) { l.seesThird(func(*memberView) {}) }},
	{code: CodeNotSent, open: openLeader, begin: func(l *testHost) {
		for range 3 {
			l.meetings.of(3).unsent.note(1, l.clock.livedAtBeat(), 1000)
		}
		l.meetings.of(3).unsent.since.Store(0)
		l.seesThird(func(v *memberView) { v.behind, v.ackedAt = 5, 0 })
	}, end: func(l *testHost) { l.seesThird(func(*memberView) {}) }},
	{code: CodeDiverged, open: openLone, begin: func(l *testHost) {
		l.group.divergence.latest = &Diverged{Group: 1, In: DivergedState, Index: 9}
	}, end: func(l *testHost) { l.group.divergence.latest = nil }},
	{code: CodeSnapshotFails, open: openFollower, begin: func(l *testHost) { l.group.snapshots.failures, l.group.snapshots.lastErr = 2, errors.New("no") }, end: func(l *testHost) { l.group.snapshots.failures = 0 }},
	{code: CodeSnapshotHangs, elsewhere: "TestASnapshotThatHangs"},
	{code: CodePlacementRests, elsewhere: "TestMovesAreBounded"},
	{code: CodeSettingsDiffer, open: openFollower, begin: func(l *testHost) {
		c := l.config
		c.ElectionTimeout *= 2
		l.control(1, encodeSettings(c))
	}, end: func(l *testHost) { l.control(1, encodeSettings(l.config)) }},
	{code: CodePaused, open: openLone, begin: func(l *testHost) { l.manual.tickLate(10 * l.config.electionTicks()) }, end: func(l *testHost) { l.silence(recentTimeouts + 1) }},
	{code: CodeOverloaded, open: openLone, begin: func(l *testHost) { l.group.noteOverload(1) }, end: func(l *testHost) { l.silence(4) }},
}

// Each cause of Explain appears, and disappears, and the metrics say the same as Explain at each moment.
func TestEachCauseBeginsAndEnds(t *testing.T) {
	for _, row := range causeTests {
		if row.elsewhere != "" {
			continue
		}
		t.Run(string(row.code), func(t *testing.T) {
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

// Each code that package host declares is listed, for the metrics, and has a test.
func TestEachCauseIsListed(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var declared []CauseCode
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			s, is := n.(*ast.ValueSpec)
			if !is || len(s.Values) != 1 {
				return true
			}
			if of, is := s.Type.(*ast.Ident); is && of.Name == "CauseCode" {
				declared = append(declared, CauseCode(strings.Trim(s.Values[0].(*ast.BasicLit).Value, `"`)))
			}
			return true
		})
	}
	for _, code := range declared {
		if !slices.Contains(causeCodes, code) {
			t.Errorf("%q is not in causeCodes", code)
		}
		if !slices.ContainsFunc(causeTests, func(c causeTest) bool { return c.code == code }) {
			t.Errorf("%q has no row in causeTests", code)
		}
	}
	if len(declared) != len(causeCodes) || len(declared) != len(causeTests) {
		t.Errorf("%d codes are declared, %d listed and %d tested", len(declared), len(causeCodes), len(causeTests))
	}
}
