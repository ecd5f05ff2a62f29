//go:build linux

package chaos

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/tests/history"
)

// The verdict on the service. The logs of all members are the same, and their requests make the events that
// each watch has seen. Every acknowledged write is at its revision. Every read has found the state of its
// revision. Each key is linearizable, and revisions never go back in real time. Each judge also gets a copy
// of the evidence in which something is wrong, and must reject it.
func (s *service) judge() error {
	began := time.Now()
	if err := s.judgeLogs(); err != nil {
		return err
	}
	c := s.clients
	h := c.recorder.History()
	for _, w := range s.watches {
		if err := judgeWatch(w.name, w.responses, s.model.through(w.last)); err != nil {
			return err
		}
		s.count(w)
	}
	if err := judgeAnswers(c.writes, c.views, s.model); err != nil {
		return err
	}
	if err := revisions(h).Monotonic(); err != nil {
		return err
	}
	if err := h.Linearizable(perKey); err != nil {
		return err
	}
	n := &s.seen
	n.acknowledged, n.unknown, n.reads, n.revisions = len(c.writes), c.open, len(c.views), int(s.model.revision)
	if n.acknowledged < 200 || n.reads < 100 {
		return fmt.Errorf("only %d writes were acknowledged, and %d reads answered: too little to judge anything", n.acknowledged, n.reads)
	}
	err := s.judgeJudges(h)
	n.judged = time.Since(began)
	return err
}

// revisions returns a history in which each operation without an effect is a read: its revision is that of a
// state, which others may have, too.
func revisions(h history.History) history.History {
	of := slices.Clone(h)
	for i := range of {
		if !changes(&of[i]) {
			of[i].Kind = history.Get
		}
	}
	return of
}

func (s *service) count(w *watch3) {
	s.seen.watches++
	s.seen.reconnects += w.reconnects
	for _, r := range w.responses {
		s.seen.events += len(r.events)
		if r.through > 0 {
			s.seen.progress++
		}
		for i, e := range r.events {
			if i > 0 && r.events[i-1].revision == e.revision {
				s.seen.multiples++
			}
		}
	}
}

// judgeLogs compares the logs, and makes the model of the longest.
func (s *service) judgeLogs() error {
	ids := slices.Sorted(maps.Keys(s.logs))
	longest := s.logs[ids[0]]
	for _, id := range ids {
		l := s.logs[id]
		shared, err := sameLines(s.logs[ids[0]].lines, l.lines)
		if err != nil {
			return fmt.Errorf("the logs of hosts %d and %d: %w", ids[0], id, err)
		}
		if len(l.lines) == 0 || shared == 0 {
			return fmt.Errorf("the logs of hosts %d and %d share no line: %s", ids[0], id, l.notes)
		}
		if s.seen.compared += shared; l.lines[len(l.lines)-1].compare(longest.lines[len(longest.lines)-1]) > 0 {
			longest = l
		}
	}
	s.model = newModel()
	if err := longest.each(s.ctx, s.model.apply); err != nil {
		return fmt.Errorf("the log in %s: %w\n%s", longest.dir, err, longest.notes)
	}
	if s.model.revision < s.last { // more may come: of requests that their clients have given up
		return fmt.Errorf("the log in %s ends at revision %d, and the last write was acknowledged at %d\n%s", longest.dir, s.model.revision, s.last, longest.notes)
	}
	return nil
}

// judgeAnswers holds the answers that clients have got against the log.
func judgeAnswers(writes []write, views []view, m *model) error {
	for _, w := range writes {
		for key, value := range w.values {
			i, found := slices.BinarySearchFunc(m.of[key], w.revision, func(e event, r int64) int { return int(e.revision - r) })
			if !found || m.of[key][i].value != value || m.of[key][i].deleted != (value == "") {
				return fmt.Errorf("lost: %s = %q was acknowledged at revision %d, and the log has no such change", key, value, w.revision)
			}
		}
	}
	for _, v := range views {
		if v.prefix != "" {
			if want := m.all(v.prefix, v.revision); !maps.Equal(want, v.values) {
				return fmt.Errorf("a read of %s at revision %d has found %v, and the log makes %v", v.prefix, v.revision, v.values, want)
			}
			continue
		}
		for key, value := range v.values {
			if want := m.at(key, v.revision); want != value {
				return fmt.Errorf("a read of %s at revision %d has found %q, and the log makes %q", key, v.revision, value, want)
			}
		}
	}
	return nil
}

// judgeJudges plants a lost write, a stale read, and events that were dropped, doubled, torn and promised.
func (s *service) judgeJudges(h history.History) error {
	c := s.clients
	lost := append(slices.Clone(c.writes), write{revision: s.last, values: map[string]string{"key/0/0": "never written"}})
	if judgeAnswers(lost, nil, s.model) == nil {
		return fmt.Errorf("a lost write was accepted")
	}
	stale, err := h.WithStaleRead(s.seed)
	if err != nil {
		return err
	}
	if stale.Linearizable(perKey) == nil {
		return fmt.Errorf("a history with a stale read planted into it was accepted")
	}
	for name, plant := range plants {
		seen, planted := plant(slices.Clone(s.watches[0].responses))
		if planted && judgeWatch(name, seen, s.model.through(s.watches[0].last)) == nil {
			return fmt.Errorf("a watch with an event that was %s was accepted", name)
		}
		if !planted && name != "torn" {
			return fmt.Errorf("no event could be %s", name)
		}
	}
	return nil
}

// plants make a watch wrong. They change the message of the middle that can be changed so.
var plants = map[string]func([]response) ([]response, bool){
	"dropped": func(all []response) ([]response, bool) {
		return plantAt(all, 1, func(r response) []response { return []response{{events: r.events[1:]}} })
	},
	"doubled": func(all []response) ([]response, bool) {
		return plantAt(all, 1, func(r response) []response { return []response{r, r} })
	},
	"torn": func(all []response) ([]response, bool) {
		return plantAt(all, 2, func(r response) []response { return []response{{events: r.events[:1]}, {events: r.events[1:]}} })
	},
	"promised": func(all []response) ([]response, bool) {
		return plantAt(all, 1, func(r response) []response { return []response{{through: r.events[0].revision}, r} })
	},
}

// plantAt exchanges the first message behind the middle that begins with n events of one revision.
func plantAt(all []response, n int, by func(response) []response) ([]response, bool) {
	for k := range all {
		at := (len(all)/2 + k) % len(all)
		if e := all[at].events; len(e) >= n && e[n-1].revision == e[0].revision {
			return slices.Concat(all[:at], by(all[at]), all[at+1:]), true
		}
	}
	return all, false
}

// TestServiceJudges holds that each judge can fail.
func TestServiceJudges(t *testing.T) {
	log := []event{{2, "a", "1", false}, {3, "a", "2", false}, {3, "b", "3", false}, {4, "a", "", true}}
	good := []response{{events: log[:1]}, {through: 2}, {events: log[1:3]}, {events: log[3:]}}
	m := newModel()
	for _, e := range log {
		m.of[e.key] = append(m.of[e.key], e)
	}
	watches := map[string]struct {
		seen []response
		want string
	}{
		"good":       {good, ""},
		"one by one": {[]response{{events: log}}, ""},
		"incomplete": {good[:3], "has seen 3 events"},
		"beyond":     {append(slices.Clone(good), response{events: log[:1]}), "behind the end"},
	}
	wants := map[string]string{"dropped": "as event 1", "doubled": "as event 3", "torn": "two messages", "promised": "still to come"}
	for name, plant := range plants {
		seen, _ := plant(slices.Clone(good))
		watches[name] = struct {
			seen []response
			want string
		}{seen, wants[name]}
	}
	for name, row := range watches {
		if err := judgeWatch("watch", row.seen, log); (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v, want %q", name, err, row.want)
		}
	}
	for name, row := range map[string]struct {
		write write
		view  view
		want  string
	}{
		"good":            {write{revision: 3, values: map[string]string{"a": "2", "b": "3"}}, view{revision: 3, values: map[string]string{"b": "3"}}, ""},
		"deleted":         {write{revision: 4, values: map[string]string{"a": ""}}, view{revision: 4, prefix: "", values: map[string]string{"a": ""}}, ""},
		"lost":            {write{revision: 5, values: map[string]string{"a": "4"}}, view{}, "lost"},
		"another value":   {write{revision: 2, values: map[string]string{"a": "2"}}, view{}, "lost"},
		"half is lost":    {write{revision: 2, values: map[string]string{"a": "1", "b": "3"}}, view{}, "lost"},
		"not deleted":     {write{revision: 3, values: map[string]string{"a": ""}}, view{}, "lost"},
		"old read":        {write{}, view{revision: 3, values: map[string]string{"a": "1"}}, "has found"},
		"read of nothing": {write{}, view{revision: 3, prefix: "a", values: map[string]string{}}, "has found"},
	} {
		if err := judgeAnswers([]write{row.write}, []view{row.view}, m); (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v, want %q", name, err, row.want)
		}
	}
	a := []logLine{{Index: 1, hash: 1}, {Index: 2, hash: 2}, {Index: 2, Pos: 1, hash: 3}, {Index: 4, hash: 4}}
	other := slices.Clone(a)
	other[2].hash++
	for name, row := range map[string]struct {
		b    []logLine
		want string
	}{"good": {a, ""}, "later": {a[1:], ""}, "shorter": {a[:2], ""}, "a gap": {slices.Concat(a[:1], a[2:]), "missing"}, "another": {other, "differs"}} {
		for _, pair := range [][2][]logLine{{a, row.b}, {row.b, a}} {
			if _, err := sameLines(pair[0], pair[1]); (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
				t.Errorf("logs, %s: %v, want %q", name, err, row.want)
			}
		}
	}
}

// TestServiceModel: requests and the events that they make.
func TestServiceModel(t *testing.T) {
	m := newModel()
	for _, l := range []logLine{
		{Index: 1, Revision: 2, Request: []byte(`{"put":{"key":"YQ==","value":"MQ=="}}`)},
		{Index: 2, Revision: 2, Error: "refused", Request: []byte(`{"put":{"key":"YQ==","value":"MQ=="}}`)},
		{Index: 3, Revision: 3, Request: []byte(`{"txn":{"compare":[{"target":"VALUE","key":"YQ==","value":"MQ=="}],"success":[{"requestPut":{"key":"YQ==","value":"Mg=="}},{"requestPut":{"key":"Yg==","value":"Mw=="}}]}}`)},
		{Index: 4, Revision: 3, Request: []byte(`{"txn":{"compare":[{"target":"CREATE","key":"YQ==","createRevision":"0"}],"success":[{"requestPut":{"key":"YQ==","value":"Mg=="}}],"failure":[{"requestRange":{"key":"YQ=="}}]}}`)},
		{Index: 5, Revision: 4, Request: []byte(`{"deleteRange":{"key":"YQ==","rangeEnd":"Yg=="}}`)},
	} {
		if err := m.apply(l); err != nil {
			t.Fatal(err)
		}
	}
	want := []event{{2, "a", "1", false}, {3, "a", "2", false}, {3, "b", "3", false}, {4, "a", "", true}}
	if !slices.Equal(m.events, want) {
		t.Errorf("%+v, want %+v", m.events, want)
	}
	if err := m.apply(logLine{Index: 6, Revision: 9}); err == nil {
		t.Error("a line with another revision was accepted")
	}
}
