package logs

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/millrace/millrace/cmd/internal/lab/labtest"
	"github.com/millrace/millrace/cmd/internal/lab/logs/child"
	"github.com/millrace/millrace/cmd/internal/lab/report"
)

// The aims of our log are for its authors, so no user's table shows them. To hold a run against them:
//
//	go run ./cmd/millrace bench wal --out /tmp/wal
//	go test ./cmd/internal/lab/logs -run TestAims -v -aims /tmp/wal/results.json
//
// No test fails when an aim is not met: a figure depends on the machine as much as on the code. What was
// reached, and why an aim was missed, is in decision 0004.
const (
	aimSingle     = 0.9  // of the raw file, one appender
	aimBandwidth  = 0.7  // of the raw file, aimAppenders
	aimOther      = 2.0  // times the best other log, aimAppenders
	aimRecoveryMB = 1000 // a second, opening a log
	aimGroups     = 0.95 // of one group, with many: "no slower", within what two runs differ by
	aimAppenders  = 1000
)

var aimsFile = flag.String("aims", "", "results.json of a run of bench wal: say which aims of our log it meets")

// aim is one figure that our log is meant to reach.
type aim struct {
	what string
	have string
	met  bool
}

// aims holds the rows of a run against the aims. An aim whose rows are missing is left out.
func (r *Report) aims() []aim {
	var aims []aim
	add := func(what, have string, value, want float64) {
		aims = append(aims, aim{what: what, have: have, met: value >= want})
	}
	against := func(what string, own, other child.Result, want float64) {
		value := report.Ratio(own.OpsPerSec, other.OpsPerSec)
		add(what, fmt.Sprintf("%.2f (%s of %s ops/s)", value, report.Count(own.OpsPerSec), report.Count(other.OpsPerSec)), value, want)
	}
	for _, a := range []struct {
		appenders int
		what      string
		want      float64
	}{
		{1, "one appender ≥ 0.9 × raw", aimSingle},
		{aimAppenders, "1,000 appenders ≥ 0.7 × raw", aimBandwidth},
	} {
		own, ok := r.find(child.OwnLogName, a.appenders, 1)
		raw, okRaw := r.find(child.RawLogName, a.appenders, 1)
		if ok && okRaw {
			against(a.what, own, raw, a.want)
		}
	}
	own, ok := r.find(child.OwnLogName, aimAppenders, 1)
	if best, okBest := r.bestOther(aimAppenders, 1); ok && okBest {
		against("1,000 appenders ≥ 2 × best other ("+best.Pipeline+")", own, best, aimOther)
	}
	if own, ok := r.find(child.OwnLogName, 0, 1); ok {
		perCPU := report.Ratio(float64(own.ValueBytes)/1e3, own.CPUUsPerOp)
		add("recovery ≥ 1 GB/s", fmt.Sprintf("%.2f GB/s (%.2f a CPU second)", own.MBPerSec/1e3, perCPU), own.MBPerSec, aimRecoveryMB)
	}
	for _, row := range r.Rows {
		one, ok := r.find(child.OwnLogName, row.Clients, 1)
		if row.Pipeline == child.OwnLogName && row.Groups > 1 && ok && !row.IsRecovery() {
			against(fmt.Sprintf("%d groups no slower than one, %s", row.Groups, report.Plural(row.Clients, "appender")), row, one, aimGroups)
		}
	}
	return aims
}

func (r *Report) aimsText() string {
	var b strings.Builder
	for _, a := range r.aims() {
		verdict := "met"
		if !a.met {
			verdict = "NOT met"
		}
		fmt.Fprintf(&b, "%-50s %-34s %s\n", a.what, a.have, verdict)
	}
	return b.String()
}

// TestAims says which aims a measured run meets, if it is given one.
func TestAims(t *testing.T) {
	if *aimsFile == "" {
		t.Skip("no run to judge; give one with -aims")
	}
	text, err := os.ReadFile(*aimsFile)
	if err != nil {
		t.Fatal(err)
	}
	var r Report
	if err := json.Unmarshal(text, &r.Rows); err != nil {
		t.Fatal(err)
	}
	t.Logf("aims of our log in %s\n%s", *aimsFile, r.aimsText())
}

// The verdicts are those of the rows; without the rows that an aim is about, nothing is claimed.
func TestAimsJudgeTheirRows(t *testing.T) {
	r := someReport()
	labtest.Golden(t, "aims.txt", []byte(r.aimsText()))
	r.Rows = r.Rows[:1]
	if have := r.aimsText(); have != "" {
		t.Errorf("of a raw file alone: %s", have)
	}
}
