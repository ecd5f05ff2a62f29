package sim

import (
	"time"

	"github.com/millrace/millrace/sim/property"
)

// Faults that come one after another leave no time in which a cluster is well. So in a run with rests the
// faults stop several times, all that is wrong is mended, and begin again when the verdicts of a cluster that
// is well were judged for a while. What a member keeps of a fault for too long shows there.

// rests is how often the faults of a run rest. restLooks is at how many verdicts of all members each ends.
const (
	rests     = 3
	restLooks = 40
)

// Rests runs random faults that rest. The error, if any, is a *Violation.
func Rests(o Options) (Report, error) {
	o.rests = true
	return Run(o)
}

// passWithRests lets faults come for a time, in parts.
func (w *world) passWithRests(during time.Duration) {
	for range rests {
		w.pass(during / (rests + 1))
		w.restFaults()
	}
	w.pass(during / (rests + 1))
}

// restFaults mends everything, and waits until the verdicts of a cluster that is well were judged. Faults
// continue afterwards as they were.
func (w *world) restFaults() {
	n, net := &w.nemesis, &w.net
	w.pass(max(0, net.burst-w.now)) // its end restores what the network was
	rates := [4]float64{net.drop, net.duplicate, net.corrupt, float64(net.slowest)}
	n.resting = true
	w.record("faults rest")
	w.mend()
	before := w.well.looks
	most, enough := healTime, w.config.MemoryBytes >= enoughMemory
	if !enough { // members may lag for as long as clients propose
		most = 2 * wellTimeouts * w.config.ElectionTimeout
	}
	if !w.runUntil(w.now+most, func() bool { return w.well.looks >= before+restLooks }) && enough {
		w.breaks(property.Recovery, "%v after all was mended the cluster is not well (%s): %s", most, w.well.why, w.positions())
	}
	n.resting = false
	net.drop, net.duplicate, net.corrupt, net.slowest = rates[0], rates[1], rates[2], time.Duration(rates[3])
	w.record("faults continue")
}

// isQuiet reports whether nothing new goes wrong now.
func (n *nemesis) isQuiet() bool { return n.stopped || n.resting }
