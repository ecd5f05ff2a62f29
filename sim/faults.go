package sim

import (
	"fmt"
	"strings"
)

// Fault is a kind of what goes wrong.
type Fault int

// The kinds. A count of zero over many seeds means that something is not tested any more.
const (
	PowerCuts Fault = iota
	ProcessCrashes
	CrashesInside // of the two above: in the middle of a disk operation
	Closes        // in good order, under load
	Cuts          // of links
	DiskStalls    // shorter than an election timeout
	DiskHangs     // longer
	MachineStalls
	DiskErrors  // operations that returned EIO
	FullDisks   // times that a disk was filled
	Refusals    // times that a host noticed
	FullVotes   // that a host gave which had noticed
	Forgettings // times that one forgot what it could not write
	FailedHosts
	FailedStarts
	ClockDrifts
	Pauses    // of a process
	TornTails // that a recovery cut
	LostHosts // that a crash took for good, as the mode of durability says
	faultKinds
)

var faultNames = [faultKinds]string{
	"power cuts", "process crashes", "crashes inside an operation", "closes under load", "cuts", "disk stalls", "disk hangs",
	"machine stalls", "disk errors", "full disks", "refusals for room", "votes beside a full disk",
	"members that forgot what was refused", "failed hosts", "failed starts", "clock drifts", "pauses",
	"torn tails", "hosts lost for good",
}

func (f Fault) String() string { return faultNames[f] }

// Faults counts what went wrong, by kind.
type Faults [faultKinds]int

func (f Faults) String() string {
	var s []string
	for kind, n := range f {
		if n > 0 {
			s = append(s, fmt.Sprintf("%d %v", n, Fault(kind)))
		}
	}
	return strings.Join(s, ", ")
}

func (w *world) count(f Fault) { w.faults[f]++ }
