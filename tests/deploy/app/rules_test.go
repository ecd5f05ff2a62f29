package app

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

// alert is a rule of alerts.yaml.
type alert struct {
	name, expr, severity string
	wait                 time.Duration
}

// alerts reads deploy/app/prometheus/alerts.yaml as Prometheus does. Unknown fields are errors.
func alerts(t *testing.T) (all []alert) {
	t.Helper()
	groups, errs := rulefmt.ParseFile(filepath.Join(root, "deploy/app/prometheus/alerts.yaml"), false, model.UTF8Validation, newParser(), slog.New(slog.DiscardHandler))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			if want := "https://github.com/millrace/millrace/blob/main/docs/operate/alerts.md#" + strings.ToLower(r.Alert); r.Annotations["runbook_url"] != want {
				t.Errorf("the runbook of %s is %s, want %s", r.Alert, r.Annotations["runbook_url"], want)
			}
			all = append(all, alert{r.Alert, r.Expr, r.Labels["severity"], time.Duration(r.For)})
		}
	}
	return all
}

// Each alert has a section of the runbook, with what it means, what to look at and what to do; and no other
// section. The severity and the time are those of the rule.
func TestEachAlertHasItsRunbook(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs/operate/alerts.md"))
	if err != nil {
		t.Fatal(err)
	}
	sections := strings.Split(string(text), "\n## ")[1:]
	all := alerts(t)
	if len(sections) != len(all) {
		t.Errorf("%d sections, and %d alerts", len(sections), len(all))
	}
	for i, a := range all {
		name, section, _ := strings.Cut(sections[i], "\n")
		wait := "at once"
		if a.wait > 0 {
			wait = "after " + model.Duration(a.wait).String()
		}
		if name != a.name || !strings.Contains(section, fmt.Sprintf("\n*%s*, %s.\n", a.severity, wait)) {
			t.Errorf("section %q, want %q with *%s*, %s:\n%s", name, a.name, a.severity, wait, section)
		}
		for _, part := range []string{"\n- **It means**: ", "\n- **Look at**: ", "\n- **Do**: "} {
			if !strings.Contains(section, part) {
				t.Errorf("section %s has no %q", name, part)
			}
		}
	}
}

// dashboardQuery is a query of the dashboard, with the panel that has it.
type dashboardQuery struct{ panel, expr string }

func dashboardQueries(t *testing.T) (all []dashboardQuery) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "deploy/app/grafana/dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Panels []struct {
			ID      int
			Type    string
			Title   string
			GridPos struct{ H, W, X, Y int }
			Targets []struct{ Expr, LegendFormat string }
		}
		Templating struct {
			List []struct {
				Name, Type string
				Query      any
			}
		}
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	ids := map[int]bool{}
	for _, p := range d.Panels {
		if ids[p.ID] || p.Title == "" || p.GridPos.X+p.GridPos.W > 24 || p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %d, %q: %+v", p.ID, p.Title, p)
		}
		ids[p.ID] = true
		for _, target := range p.Targets {
			all = append(all, dashboardQuery{p.Title, target.Expr})
		}
	}
	labelValues := regexp.MustCompile(`^label_values\((.*), (\w+)\)$`)
	for _, v := range d.Templating.List {
		q, ok := v.Query.(map[string]any)
		if !ok {
			continue // the data source
		}
		m := labelValues.FindStringSubmatch(q["query"].(string))
		if m == nil || m[2] != v.Name {
			t.Fatalf("variable %s: %v", v.Name, q)
		}
		all = append(all, dashboardQuery{"variable " + v.Name, "count by (" + m[2] + ") (" + m[1] + ")"})
	}
	return all
}

// plain replaces the variables of Grafana as Grafana does.
func plain(expr string) string {
	return strings.NewReplacer("$__rate_interval", "1m", "$job", "millrace", "$host", ".*", "$group", ".*").Replace(expr)
}

// Rules and dashboard use series that a live /metrics has, with labels that they have there, and with values
// of labels that exist. So no expression is empty because of a misspelled name.
func TestExpressionsUseSeriesThatExist(t *testing.T) {
	c := startTrio(t, nil)
	c.propose("x")
	p := newPrometheus(t)
	for range 12 {
		p.scrape(c.targets())
	}
	exists := map[string]map[string]map[string]bool{} // series, label, value
	for _, s := range p.series {
		name := s.labels.Get(model.MetricNameLabel)
		if exists[name] == nil {
			exists[name] = map[string]map[string]bool{}
		}
		s.labels.Range(func(l labels.Label) {
			if exists[name][l.Name] == nil {
				exists[name][l.Name] = map[string]bool{}
			}
			exists[name][l.Name][l.Value] = true
		})
	}
	problems := func(expr string) (found []string) {
		parsed, err := newParser().ParseExpr(expr)
		if err != nil {
			return []string{err.Error()}
		}
		var used []string // labels that may be in by () and on ()
		parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
			if s, ok := node.(*parser.VectorSelector); ok {
				known := exists[s.Name]
				if known == nil {
					found = append(found, "there is no series "+s.Name)
				}
				used = append(used, slices.Collect(maps.Keys(known))...)
				for _, m := range s.LabelMatchers {
					if values := known[m.Name]; known != nil && (values == nil || !slices.ContainsFunc(slices.Collect(maps.Keys(values)), m.Matches)) {
						found = append(found, fmt.Sprintf("no %s matches %s", s.Name, m))
					}
					if m.Name == "cause" || m.Name == "outcome" {
						for one := range strings.SplitSeq(m.Value, "|") {
							if !known[m.Name][one] {
								found = append(found, fmt.Sprintf("%s has no %s %q", s.Name, m.Name, one))
							}
						}
					}
				}
			}
			return nil
		})
		parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
			var grouping []string
			switch n := node.(type) {
			case *parser.AggregateExpr:
				grouping = n.Grouping
			case *parser.BinaryExpr:
				if n.VectorMatching != nil {
					grouping = n.VectorMatching.MatchingLabels
				}
			}
			for _, l := range grouping {
				if !slices.Contains(used, l) {
					found = append(found, "no series here has the label "+l)
				}
			}
			return nil
		})
		return found
	}
	for _, a := range alerts(t) {
		for _, problem := range problems(a.expr) {
			t.Errorf("alert %s: %s", a.name, problem)
		}
	}
	for _, q := range dashboardQueries(t) {
		for _, problem := range problems(plain(q.expr)) {
			t.Errorf("panel %q: %s", q.panel, problem)
		}
		p.query(plain(q.expr)) // it can be evaluated
	}
	// The check bites.
	for expr, want := range map[string]string{
		"millrace_group_leeds == 1": "no series millrace_group_leeds", `sum(millrace_group_leads{grupe="1"})`: "no millrace_group_leads matches",
		"sum by (peer) (millrace_groups)": "has the label peer", `millrace_groups_with_cause{cause="disk ful"}`: `no cause "disk ful"`, "sum(": "parse error",
	} {
		if found := problems(expr); len(found) == 0 || !strings.Contains(found[0], want) && !strings.Contains(strings.Join(found, ";"), want) {
			t.Errorf("%s: %q, want %q", expr, found, want)
		}
	}
}

// watch evaluates all alerts after each scrape, as Prometheus does: one fires when its expression has had the
// same series for the time of its rule.
type watch struct {
	*prometheus
	alerts []alert
	since  map[string]time.Time // by alert and series
	fired  map[string]labels.Labels
}

func newWatch(t *testing.T) *watch {
	return &watch{prometheus: newPrometheus(t), alerts: alerts(t), since: map[string]time.Time{}, fired: map[string]labels.Labels{}}
}

// round is one scrape and one evaluation. It returns what fires.
func (w *watch) round(targets map[string]http.Handler) (firing []string) {
	w.scrape(targets)
	still := map[string]time.Time{}
	for _, a := range w.alerts {
		fires := false
		for _, s := range w.query(a.expr) {
			key := a.name + s.Metric.String()
			since, known := w.since[key]
			if !known {
				since = w.now
			}
			still[key] = since
			if w.now.Sub(since) >= a.wait {
				fires, w.fired[a.name] = true, s.Metric
			}
		}
		if fires {
			firing = append(firing, a.name)
		}
	}
	w.since = still
	return firing
}
