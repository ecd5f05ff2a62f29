package promtext

import (
	"bytes"
	"context"
	"flag"
	"log/slog"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/transport"
	"github.com/millrace/millrace/wal"
)

var update = flag.Bool("update", false, "write the golden file")

// fresh is what a host with one peer and one new group says before anything has happened.
func fresh() (host.HostMetrics, []host.GroupMetrics) {
	return host.HostMetrics{Host: 1, Peers: []host.PeerMetrics{{Host: 2}}, Causes: []host.CauseCount{{Code: diagnosis.CodeStopped}}}, []host.GroupMetrics{{Group: 7, Host: 1}}
}

func render(t *testing.T, h host.HostMetrics, groups []host.GroupMetrics) string {
	t.Helper()
	var b bytes.Buffer
	if err := Render(&b, h, groups); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// The text of a fresh host has every series, at zero.
func TestGolden(t *testing.T) {
	h, groups := fresh()
	have := render(t, h, groups)
	const file = "testdata/fresh.txt"
	if *update {
		if err := os.WriteFile(file, []byte(have), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || have != string(want) {
		t.Errorf("the text differs from %s (%v); run the test with -update and look at the difference", file, err)
	}
	for series, value := range parse(t, have) {
		if value != 0 {
			t.Errorf("%s is %v", series, value)
		}
	}
}

var (
	comment = regexp.MustCompile(`^# (HELP|TYPE) (millrace_[a-z_]+) (.+)$`)
	sample  = regexp.MustCompile(`^(millrace_[a-z_]+)\{((?:[a-z]+="(?:[^"\\\n]|\\["\\n])*",?)*)\} (\S+)$`)
)

// parse reads the text as a scraper does: each family begins with its help and its type, its series follow,
// none comes twice.
func parse(t *testing.T, text string) map[string]float64 {
	t.Helper()
	values, family, kinds := map[string]float64{}, "", map[string]string{}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if m := comment.FindStringSubmatch(line); m != nil {
			if family = m[2]; m[1] == "TYPE" {
				if kinds[family] != "" {
					t.Errorf("family %s comes twice", family)
				}
				kinds[family] = m[3]
			}
			continue
		}
		m := sample.FindStringSubmatch(line)
		if m == nil {
			t.Fatalf("not a sample: %q", line)
		}
		name := m[1]
		if kinds[family] == "histogram" {
			name = strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_sum"), "_count")
		}
		if name != family || kinds[family] == "" {
			t.Errorf("sample %q is in family %s (%s)", line, family, kinds[family])
		}
		if kinds[family] == "counter" != strings.HasSuffix(family, "_total") {
			t.Errorf("%s is a %s", family, kinds[family])
		}
		v, err := strconv.ParseFloat(m[3], 64)
		if err != nil {
			t.Errorf("%q: %v", line, err)
		}
		key := m[1] + "{" + m[2] + "}"
		if _, twice := values[key]; twice {
			t.Errorf("%s comes twice", key)
		}
		values[key] = v
	}
	return values
}

// Values arrive where they belong, and a histogram is cumulative.
func TestValues(t *testing.T) {
	h, groups := fresh()
	h.Leading, h.Memory.Waiting = 3, host.MemoryUse{Used: 10, Share: 100}
	h.Log = wal.Stats{SyncNanos: 2_500_000_000}
	h.Log.SyncTimes[0], h.Log.SyncTimes[10], h.Log.SyncTimes[24] = 1, 2, 4
	h.Transport.Kinds[transport.Pulse].Sent = 9
	groups[0].Proposals.Refused.Dropped = 5
	groups[0].LastIndex = 1 << 40
	have := parse(t, render(t, h, groups))
	for series, want := range map[string]float64{
		`millrace_groups_leading{host="1"}`:                                   3,
		`millrace_memory_bytes{host="1",share="waiting"}`:                     10,
		`millrace_memory_share_bytes{host="1",share="waiting"}`:               100,
		`millrace_log_sync_seconds_bucket{host="1",le="1e-06"}`:               1,
		`millrace_log_sync_seconds_bucket{host="1",le="0.001024"}`:            3,
		`millrace_log_sync_seconds_bucket{host="1",le="+Inf"}`:                7,
		`millrace_log_sync_seconds_count{host="1"}`:                           7,
		`millrace_log_sync_seconds_sum{host="1"}`:                             2.5,
		`millrace_messages_sent_total{host="1",kind="pulse"}`:                 9,
		`millrace_group_outcomes_total{host="1",group="7",outcome="dropped"}`: 5,
		`millrace_group_index{host="1",group="7",cursor="last"}`:              1 << 40,
	} {
		if have[series] != want {
			t.Errorf("%s is %v, want %v", series, have[series], want)
		}
	}
}

// The value of a label may hold anything.
func TestEscape(t *testing.T) {
	f := families{}
	f.gauge("x", "A test.", labels{"a", "q\"b\\c\nd"}, 1)
	var b bytes.Buffer
	if err := f.write(&b); err != nil {
		t.Fatal(err)
	}
	if have := parse(t, b.String()); have[`millrace_x{a="q\"b\\c\nd"}`] != 1 {
		t.Errorf("%q", b.String())
	}
}

// A real host has the same series as the golden text.
func TestHost(t *testing.T) {
	h, err := host.Open(t.Context(), host.Config{ID: 1, Dir: t.TempDir(), Members: map[uint64]string{1: "127.0.0.1:0"}},
		host.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close(context.Background())
	g, err := h.OpenGroup(t.Context(), host.GroupConfig{ID: 7}, discard{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.WaitLeader(t.Context()); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := Write(&b, h); err != nil {
		t.Fatal(err)
	}
	have := parse(t, b.String())
	fh, fg := fresh()
	for series := range parse(t, render(t, fh, fg)) {
		if _, ok := have[series]; !ok && !strings.Contains(series, "peer=") {
			t.Errorf("a host has no %s", series)
		}
	}
	if have[`millrace_group_leads{host="1",group="7"}`] != 1 {
		t.Error("the group does not lead")
	}
}

type discard struct{}

func (discard) Apply([]statemachine.Entry) error { return nil }
