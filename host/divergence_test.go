package host

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/host/session"
)

// TestWhoHasDiverged: which members differ, and which of them are a minority.
func TestWhoHasDiverged(t *testing.T) {
	for _, row := range []struct {
		sums     string // one letter for each member
		voters   int
		minority string // ids
		differ   bool
	}{
		{"aaa", 3, "", false},
		{"aa", 3, "", false},
		{"aab", 3, "3", true},
		{"baa", 3, "1", true},
		{"ab", 3, "", true},  // the third is not heard
		{"ab", 2, "", true},  // two members have no minority
		{"abc", 3, "", true}, // no majority
		{"aabc", 5, "", true},
		{"aaabc", 5, "45", true},
		{"aab", 5, "", true}, // two of five agree
	} {
		var d event.Diverged
		for i, c := range row.sums {
			d.Members = append(d.Members, event.DivergedMember{ID: uint64(i + 1), Sum: uint64(c)})
		}
		differ, minority := markMinority(d.Members, row.voters), ""
		for _, m := range d.Members {
			if m.Minority {
				minority += string(rune('0' + m.ID))
			}
		}
		if differ != row.differ || minority != row.minority {
			t.Errorf("%s of %d voters: differ %v, minority %q", row.sums, row.voters, differ, minority)
		}
	}
}

// leaderOf is a leader of three members that compares what they report.
func leaderOf(t *testing.T, o CommandOptions) (*Group, *[]event.Event) {
	t.Helper()
	s := bareCommands(&listMachine{}, o, 0)
	g := s.group
	g.members.ids.Store(&[]uint64{1, 2, 3})
	g.status.Store(Status{Leader: 1})
	g.host.env.logger, g.host.transport = quiet, &controlTransport{recordingTransport: &recordingTransport{}}
	var events []event.Event
	l := &listener{}
	l.notify = func() {
		for e, ok := l.next(); ok; e, ok = l.next() {
			events = append(events, e)
		}
	}
	g.host.events.add(l)
	return g, &events
}

func (d *divergence) hear(from uint64, version string, checkpoints ...checkpoint) {
	d.take(from, report{group: 1, options: d.options, version: version, checkpoints: checkpoints})
}

// TestADifferenceIsReportedOnce: the leader compares checkpoints of equal index, whichever comes first, and
// reports a difference once for each set of members.
func TestADifferenceIsReportedOnce(t *testing.T) {
	g, events := leaderOf(t, CommandOptions{Version: "v1", Digest: func() uint64 { return 0 }})
	d := &g.divergence
	at := func(index, digest uint64) checkpoint {
		return checkpoint{index: index, commands: index, digest: digest, hasDigest: true}
	}
	d.hear(2, "v1", at(10, 1))
	d.put(g, at(10, 1))
	d.put(g, at(20, 2))
	d.hear(2, "v1", at(10, 1), at(20, 2))
	d.hear(3, "v2", at(20, 99)) // another version
	d.compare(g)
	if len(*events) > 0 {
		t.Fatalf("reported %v, although nothing differs", *events)
	}
	d.hear(2, "v1", at(20, 2), at(30, 7)) // ahead of the leader
	d.put(g, at(30, 3))
	d.put(g, at(40, 4))
	d.hear(2, "v1", at(40, 8))
	d.compare(g)
	want := event.Diverged{Group: 1, In: event.DivergedState, Index: 30, Agreed: 20, Version: "v1", Members: []event.DivergedMember{{ID: 1, Version: "v1", Sum: 3}, {ID: 2, Version: "v1", Sum: 7}}}
	if !reflect.DeepEqual(*events, []event.Event{want}) {
		t.Fatalf("reported %+v\nwant %+v", *events, want)
	}
	const text = `the members of group 1 differ in their state after entry 30 (they agreed after entry 20): host 1 has 0000000000000003 in version "v1", host 2 has 0000000000000007 in version "v1"`
	if have := want.String(); have != text {
		t.Errorf("%s\nwant %s", have, text)
	}
	if latest, ok := g.Diverged(); !ok || latest.Index != 40 || latest.Agreed != 20 {
		t.Errorf("the latest difference is %+v", latest)
	}
	d.hear(3, "v1", at(40, 4))
	d.compare(g)
	if n := len(*events); n != 2 || !(*events)[1].(event.Diverged).Members[1].Minority {
		t.Errorf("reported %+v, want host 2 as a minority", *events)
	}
}

// TestADifferenceIsOver when the same members agree at a later entry; of results, when their states do.
func TestADifferenceIsOver(t *testing.T) {
	for _, row := range []struct {
		in     event.DivergedIn
		digest bool
		want   bool // it is over
	}{{event.DivergedState, true, true}, {event.DivergedCommands, false, true}, {event.DivergedResults, false, false}, {event.DivergedResults, true, true}} {
		g, events := leaderOf(t, CommandOptions{})
		d := &g.divergence
		c := checkpoint{index: 5, hasResults: true, hasDigest: row.digest}
		wrong := c
		switch row.in {
		case event.DivergedState:
			wrong.digest++
		case event.DivergedCommands:
			wrong.commands++
		case event.DivergedResults:
			wrong.results++
		}
		d.hear(2, "", wrong)
		d.put(g, c)
		c.index = 9
		d.put(g, c)
		d.hear(3, "", c)
		d.compare(g)
		if _, ok := g.Diverged(); !ok || len(*events) != 1 {
			t.Fatalf("a difference in %s is over before the member reports again", row.in)
		}
		d.hear(2, "", c)
		d.compare(g)
		if _, ok := g.Diverged(); ok == row.want {
			t.Errorf("a difference in %s, digest %v: over is %v, want %v", row.in, row.digest, !ok, row.want)
		}
	}
}

// TestOtherDifferences: sums of commands and of options are compared whatever the version.
func TestOtherDifferences(t *testing.T) {
	for in, change := range map[event.DivergedIn]func(*report){
		event.DivergedCommands: func(r *report) { r.checkpoints[0].commands++ },
		event.DivergedOptions:  func(r *report) { r.options++ },
		event.DivergedResults:  func(r *report) { r.checkpoints[0].results++ },
		"":                     func(r *report) { r.version = "v2"; r.checkpoints[0].results++ },
		"none":                 func(r *report) { r.form++; r.checkpoints[0].results++ },
	} {
		g, events := leaderOf(t, CommandOptions{Version: "v1"})
		c := checkpoint{index: 5, commands: 6, results: 7, hasResults: true}
		r := report{group: 1, options: g.divergence.options, version: "v1", checkpoints: []checkpoint{c}}
		change(&r)
		g.divergence.take(3, r)
		g.divergence.put(g, c)
		have := event.DivergedIn("")
		if len(*events) > 0 {
			have = (*events)[0].(event.Diverged).In
		}
		if have != in && !(have == "" && in == "none") {
			t.Errorf("reported a difference in %q, want %q", have, in)
		}
	}
	a := session.Options{MaxResultBytes: 1}
	if g, _ := leaderOf(t, CommandOptions{Sessions: a}); true {
		h, _ := leaderOf(t, CommandOptions{KeepResults: true})
		same, _ := leaderOf(t, CommandOptions{})
		if g.divergence.options == h.divergence.options || g.divergence.options != same.divergence.options {
			t.Error("the sum of options is not that of the options in force")
		}
	}
}

// TestAnOrderToStop: a member stops if the option is set and its own checkpoint has another sum.
func TestAnOrderToStop(t *testing.T) {
	c := checkpoint{index: 5, commands: 6, results: 7, digest: 8, hasResults: true, hasDigest: true}
	for in, sum := range map[event.DivergedIn]uint64{event.DivergedCommands: 6, event.DivergedResults: 7, event.DivergedState: 8} {
		g, _ := leaderOf(t, CommandOptions{Version: "v1", StopDiverged: true})
		d := &g.divergence
		d.put(g, c)
		for _, row := range []struct {
			order stopOrder
			want  bool
		}{
			{stopOrder{1, 5, in, 0, "v1", sum}, false},
			{stopOrder{1, 4, in, 0, "v1", sum + 1}, false},
			{stopOrder{1, 5, in, 0, "v2", sum + 1}, in == event.DivergedCommands},
			{stopOrder{1, 5, in, 9, "v1", sum + 1}, in != event.DivergedResults},
			{stopOrder{1, 5, in, 0, "v1", sum + 1}, true},
		} {
			if have := d.differs(row.order); have != row.want {
				t.Errorf("%+v: %v, want %v", row.order, have, row.want)
			}
		}
	}
	s := bareCommands(&listMachine{}, CommandOptions{}, 0)
	if s.stops(event.DivergedState) || s.stops(event.DivergedResults) || !s.stops(event.DivergedOptions) {
		t.Error("without StopDiverged, a member must stop for other options, and for nothing else")
	}
	if err := s.divergedError(&stopOrder{1, 5, event.DivergedOptions, 0, "v1", 9}); !errors.Is(err, ErrDiverged) || !strings.Contains(err.Error(), "other CommandOptions.Sessions (Machine.Sessions) on this host") {
		t.Error(err)
	}
	err := s.divergedError(&stopOrder{1, 5, event.DivergedState, 0, "v1", 9})
	const want = "millrace: this member has diverged from the majority: in its state after entry 5 of group 1, where the majority has sum 0000000000000009; find what is not the same on every host (map order, clock, chance, another program), then restart this host with an empty state machine"
	if !errors.Is(err, ErrDiverged) || err.Error() != want {
		t.Errorf("%v\nwant %s", err, want)
	}
}

func FuzzDivergenceRecords(f *testing.F) {
	r := report{group: 3, options: 4, form: 5, told: true, version: "v1", checkpoints: []checkpoint{{index: 1, commands: 2}, {7, 8, 9, 10, true, true}}}
	o := stopOrder{group: 3, index: 400, in: event.DivergedState, version: "v1", sum: 77}
	f.Add(r.encode())
	f.Add(o.encode())
	f.Add((&report{}).encode())
	f.Add(encodeFinding(&event.Diverged{Group: 3, In: event.DivergedResults, Index: 5, Agreed: 4, Version: "v1", Members: []event.DivergedMember{{ID: 1, Version: "v1", Sum: 7, Minority: false}, {ID: 2, Version: "v1", Sum: 8, Minority: true}}}))
	f.Fuzz(func(t *testing.T, body []byte) {
		if r, err := decodeReport(body); err == nil {
			again, err := decodeReport(r.encode()[:])
			if err != nil || !reflect.DeepEqual(r, again) {
				t.Fatalf("%+v became %+v, %v", r, again, err)
			}
		} else if !errors.Is(err, control.ErrBad) {
			t.Fatal(err)
		}
		if o, err := decodeStop(body); err == nil {
			if again, err := decodeStop(o.encode()); err != nil || o != again {
				t.Fatalf("%+v became %+v, %v", o, again, err)
			}
		} else if !errors.Is(err, control.ErrBad) {
			t.Fatal(err)
		}
		if d, err := decodeFinding(body); err == nil {
			if again, err := decodeFinding(encodeFinding(&d)); err != nil || !reflect.DeepEqual(d, again) {
				t.Fatalf("%+v became %+v, %v", d, again, err)
			}
		} else if !errors.Is(err, control.ErrBad) {
			t.Fatal(err)
		}
	})
}

// TestDivergenceRecordsAreBounded: what a peer may not send is refused with the numbers.
func TestDivergenceRecordsAreBounded(t *testing.T) {
	many := report{group: 1, checkpoints: make([]checkpoint, sentCheckpoints+1)}
	long := report{group: 1, version: strings.Repeat("v", maxVersionBytes+1)}
	back := report{group: 1, checkpoints: []checkpoint{{index: 5}, {index: 5}}}
	one := report{group: 1, checkpoints: []checkpoint{{index: 5}}}
	for want, body := range map[string][]byte{
		"a report of 9 checkpoints, want at most 8":                           many.encode(),
		"the version of a state machine has 129 bytes, want at most 128":      long.encode(),
		"a checkpoint at entry 5 with flags 0x0 follows one at entry 5":       back.encode(),
		"1 bytes follow what members say about divergence":                    append(one.encode(), 0),
		"what members say about divergence is cut off":                        one.encode()[:30],
		"what members say about divergence ends in the middle of a number":    one.encode()[:2],
		"2 bytes about divergence, in a form that this program does not know": {control.Report, 9},
		"1 bytes about divergence, in a form that this program does not know": {control.Report},
	} {
		if _, err := decodeReport(body); err == nil || err.Error() != control.ErrBad.Error()+": "+want {
			t.Errorf("%v\nwant %s", err, want)
		}
	}
	o := (&stopOrder{group: 1, in: event.DivergedState}).encode()
	o[4] = 9
	if _, err := decodeStop(o); err == nil || !strings.Contains(err.Error(), "members differ in 9, which this program does not know") {
		t.Error(err)
	}
}

// The sum of the commands that a member has applied depends on each of them, on their order, and on what the
// sessions said about them.
func TestSumsDependOnEveryCommand(t *testing.T) {
	type applied struct {
		entry   string
		verdict session.Verdict
	}
	seen := map[uint64]int{}
	histories := [][]applied{
		nil,
		{{"a", session.Fresh}},
		{{"b", session.Fresh}},
		{{"a", session.Duplicate}},
		{{"a", session.Fresh}, {"b", session.Fresh}},
		{{"b", session.Fresh}, {"a", session.Fresh}},
		{{"a", session.Fresh}, {"b", session.Duplicate}},
		{{"", session.Fresh}},
	}
	for i, history := range histories {
		var s, again sums
		for _, a := range history {
			s.command([]byte(a.entry), a.verdict, 0)
			again.command([]byte(a.entry), a.verdict, 0)
		}
		if s.commands != again.commands {
			t.Errorf("history %d has two sums", i)
		}
		if other, taken := seen[s.commands]; taken {
			t.Errorf("histories %d and %d have the same sum", i, other)
		}
		seen[s.commands] = i
	}
}

// A checkpoint has the sum of all results since the checkpoint before, if they are kept. A member reports its
// checkpoints to its leader, the first one, too.
func TestCheckpointsHaveResults(t *testing.T) {
	taken := func(keep bool, results ...string) checkpoint {
		g, _ := leaderOf(t, CommandOptions{KeepResults: keep})
		s := &g.divergence.machine.sums
		for _, r := range results {
			s.result(sumOf([]byte(r)))
		}
		s.checkpoint(7, true)
		return g.divergence.own[0]
	}
	a, b := taken(true, "x", "y"), taken(true, "y", "x")
	if again := taken(true, "x", "y"); !a.hasResults || a.results == b.results || a.results != again.results || a.index != 7 {
		t.Errorf("checkpoints %+v and %+v after other results, %+v after the same", a, b, again)
	}
	if none := taken(false, "x", "y"); none.hasResults || none.results != 0 {
		t.Errorf("results are not kept, and the checkpoint is %+v", none)
	}

	g, _ := leaderOf(t, CommandOptions{})
	out := &controlTransport{recordingTransport: &recordingTransport{}}
	g.host.transport = out
	g.status.Store(Status{Leader: 2})
	var want []checkpoint
	for index := range uint64(sentCheckpoints + 2) {
		c := checkpoint{index: index + 1, commands: index}
		want = append(want, c)
		g.divergence.put(g, c)
		body := out.bodies[len(out.bodies)-1]
		r, err := decodeReport(body.body)
		if most := want[max(0, len(want)-sentCheckpoints):]; err != nil || body.to != 2 || !reflect.DeepEqual(r.checkpoints, most) {
			t.Fatalf("host %d is told %+v, %v; want %+v", body.to, r.checkpoints, err, most)
		}
	}
}
