package lab

import "slices"

// BackAndForth lists the points of all runs. Every second run goes backwards, so that a slow drift (the
// machine warms up, a neighbour becomes active) does not always hit the same point.
func BackAndForth[P any](runs int, points func() []P) []P {
	var all []P
	for run := range runs {
		these := points()
		if run%2 == 1 {
			slices.Reverse(these)
		}
		all = append(all, these...)
	}
	return all
}
