//go:build linux

package chaos

import (
	"slices"
	"strings"
	"testing"
)

// TestServiceJudges holds that each judge can fail.
func TestServiceJudges(t *testing.T) {
	log := []event{{2, "a", "1", false}, {3, "a", "2", false}, {3, "b", "3", false}, {4, "a", "", true}}
	good := []response{{events: log[:1]}, {through: 2}, {events: log[1:3]}, {events: log[3:]}}
	m := newModel()
	m.events, m.revision, m.compacted, m.compactions = log, 4, 3, []int64{2, 3}
	for _, e := range log {
		m.of[e.key] = append(m.of[e.key], e)
	}
	// A cancel by the compaction at revision 3, which the log has, and what the watch sees then.
	cancelled := []response{{compacted: 3}, {begins: 3}, {events: log[1:3]}, {events: log[3:]}}
	watches := map[string]struct {
		seen []response
		want string
	}{
		"good":                  {good, ""},
		"one by one":            {[]response{{events: log}}, ""},
		"incomplete":            {good[:3], "has seen 3 events"},
		"beyond":                {append(slices.Clone(good), response{events: log[:1]}), "behind the end"},
		"cancelled":             {cancelled, ""},
		"begins behind":         {[]response{{compacted: 3}, {begins: 4}, {events: log[3:]}}, ""},
		"begins again, earlier": {append(slices.Clone(good), response{begins: 3}, response{events: log[1:3]}, response{events: log[3:]}), ""},
		"a jump":                {[]response{{events: log[:1]}, {events: log[3:]}}, "as event 1"},
	}
	wants := map[string]string{
		"dropped": "as event 1", "doubled": "as event 3", "torn": "two messages", "promised": "still to come",
		"cancelled by no compaction": "the log does not have it", "cancelled without a need": "had all before revision", "skipped behind a cancel": "as event 1",
	}
	for name, plant := range plants {
		from := good
		if name == "skipped behind a cancel" {
			from = cancelled
		}
		seen, planted := plant(slices.Clone(from), m)
		if !planted || wants[name] == "" {
			t.Errorf("%q could not be planted", name)
		}
		watches[name] = struct {
			seen []response
			want string
		}{seen, wants[name]}
	}
	for name, row := range watches {
		if err := judgeWatch("watch", row.seen, m, 4); (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
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
	done := compaction{call: 10, back: 20, revision: 3}
	asked := []compaction{{call: 1, back: 2, revision: 2}, done, {call: 30, back: 40, revision: 3, refused: true}, {call: 41, revision: 9, unknown: true}}
	for name, row := range map[string]struct {
		asked    []compaction
		refusals []refusal
		views    []view
		want     string
	}{
		"good":                 {asked, []refusal{{call: 5, back: 11, revision: 2}, {call: 50, back: 60, revision: 1}}, []view{{call: 15, revision: 2, byQuorum: true}, {call: 50, revision: 3, byQuorum: true}, {call: 50, revision: 1}}, ""},
		"lost":                 {append(slices.Clone(asked), compaction{revision: 4}), nil, nil, "does not have it"},
		"refused too early":    {append(slices.Clone(asked), compaction{revision: 4, refused: true}), nil, nil, "compacts at most at 3"},
		"not asked for":        {asked[1:], nil, nil, "no client has asked"},
		"a read refused":       {asked, []refusal{{call: 50, back: 60, revision: 3}}, nil, "no compaction behind it"},
		"a read refused early": {asked, []refusal{{call: 5, back: 9, revision: 2}}, nil, "no compaction behind it"},
		"a read answered":      {asked, nil, []view{{call: 21, revision: 2, byQuorum: true}}, "was acknowledged before it"},
	} {
		if err := judgeCompactions(row.asked, row.refusals, row.views, m); (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
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
		{Index: 6, Revision: 4, Request: []byte(`{"compaction":{"revision":"3"}}`)},
		{Index: 7, Revision: 4, Error: "compacted", Request: []byte(`{"compaction":{"revision":"2"}}`)},
		{Index: 8, Request: []byte(`{"compaction":{"revision":"9"}}`)}, // a log that does not say that it was refused
		{Index: 9, Request: []byte(`{"compaction":{"revision":"4"}}`)},
	} {
		if err := m.apply(l); err != nil {
			t.Fatal(err)
		}
	}
	want := []event{{2, "a", "1", false}, {3, "a", "2", false}, {3, "b", "3", false}, {4, "a", "", true}}
	if !slices.Equal(m.events, want) {
		t.Errorf("%+v, want %+v", m.events, want)
	}
	if !slices.Equal(m.compactions, []int64{3, 4}) {
		t.Errorf("compactions %v, want 3 and 4", m.compactions)
	}
	m.compacted = 2
	for name, l := range map[string]logLine{
		"another revision":               {Index: 10, Revision: 9},
		"a compaction that was refused":  {Index: 10, Revision: 4, Error: "compacted", Request: []byte(`{"compaction":{"revision":"4"}}`)},
		"a compaction that was accepted": {Index: 10, Revision: 4, Request: []byte(`{"compaction":{"revision":"2"}}`)},
	} {
		other := *m
		if err := other.apply(l); err == nil {
			t.Errorf("a line with %s was accepted", name)
		}
	}
}
