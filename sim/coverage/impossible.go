package coverage

// Impossible reports whether neither level of the simulator can inject a fault while a phase holds, and why.
// At most 15 of 100 cells are impossible (a test counts them).
func Impossible(f Fault, p Phase) (reason string, impossible bool) {
	for _, rule := range rules {
		if rule.fault == f && rule.phase == p {
			return rule.reason, true
		}
	}
	return "", false
}

type rule struct {
	fault  Fault
	phase  Phase
	reason string
}

// rules is the table of the impossible cells. Package sim/core can inject every fault that a core can have in
// every phase. What whole hosts cannot is in package sim (hit.go, phases.go).
var rules = []rule{
	{NoDescriptor, PipelineFull, "only whole hosts open files, and they do not show that a pipeline is full"},
}
