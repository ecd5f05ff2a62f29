// Package repetition decides which repeats of a log line are written. A line that repeats itself every
// second hides all others. A line that is written once is gone when an operator looks. So repeats come at
// growing distances, each with the count of those that were left out.
//
// Rejected: powers of two of the count. A flood writes line after line in its first second, and what happens
// once an hour is never said again.
package repetition

import "time"

// distances are the times from a line to the next one of its topic. The last repeats.
var distances = [...]time.Duration{time.Second, 10 * time.Second, time.Minute, 10 * time.Minute}

// forget is the silence after which a topic has ended. It must be longer than each distance, however few
// lines were written: a topic that repeats every few seconds, or minutes, is one topic. A report that comes
// after a silence as long as the distance of then is written, so a long silence hides nothing.
const forget = 20 * time.Minute

// Gate is the line of one topic. The zero Gate lets the next line through. The caller serializes its methods.
type Gate struct {
	written int // lines, since the topic is quiet no more
	last    time.Duration
	latest  time.Duration
	repeats uint64
}

// Admit reports whether the line is written at a time (of a clock that does not go back), and how many
// repeats were not since the line before. A topic that was not reported for 20 minutes has ended, and begins
// again.
func (g *Gate) Admit(now time.Duration) (repeats uint64, ok bool) {
	return g.AdmitN(now, 1)
}

// AdmitN is Admit for n reports at once.
func (g *Gate) AdmitN(now time.Duration, n uint64) (repeats uint64, ok bool) {
	if g.written > 0 && now-g.latest > forget {
		g.End()
	}
	g.latest = now
	if g.written > 0 && now-g.last < g.distance() {
		g.repeats += n
		return 0, false
	}
	repeats = g.repeats + n - 1
	g.written, g.last, g.repeats = g.written+1, now, 0
	return repeats, true
}

// distance is the time from the latest line to the next one.
func (g *Gate) distance() time.Duration { return distances[min(g.written, len(distances))-1] }

// End makes the next line the first: what the topic is about has ended. It returns how many repeats were left
// out since the latest line, and whether there was a line at all.
func (g *Gate) End() (repeats uint64, written bool) {
	repeats, written = g.repeats, g.written > 0
	*g = Gate{}
	return repeats, written
}
