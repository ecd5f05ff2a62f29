package ops

import (
	"bytes"
	"flag"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"go.uber.org/goleak"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/batches"
	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/host/event"
)

func TestMain(m *testing.M) {
	if os.Getenv(programVariable) != "" {
		program() // run_test.go
	}
	goleak.VerifyTestMain(m)
}

var update = flag.Bool("update", false, "write the golden file")

// fresh is what a host with one peer and one new group says before anything has happened.
func fresh() (host.HostMetrics, []host.GroupMetrics) {
	return host.HostMetrics{Host: 1, Peers: []host.PeerMetrics{{Host: 2}}, Causes: []host.CauseCount{{Code: diagnosis.CodeStopped}}}, []host.GroupMetrics{{Group: 7, Host: 1}}
}

// render returns the series of some metrics as Prometheus reads them.
func render(t *testing.T, h host.HostMetrics, groups ...host.GroupMetrics) string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(newCollector(func() (host.HostMetrics, []host.GroupMetrics) { return h, groups })); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&b, f); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

// samples are the values of a text by series, as a parser of Prometheus reads it.
func samples(t *testing.T, text string) map[string]float64 {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	values := map[string]float64{}
	for name, f := range families {
		for _, m := range f.GetMetric() {
			key := name
			for _, l := range m.GetLabel() {
				key += " " + l.GetName() + "=" + l.GetValue()
			}
			switch {
			case m.GetHistogram() != nil:
				values[key] = float64(m.GetHistogram().GetSampleCount())
			case m.GetCounter() != nil:
				values[key] = m.GetCounter().GetValue()
			default:
				values[key] = m.GetGauge().GetValue()
			}
		}
	}
	return values
}

// The text of a fresh host has every series, at zero.
func TestGolden(t *testing.T) {
	h, groups := fresh()
	have := render(t, h, groups...)
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
	for series, value := range samples(t, have) {
		if value != 0 {
			t.Errorf("%s is %v", series, value)
		}
	}
}

// What promtool would say of the names, the units and the helps.
func TestLint(t *testing.T) {
	h, groups := fresh()
	problems, err := testutil.CollectAndLint(newCollector(func() (host.HostMetrics, []host.GroupMetrics) { return h, groups }))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// unshown are numbers of the metrics that are no series, with the reason.
var unshown = map[string]string{
	"HostMetrics.Host":          "it is a label",
	"HostMetrics.Peers[0].Host": "it is a label",
	"HostMetrics.Log.Syncs":     "the histogram log_sync_seconds counts them",
	"GroupMetrics.Host":         "it is a label",
	"GroupMetrics.Group":        "it is a label",
	"GroupMetrics.Status.ID":    "it is the label host",
	"GroupMetrics.Status.Role":  "group_leads says whether it is the leader",

	"GroupMetrics.Status.DuplicatesSuppressed": "Calls.Duplicates is the same",
}

// Each number and each state of the metrics is in a series: a change of it changes the text.
func TestEachFieldIsInASeries(t *testing.T) {
	h, groups := fresh()
	seen := map[string]bool{}
	check := func(path string, before string, render func() string) {
		reason, hidden := unshown[path]
		seen[path] = true
		switch changed := render() != before; {
		case !changed && !hidden:
			t.Errorf("no series has %s", path)
		case changed && hidden && reason != "it is a label":
			t.Errorf("a series has %s; unshown says %q", path, reason)
		}
	}
	before := render(t, h, groups...)
	eachNumber(reflect.ValueOf(&h).Elem(), "HostMetrics", func(path string) {
		check(path, before, func() string { return render(t, h, groups...) })
	})
	eachNumber(reflect.ValueOf(&groups[0]).Elem(), "GroupMetrics", func(path string) {
		check(path, before, func() string { return render(t, h, groups...) })
	})
	if len(seen) < 150 {
		t.Errorf("%d fields were tried, there were 150 and more", len(seen))
	}
	for path := range unshown {
		if !seen[path] {
			t.Errorf("unshown has %s, and there is no such field", path)
		}
	}
}

// eachNumber sets each number and each state in v, calls f, and sets it back.
func eachNumber(v reflect.Value, path string, f func(path string)) {
	was := reflect.ValueOf(v.Interface())
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(3 * time.Hour))
		if v.Type() == reflect.TypeFor[batches.Kind]() {
			v.SetInt(int64(batches.Cohorts))
		}
		if v.Type() == reflect.TypeFor[event.Role]() {
			v.SetInt(int64(event.RoleLeader))
		}
	case reflect.Uint8, reflect.Uint32, reflect.Uint64:
		v.SetUint(3)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Unix(5, 0)))
			break
		}
		for i := range v.NumField() {
			eachNumber(v.Field(i), path+"."+v.Type().Field(i).Name, f)
		}
		return
	case reflect.Array, reflect.Slice:
		for i := range v.Len() {
			eachNumber(v.Index(i), path+"["+text(uint64(i))+"]", f)
		}
		return
	case reflect.String:
		return
	default:
		panic(path + " is a " + v.Kind().String())
	}
	f(path)
	v.Set(was)
}

// The syncs of the log are a histogram whose last bucket has no bound.
func TestSyncHistogram(t *testing.T) {
	h, _ := fresh()
	h.Log.SyncTimes[0], h.Log.SyncTimes[10], h.Log.SyncTimes[len(h.Log.SyncTimes)-1] = 1, 2, 4
	h.Log.SyncNanos = uint64(1500 * time.Millisecond)
	have := render(t, h)
	for _, line := range []string{
		`millrace_log_sync_seconds_bucket{host="1",le="1e-06"} 1`,
		`millrace_log_sync_seconds_bucket{host="1",le="0.000512"} 1`,
		`millrace_log_sync_seconds_bucket{host="1",le="0.001024"} 3`,
		`millrace_log_sync_seconds_bucket{host="1",le="+Inf"} 7`,
		`millrace_log_sync_seconds_sum{host="1"} 1.5`,
		`millrace_log_sync_seconds_count{host="1"} 7`,
	} {
		if !strings.Contains(have, line+"\n") {
			t.Errorf("the text lacks %s", line)
		}
	}
}

// Names are those of Prometheus, and no name is there twice.
func TestNames(t *testing.T) {
	var names []string
	for _, s := range hostSeries {
		names = append(names, s.name)
	}
	for _, s := range groupSeries {
		names = append(names, s.name)
		if !strings.HasPrefix(s.name, "group_") {
			t.Errorf("%s is of a group, and its name does not say so", s.name)
		}
	}
	slices.Sort(names)
	for i, name := range names {
		if i > 0 && names[i-1] == name {
			t.Errorf("%s is there twice", name)
		}
	}
	if math.Ldexp(1e-6, 10) != 0.001024 {
		t.Error("a bound is not what its bucket says")
	}
}
