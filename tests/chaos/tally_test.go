//go:build linux

package chaos

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/millrace/millrace/tests/history"
)

// tally is what an episode has counted.
type tally struct {
	made, hit     map[string]int // faults, by kind, and those that had their effect
	overlap       int            // the most faults at a time
	dropped       int            // packets, on links that were cut
	slowed        int            // syncs, on slow disks
	counts        history.Counts
	adds, retries int64
	lost          int64         // results of changes that no host had any more
	load          time.Duration // how long clients asked
	gap           time.Duration // the longest without an answered change while faults were made
	leader, level time.Duration // after the last fault: until a leader was known, until all were level
	judged        time.Duration // how long the judges took
	compared      int           // keys, on all members
	records       int64         // of logs that were verified
	stood         time.Duration // how long the machine ran nothing of the tests
}

func (t *tally) count(l *load, h history.History) {
	t.counts, t.adds, t.retries, t.lost, t.load = h.Count(), l.adds.Load(), l.retries.Load(), l.lost.Load(), l.ended
	var returns []time.Duration
	for _, o := range h {
		if o.Kind != history.Get && o.Outcome == history.Answered {
			returns = append(returns, o.Return)
		}
	}
	slices.Sort(returns)
	last := l.faulty.from
	for _, at := range append(returns, l.ended) {
		if at > last {
			t.gap = max(t.gap, at-last)
			last = at
		}
	}
}

// operations are those that were checked: on shared keys, and adds to counters.
func (t tally) operations() int { return t.counts.Operations + int(t.adds) }

// head is the head of the lines of episodes.
const head = "seed\thosts\tfaults\tat a time\toperations\ta second\tunknown\tconcurrent\tsent again\tlongest gap\tmachine stood\tleader after\tlevel after\tjudged in\tkinds"

func (t tally) line(s schedule) string {
	var kindsMade []string
	n := 0
	for _, k := range kinds {
		if m := t.made[k.name]; m > 0 {
			kindsMade = append(kindsMade, fmt.Sprintf("%s %d", k.name, m))
			n += m
		}
	}
	return fmt.Sprintf("%d\t%d\t%d\t%d\t%d\t%.0f\t%d\t%.1f %%\t%d\t%v\t%v\t%v\t%v\t%v\t%s", s.seed, s.hosts, n, t.overlap, t.operations(),
		float64(t.operations())/max(t.load.Seconds(), 1), t.counts.Unknown, t.counts.ConcurrentPercent(), t.retries,
		round(t.gap), round(t.stood), round(t.leader), round(t.level), round(t.judged), strings.Join(kindsMade, ", "))
}

func round(d time.Duration) time.Duration { return d.Round(10 * time.Millisecond) }

// table aligns lines with tabs in them.
func table(lines ...string) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, line := range lines {
		fmt.Fprintln(w, line)
	}
	_ = w.Flush()
	return b.String()
}

// summary is that of a run.
func summary(all []tally) string {
	var total tally
	total.made, total.hit = map[string]int{}, map[string]int{}
	keys, concurrent := 0, 0
	for _, t := range all {
		for name := range t.made {
			total.made[name] += t.made[name]
			total.hit[name] += t.hit[name]
		}
		c, add := &total.counts, t.counts
		c.Operations, c.Gets, c.Puts, c.Swaps, c.Deletes = c.Operations+add.Operations, c.Gets+add.Gets, c.Puts+add.Puts, c.Swaps+add.Swaps, c.Deletes+add.Deletes
		c.Answered, c.Refused, c.Unknown = c.Answered+add.Answered, c.Refused+add.Refused, c.Unknown+add.Unknown
		keys, concurrent = keys+add.Keys, concurrent+add.Concurrent
		total.adds, total.retries, total.lost, total.load = total.adds+t.adds, total.retries+t.retries, total.lost+t.lost, total.load+t.load
		total.stood += t.stood
		total.gap, total.leader, total.level = max(total.gap, t.gap), max(total.leader, t.leader), max(total.level, t.level)
		total.overlap, total.compared, total.records = max(total.overlap, t.overlap), total.compared+t.compared, total.records+t.records
	}
	c := total.counts
	lines := []string{"kind of fault\tmade\thad its effect\texpected beside safety"}
	for _, k := range kinds {
		if total.made[k.name] > 0 {
			lines = append(lines, fmt.Sprintf("%s\t%d\t%d\t%s", k.name, total.made[k.name], total.hit[k.name], k.expects))
		}
	}
	return table(lines...) + "\n" + table(
		fmt.Sprintf("episodes\t%d", len(all)),
		fmt.Sprintf("operations checked\t%d (%d gets, %d puts, %d swaps, %d deletes, %d adds)", total.operations(), c.Gets, c.Puts, c.Swaps, c.Deletes, total.adds),
		fmt.Sprintf("a second, under load\t%.0f", float64(total.operations())/max(total.load.Seconds(), 1)),
		fmt.Sprintf("keys\t%d", keys),
		fmt.Sprintf("outcomes\t%d answered, %d refused, %d unknown (%.2f %%)", c.Answered, c.Refused, c.Unknown, 100*float64(c.Unknown)/float64(max(c.Operations, 1))),
		fmt.Sprintf("concurrent on their key\t%d (%.1f %%)", concurrent, 100*float64(concurrent)/float64(max(c.Operations, 1))),
		fmt.Sprintf("sent again under their number\t%d, of which %d had lost their result", total.retries, total.lost),
		fmt.Sprintf("most faults at a time\t%d", total.overlap),
		fmt.Sprintf("longest time without an answered change\t%v", round(total.gap)),
		fmt.Sprintf("the machine ran nothing of the tests\t%v in all", round(total.stood)),
		fmt.Sprintf("longest time after the last fault\tuntil a leader was known %v, until all were level %v", round(total.leader), round(total.level)),
		fmt.Sprintf("compared at the end\t%d keys on all members, %d records of their logs", total.compared, total.records),
	)
}
