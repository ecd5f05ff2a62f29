package divergence

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/host/internal/entry"
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

// script is the group of a member: what it says, and what was done to it.
type script struct {
	leader  uint64
	members []uint64
	silent  []uint64 // are not there
	lives   map[uint64]uint64
	now     int64

	sent    []sent
	found   []event.Diverged
	told    []event.Diverged
	yields  int
	stopped *Order
}

type sent struct {
	to     uint64
	record []byte
}

func (s *script) Leader() uint64                   { return s.leader }
func (s *script) Members() []uint64                { return s.members }
func (s *script) IsMember(id uint64) bool          { return slices.Contains(s.members, id) }
func (s *script) IsThere(id uint64) bool           { return !slices.Contains(s.silent, id) }
func (s *script) Life(id uint64) uint64            { return s.lives[id] }
func (s *script) Voters() int                      { return len(s.members) }
func (s *script) Now() int64                       { return s.now }
func (s *script) Send(to uint64, record []byte)    { s.sent = append(s.sent, sent{to, record}) }
func (s *script) Found(d *event.Diverged)          { s.found = append(s.found, *d) }
func (s *script) Told(_ uint64, d *event.Diverged) { s.told = append(s.told, *d) }
func (s *script) Yield()                           { s.yields++ }
func (s *script) Stop(o *Order)                    { s.stopped = o }

// taken returns who was sent a record since the last call, in ascending order.
func (s *script) taken(r Record) (ids []uint64) {
	for _, b := range s.sent {
		if slices.Equal(b.record, r.Encode()) {
			ids = append(ids, b.to)
		}
	}
	s.sent = nil
	slices.Sort(ids)
	return slices.Compact(ids)
}

// leaderOf is a leader of three members that compares what they report.
func leaderOf(m Machine) (*Comparison, *script) {
	d, s := &Comparison{}, &script{leader: 1, members: []uint64{1, 2, 3}}
	d.Init(1, 1, m, s)
	return d, s
}

func (d *Comparison) hears(from uint64, version string, checkpoints ...Checkpoint) {
	d.hear(from, &Report{Group: 1, Options: d.options, Version: version, Checkpoints: checkpoints})
}

// TestADifferenceIsReportedOnce: the leader compares checkpoints of equal index, whichever comes first, and
// reports a difference once for each set of members.
func TestADifferenceIsReportedOnce(t *testing.T) {
	d, group := leaderOf(Machine{Version: "v1", Digest: func() uint64 { return 0 }})
	at := func(index, digest uint64) Checkpoint {
		return Checkpoint{Index: index, Commands: index, Digest: digest, HasDigest: true}
	}
	d.hears(2, "v1", at(10, 1))
	d.Record(at(10, 1))
	d.Record(at(20, 2))
	d.hears(2, "v1", at(10, 1), at(20, 2))
	d.hears(3, "v2", at(20, 99)) // another version
	d.compare()
	if len(group.found) > 0 {
		t.Fatalf("reported %v, although nothing differs", group.found)
	}
	d.hears(2, "v1", at(20, 2), at(30, 7)) // ahead of the leader
	d.Record(at(30, 3))
	d.Record(at(40, 4))
	d.hears(2, "v1", at(40, 8))
	d.compare()
	want := event.Diverged{Group: 1, In: event.DivergedState, Index: 30, Agreed: 20, Version: "v1", Members: []event.DivergedMember{{ID: 1, Version: "v1", Sum: 3}, {ID: 2, Version: "v1", Sum: 7}}}
	if !reflect.DeepEqual(group.found, []event.Diverged{want}) {
		t.Fatalf("reported %+v\nwant %+v", group.found, want)
	}
	const text = `the members of group 1 differ in their state after entry 30 (they agreed after entry 20): host 1 has 0000000000000003 in version "v1", host 2 has 0000000000000007 in version "v1"`
	if have := want.String(); have != text {
		t.Errorf("%s\nwant %s", have, text)
	}
	if latest, _, _ := d.Standing(); latest == nil || latest.Index != 40 || latest.Agreed != 20 {
		t.Errorf("the latest difference is %+v", latest)
	}
	d.hears(3, "v1", at(40, 4))
	d.compare()
	if n := len(group.found); n != 2 || !group.found[1].Members[1].Minority {
		t.Errorf("reported %+v, want host 2 as a minority", group.found)
	}
}

// TestADifferenceIsOver when the same members agree at a later entry; of results, when their states do.
func TestADifferenceIsOver(t *testing.T) {
	for _, row := range []struct {
		in     event.DivergedIn
		digest bool
		want   bool // it is over
	}{{event.DivergedState, true, true}, {event.DivergedCommands, false, true}, {event.DivergedResults, false, false}, {event.DivergedResults, true, true}} {
		d, group := leaderOf(Machine{})
		c := Checkpoint{Index: 5, HasResults: true, HasDigest: row.digest}
		wrong := c
		switch row.in {
		case event.DivergedState:
			wrong.Digest++
		case event.DivergedCommands:
			wrong.Commands++
		case event.DivergedResults:
			wrong.Results++
		}
		d.hears(2, "", wrong)
		d.Record(c)
		c.Index = 9
		d.Record(c)
		d.hears(3, "", c)
		d.compare()
		if found, _, _ := d.Standing(); found == nil || len(group.found) != 1 {
			t.Fatalf("a difference in %s is over before the member reports again", row.in)
		}
		d.hears(2, "", c)
		d.compare()
		if found, _, _ := d.Standing(); (found == nil) != row.want {
			t.Errorf("a difference in %s, digest %v: over is %v, want %v", row.in, row.digest, found == nil, row.want)
		}
	}
}

// TestOtherDifferences: sums of commands and of options are compared whatever the version.
func TestOtherDifferences(t *testing.T) {
	for in, change := range map[event.DivergedIn]func(*Report){
		event.DivergedCommands: func(r *Report) { r.Checkpoints[0].Commands++ },
		event.DivergedOptions:  func(r *Report) { r.Options++ },
		event.DivergedResults:  func(r *Report) { r.Checkpoints[0].Results++ },
		"":                     func(r *Report) { r.Version = "v2"; r.Checkpoints[0].Results++ },
		"none":                 func(r *Report) { r.Watch.Form = "f"; r.Checkpoints[0].Results++ },
	} {
		d, group := leaderOf(Machine{Version: "v1"})
		c := Checkpoint{Index: 5, Commands: 6, Results: 7, HasResults: true}
		r := Report{Group: 1, Options: d.options, Version: "v1", Checkpoints: []Checkpoint{c}}
		change(&r)
		d.hear(3, &r)
		d.Record(c)
		have := event.DivergedIn("")
		if len(group.found) > 0 {
			have = group.found[0].In
		}
		if have != in && !(have == "" && in == "none") {
			t.Errorf("reported a difference in %q, want %q", have, in)
		}
	}
	a, _ := leaderOf(Machine{Sessions: session.Options{MaxResultBytes: 1}})
	b, _ := leaderOf(Machine{Sessions: session.Options{MaxResultBytes: 2}})
	same, _ := leaderOf(Machine{Sessions: session.Options{MaxResultBytes: 1}.WithDefaults()})
	if a.options == b.options || a.options != same.options {
		t.Error("the sum of options is not that of the options in force")
	}
}

// TestAnOrderToStop: a member stops if the option is set and its own checkpoint has another sum.
func TestAnOrderToStop(t *testing.T) {
	c := Checkpoint{Index: 5, Commands: 6, Results: 7, Digest: 8, HasResults: true, HasDigest: true}
	for in, sum := range map[event.DivergedIn]uint64{event.DivergedCommands: 6, event.DivergedResults: 7, event.DivergedState: 8} {
		d, _ := leaderOf(Machine{Version: "v1", Stops: true})
		d.Record(c)
		for _, row := range []struct {
			order Order
			want  bool
		}{
			{Order{1, 5, in, "", "v1", sum}, false},
			{Order{1, 4, in, "", "v1", sum + 1}, false},
			{Order{1, 5, in, "", "v2", sum + 1}, in == event.DivergedCommands},
			{Order{1, 5, in, "f", "v1", sum + 1}, in != event.DivergedResults},
			{Order{1, 5, in, "", "v1", sum + 1}, true},
		} {
			if have := d.differs(&row.order); have != row.want {
				t.Errorf("%+v: %v, want %v", row.order, have, row.want)
			}
		}
	}
	m := &Machine{}
	if m.stops(event.DivergedState) || m.stops(event.DivergedResults) || !m.stops(event.DivergedOptions) {
		t.Error("a member that does not stop must stop for other options, and for nothing else")
	}
	if why := (&Order{1, 5, event.DivergedOptions, "", "v1", 9}).String(); !strings.Contains(why, "other CommandOptions.Sessions (Machine.Sessions) on this host") {
		t.Error(why)
	}
	const want = "in its state after entry 5 of group 1, where the majority has sum 0000000000000009; find what is not the same on every host (map order, clock, chance, another program), then restart this host with an empty state machine"
	if why := (&Order{1, 5, event.DivergedState, "", "v1", 9}).String(); why != want {
		t.Errorf("%s\nwant %s", why, want)
	}
}

// A member obeys the leader that it follows, and no other host.
func TestWhoseOrderStops(t *testing.T) {
	for _, row := range []struct {
		from   uint64
		stops  bool
		digest uint64 // of the majority
		want   bool
	}{{2, true, 9, true}, {3, true, 9, false}, {2, false, 9, false}, {2, true, 8, false}} {
		d, group := leaderOf(Machine{Stops: row.stops})
		group.leader = 2
		d.Record(Checkpoint{Index: 5, Digest: 8, HasDigest: true})
		d.Receive(row.from, &Order{Group: 1, Index: 5, In: event.DivergedState, Sum: row.digest})
		if have := group.stopped != nil; have != row.want {
			t.Errorf("%+v: stopped is %v", row, have)
		}
	}
}

// A leader that differs from a majority hands over first, and stops if it still leads at a later checkpoint.
// Members that agree and are silent do not count.
func TestLeaderThatDiffersYields(t *testing.T) {
	d, group := leaderOf(Machine{Stops: true})
	at := func(index uint64) {
		d.Record(Checkpoint{Index: index, Digest: 8, HasDigest: true})
		for _, id := range []uint64{2, 3} {
			d.Receive(id, &Report{Group: 1, Options: d.options, Checkpoints: []Checkpoint{{Index: index, Digest: 9, HasDigest: true}}})
		}
	}
	at(5)
	if group.yields != 1 || group.stopped != nil {
		t.Fatalf("the leader yields %d times and stops by %v", group.yields, group.stopped)
	}
	if at(6); group.yields != 1 || group.stopped == nil {
		t.Errorf("the leader yields %d times and stops by %v", group.yields, group.stopped)
	}

	d, group = leaderOf(Machine{Stops: true})
	group.silent = []uint64{3}
	if at(5); group.yields > 0 || group.stopped != nil || len(group.found) == 0 {
		t.Errorf("one of three members would be left, and the leader yields %d times and stops by %v", group.yields, group.stopped)
	}
}

func FuzzDivergenceRecords(f *testing.F) {
	r := Report{Group: 3, Options: 4, Told: true, Watch: Watch{"f", true}, Version: "v1", Checkpoints: []Checkpoint{{Index: 1, Commands: 2}, {7, 8, 9, 10, true, true}}}
	o := Order{Group: 3, Index: 400, In: event.DivergedResults, Form: "f", Version: "v1", Sum: 77}
	f.Add(r.Encode())
	f.Add(o.Encode())
	f.Add((&Report{}).Encode())
	f.Add((&Finding{Group: 3, In: event.DivergedResults, Index: 5, Agreed: 4, Version: "v1", Members: []event.DivergedMember{{ID: 1, Version: "v1", Sum: 7, Minority: false}, {ID: 2, Version: "v1", Sum: 8, Minority: true}}}).Encode())
	f.Fuzz(func(t *testing.T, body []byte) {
		if r, err := decodeReport(body); err == nil {
			again, err := decodeReport(r.Encode())
			if err != nil || !reflect.DeepEqual(r, again) {
				t.Fatalf("%+v became %+v, %v", r, again, err)
			}
		} else if !errors.Is(err, control.ErrBad) {
			t.Fatal(err)
		}
		if o, err := decodeOrder(body); err == nil {
			if again, err := decodeOrder(o.Encode()); err != nil || *o != *again {
				t.Fatalf("%+v became %+v, %v", o, again, err)
			}
		} else if !errors.Is(err, control.ErrBad) {
			t.Fatal(err)
		}
		if d, err := decodeFinding(body); err == nil {
			if again, err := decodeFinding(d.Encode()); err != nil || !reflect.DeepEqual(d, again) {
				t.Fatalf("%+v became %+v, %v", d, again, err)
			}
		} else if !errors.Is(err, control.ErrBad) {
			t.Fatal(err)
		}
	})
}

// TestDivergenceRecordsAreBounded: what a peer may not send is refused with the numbers.
func TestDivergenceRecordsAreBounded(t *testing.T) {
	many := Report{Group: 1, Checkpoints: make([]Checkpoint, sentCheckpoints+1)}
	long := Report{Group: 1, Version: strings.Repeat("v", MaxVersion+1)}
	wide := Report{Group: 1, Watch: Watch{Form: strings.Repeat("f", MaxForm+1)}}
	back := Report{Group: 1, Checkpoints: []Checkpoint{{Index: 5}, {Index: 5}}}
	one := Report{Group: 1, Checkpoints: []Checkpoint{{Index: 5}}}
	for want, body := range map[string][]byte{
		"a report of 9 checkpoints, want at most 8":                           many.Encode(),
		"the version of a state machine has 129 bytes, want at most 128":      long.Encode(),
		"the form of results has 193 bytes, want at most 192":                 wide.Encode(),
		"a checkpoint at entry 5 with flags 0x0 follows one at entry 5":       back.Encode(),
		"1 bytes follow what members say about divergence":                    append(one.Encode(), 0),
		"what members say about divergence is cut off":                        one.Encode()[:30],
		"what members say about divergence ends in the middle of a number":    one.Encode()[:2],
		"2 bytes about divergence, in a form that this program does not know": {control.Report, 9},
		"1 bytes about divergence, in a form that this program does not know": {control.Report},
	} {
		if _, err := decodeReport(body); err == nil || err.Error() != control.ErrBad.Error()+": "+want {
			t.Errorf("%v\nwant %s", err, want)
		}
	}
	o := (&Order{Group: 1, In: event.DivergedState}).Encode()
	o[4] = 9
	if _, err := decodeOrder(o); err == nil || !strings.Contains(err.Error(), "members differ in 9, which this program does not know") {
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
		var s, again Sums
		for _, a := range history {
			s.Command([]byte(a.entry), a.verdict, 0)
			again.Command([]byte(a.entry), a.verdict, 0)
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
	taken := func(form string, results ...string) Checkpoint {
		s := NewSums(&Machine{Form: form}, true)
		for _, r := range results {
			s.Result([]byte(r))
		}
		return s.Checkpoint(7, true)
	}
	a, b := taken("f", "x", "y"), taken("f", "y", "x")
	if again := taken("f", "x", "y"); !a.HasResults || a.Results == b.Results || a.Results != again.Results || a.Index != 7 {
		t.Errorf("checkpoints %+v and %+v after other results, %+v after the same", a, b, again)
	}
	if none := taken("", "x", "y"); none.HasResults || none.Results != 0 {
		t.Errorf("results are not kept, and the checkpoint is %+v", none)
	}

	d, group := leaderOf(Machine{})
	group.leader = 2
	var want []Checkpoint
	for index := range uint64(sentCheckpoints + 2) {
		c := Checkpoint{Index: index + 1, Commands: index}
		want = append(want, c)
		d.Record(c)
		body := group.sent[len(group.sent)-1]
		r, err := decodeReport(body.record)
		if most := want[max(0, len(want)-sentCheckpoints):]; err != nil || body.to != 2 || !reflect.DeepEqual(r.Checkpoints, most) {
			t.Fatalf("host %d is told %+v, %v; want %+v", body.to, r, err, most)
		}
	}
}

// After a snapshot the sum of results is compared at the second checkpoint, not at the first: what was summed
// up before may be of another program.
func TestResultsBehindASnapshot(t *testing.T) {
	s := NewSums(&Machine{Form: "f"}, true)
	s.Restore(entry.Sums{Commands: 1, Results: 2, Whole: true, Count: 3})
	s.ResultSum(5)
	first := s.Checkpoint(10, true)
	s.ResultSum(5)
	second := s.Checkpoint(11, true)
	if first.HasResults || !second.HasResults || second.Results != mix(0, 5) || second.Commands != 1 {
		t.Errorf("checkpoints %+v and %+v", first, second)
	}
}

// Sums go on from what a snapshot has of them.
func TestSumsGoOn(t *testing.T) {
	a := NewSums(&Machine{}, true)
	a.Command([]byte("x"), session.Fresh, 2*time.Second)
	var b Sums
	b.Restore(a.State())
	for _, s := range []*Sums{&a, &b} {
		if s.Command([]byte("y"), session.Fresh, 2*time.Second) {
			t.Error("a second checkpoint within a second is due")
		}
	}
	a.Checkpoint(9, true)
	b.machine = a.machine
	b.Checkpoint(9, true)
	if a != b {
		t.Errorf("%+v and %+v", a, b)
	}
}
