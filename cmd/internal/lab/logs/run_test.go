package logs

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/labtest"
	"github.com/millrace/millrace/cmd/internal/lab/logs/child"
	"github.com/millrace/millrace/cmd/internal/lab/report"
)

// Each way in which a process can misbehave becomes an error that says which.
func TestProcessesThatMisbehave(t *testing.T) {
	sh := func(script string) Log { return Log{Name: "x", Command: []string{"sh", "-c", script}} }
	for want, c := range map[string]Log{
		"exit status 3: it broke; badly":              sh("echo it broke >&2; echo badly >&2; exit 3"),
		"answer of its process cannot be read":        sh("echo hello"),
		"neither a result nor an error":               sh("echo {}"),
		"no such disk":                                sh(`echo '{"error":"no such disk"}'`),
		"executable file not found":                   {Name: "x", Command: []string{"no-such-program-as-this"}},
		lab.ErrMismatch.Error() + ": entry 5 is gone": sh(`echo '{"error":"verification failed: entry 5 is gone","mismatch":true}'`),
	} {
		_, err := c.measure(t.Context(), child.Request{})
		if err == nil || !strings.Contains(err.Error(), want) || errors.Is(err, lab.ErrMismatch) != strings.HasPrefix(want, lab.ErrMismatch.Error()) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	got, err := sh(`cat >/dev/null; echo '{"result":{"ops":5,"groups":2}}'`).measure(t.Context(), child.Request{})
	if err != nil || got.Ops != 5 || got.Groups != 2 || got.Pipeline != "x" {
		t.Errorf("%+v, %v", got, err)
	}
}

// scripted is a log whose process is a shell script.
func scripted(name, script string, other bool) Log {
	return Log{Name: name, Command: []string{"sh", "-c", script}, Other: other}
}

func smallPlan(t *testing.T, logs ...Log) Plan {
	return Plan{Logs: logs, Appenders: []int{1, 4}, Groups: []int{1}, ValueBytes: 1024, KeepBytes: 1 << 20, Duration: time.Second, Runs: 3, Dir: t.TempDir(), Seed: 1}
}

const goodScript = `cat >/dev/null; echo '{"result":{"ops":5,"ops_per_sec":7,"groups":1,"clients":1}}'`

// Another project's log that fails is left out and named. If one of ours fails the run ends, as it does for
// any log that lost something.
func TestRunContinuesWithoutAnotherProjectsLog(t *testing.T) {
	plan := smallPlan(t, scripted(child.RawLogName, goodScript, false), scripted("bbolt", "exit 1", true))
	plan.Missing = []string{"etcd-wal: it is not there"}
	got, err := Run(t.Context(), plan, report.Silence{})
	if err != nil || len(got.Rows) != 2 || got.Rows[0].Runs != 3 || len(got.Missing) != 2 || !strings.HasPrefix(got.Missing[1], "bbolt, 1 appender, 1 group failed") {
		t.Fatalf("%+v, %v", got, err)
	}
	labtest.Empty(t, plan.Dir)

	plan.Logs[0] = scripted(child.RawLogName, "exit 1", false)
	if got, err := Run(t.Context(), plan, report.Silence{}); got != nil || err == nil {
		t.Errorf("%+v, %v", got, err)
	}
	plan.Logs[0] = scripted("bbolt", `echo '{"error":"gone","mismatch":true}'`, true)
	if got, err := Run(t.Context(), plan, report.Silence{}); got != nil || !errors.Is(err, lab.ErrMismatch) {
		t.Errorf("%+v, %v", got, err)
	}
	labtest.Empty(t, plan.Dir)
}

func TestValidateNamesTheField(t *testing.T) {
	labtest.RefusesEach(t, func() Plan { return smallPlan(t) }, Run, map[string]func(*Plan){
		"Appenders":    func(p *Plan) { p.Appenders = []int{0} },
		"Groups":       func(p *Plan) { p.Groups = []int{maxGroups + 1} },
		"ValueBytes":   func(p *Plan) { p.ValueBytes = minValueBytes - 1 },
		"KeepBytes":    func(p *Plan) { p.KeepBytes = 0 },
		"RecoverBytes": func(p *Plan) { p.RecoverBytes = -1 },
		"Duration":     func(p *Plan) { p.Duration = 0 },
		"Warmup":       func(p *Plan) { p.Warmup = -1 },
		"Runs":         func(p *Plan) { p.Runs = 0 },
		"Dir":          func(p *Plan) { p.Dir = "/does/not/exist" },
	})
	plan := smallPlan(t)
	plan.Appenders, plan.ValueBytes = []int{100_000}, 1<<20
	if err := plan.Validate(); err == nil || !strings.Contains(err.Error(), "are more than 1024 MiB in memory") {
		t.Error(err)
	}
}

// 64 groups with segments of their own take more than a small plan writes.
func TestSpaceForSegmentsAllocatedAhead(t *testing.T) {
	if need := smallPlan(t).needBytes(); need < 2<<30 {
		t.Errorf("a small plan needs %d bytes, want at least 2 GiB", need)
	}
}
