package simulate

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/sim/coverage"
	"github.com/millrace/millrace/sim/shrink"
)

// shown is a result with a failure and a few cells.
func shown(t *testing.T) *Result {
	t.Helper()
	plant(t, func(seed uint64, s shrink.Schedule) Outcome {
		o := good(seed, s)
		if seed == 30 {
			o.Failure, o.Property, o.At = "node 1 and node 2 lead <in term 3>\nand more", "log-matching", 40
		}
		return o
	})
	p := planFor(Seeds{1, 31})
	p.Shrink = time.Minute
	r := mustRun(t, p)
	Shrink(t.Context(), p, r, 0, &heard{})
	for n := range 12345 {
		r.Coverage.Hit(coverage.SlowDisk, coverage.Transfer)
		if n < 7 {
			r.Coverage.Hit(coverage.PowerCut, coverage.Recovery)
		}
	}
	return r
}

// The text names everything that there is to know.
func TestText(t *testing.T) {
	r := shown(t)
	var b strings.Builder
	if err := r.WriteText(&b, 10); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	for _, want := range []string{
		"millrace sim, profile fake, seeds [1, 31)", "30 seeds, ", " seeds/s, ", "events/s", "crashes", "12,345", "FAILED: seed 30 of fake, at tick 40: log-matching: node 1 and node 2 lead <in term 3>\nand more",
		"millrace sim --profile fake --seeds 30 --events", "made smaller in ", "--length ", "--without ", "possible cells were hit", "log-matching", "1 seed failed",
		"cells of the matrix were hit less often than 10 times", "commit ", "3 workers on ",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the text lacks %q:\n%s", want, text)
		}
	}
	for _, f := range coverage.Faults() {
		if !strings.Contains(text, "\n"+f.String()+" ") {
			t.Errorf("the text has no row %v", f)
		}
	}
	columns := map[string]bool{}
	for _, p := range coverage.Phases() {
		if c := column(p.String()); columns[c] || !strings.Contains(text, " "+c) {
			t.Errorf("the column of %v is called %s, which another one is, or it is not there", p, c)
		} else {
			columns[c] = true
		}
	}
}

// The page needs nothing besides itself, and has the data.
func TestPage(t *testing.T) {
	r := shown(t)
	var b strings.Builder
	if err := r.WriteHTML(&b, 10); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	if outside := regexp.MustCompile(`(?i)https?:|//[a-z]|\bsrc\s*=|\bhref\s*=|url\(|@import|<script|<link|<iframe|<object|<embed`).FindString(page); outside != "" {
		t.Errorf("the page refers to something outside: %q", outside)
	}
	for _, f := range coverage.Faults() {
		for _, p := range coverage.Phases() {
			cell := fmt.Sprintf(`title="%v while %v: %d`, f, p, r.Coverage.At(f, p))
			if !strings.Contains(page, cell) {
				t.Errorf("the page lacks %s", cell)
			}
			if reason, never := coverage.Impossible(f, p); never && !strings.Contains(page, reason) {
				t.Errorf("the page does not say why %v cannot come in %v", f, p)
			}
		}
	}
	for _, want := range []string{`class="h4" title="slow-disk while transfer: 12345">12345</td>`, `class="few" title="power-cut while recovery: 7`, "lead &lt;in term 3&gt;", "--seeds 30 --events", "1 seed failed", "30 seeds, "} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Count(page, "<tr>") != strings.Count(page, "</tr>") || strings.Contains(page, "ZgotmplZ") {
		t.Error("the page is broken")
	}
}

// A result in which nothing is wrong says so, and one that lacks hits, or has one that cannot be, does not.
func TestVerdict(t *testing.T) {
	plant(t, good)
	r := mustRun(t, planFor(Seeds{1, 5}))
	if lines := r.Verdict(0); len(lines) > 0 {
		t.Error(lines)
	}
	if lines := r.Verdict(1); len(lines) != 1 || !strings.Contains(lines[0], "less often than 1 time") {
		t.Error(lines)
	}
	for _, f := range coverage.Faults() {
		for _, p := range coverage.Phases() {
			if _, never := coverage.Impossible(f, p); !never {
				r.Coverage.Hit(f, p)
			}
		}
	}
	if lines := r.Verdict(1); len(lines) > 0 {
		t.Error(lines)
	}
	for n, c := range impossibleCells(&r.Coverage) { // there may be none
		r.Coverage.Hit(c.Cell.Fault, c.Cell.Phase)
		if lines := r.Verdict(1); len(lines) != n+1 || !strings.Contains(lines[n], "is listed as impossible") {
			t.Error(lines)
		}
	}
}

// Lines come every ten seconds of the run, and a bar fits its terminal.
func TestProgress(t *testing.T) {
	var out strings.Builder
	p := &lines{out: &out}
	for s := range 31 {
		p.Update(Status{Elapsed: time.Duration(s) * time.Second, Seeds: uint64(s) * 100, Events: uint64(s) * 2_100_000, Cells: 17, Injections: uint64(s) * 1000})
	}
	want := "10s 1,000 seeds (100.0/s), 21.0 M events (2.1 M/s), 10,000 injections in 17 cells\n20s 2,000 seeds (100.0/s), 42.0 M events (2.1 M/s), 20,000 injections in 17 cells\n30s 3,000 seeds (100.0/s), 63.0 M events (2.1 M/s), 30,000 injections in 17 cells\n"
	if out.String() != want {
		t.Errorf("%s\nwant\n%s", out.String(), want)
	}
	out.Reset()
	b := &bar{out: &out, width: 60}
	b.Update(Status{Elapsed: time.Minute, Share: 0.25, Seeds: 12345, Events: 5_000_000_000, Failed: 2, Oldest: 2 * time.Minute, OldestSeed: 8})
	if line := strings.TrimPrefix(out.String(), clearLine); !strings.HasPrefix(line, "[#####...............] 12,345 seeds") || len(line) > 59 {
		t.Errorf("%q", line)
	}
	out.Reset()
	b.width = 200
	b.Update(Status{Elapsed: time.Minute, Share: 0.25, Failed: 2, Oldest: 2 * time.Minute, OldestSeed: 8})
	if line := out.String(); !strings.HasSuffix(line, ", 2 FAILED, seed 8 runs for 2m0s, 3m0s left") {
		t.Errorf("%q", line)
	}
}
