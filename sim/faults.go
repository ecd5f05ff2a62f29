package sim

import (
	"fmt"
	"strings"
)

// Fault is a kind of fault, or of event that a fault should cause.
type Fault int

// The kinds. A count of zero over many seeds means that something is no longer tested.
const (
	PowerCuts Fault = iota
	ProcessCrashes
	CrashesInside // crashes of the two kinds above in the middle of a disk operation
	Closes        // in good order, under load
	GroupCloses   // of one group, under load
	Cuts          // of network links
	DiskStalls    // shorter than an election timeout
	DiskHangs     // longer
	ReadStalls    // reads of the log that hang
	MachineStalls
	DiskErrors  // disk operations that returned EIO
	FullDisks   // disks that were filled
	Refusals    // hosts that noticed their full disk
	FullVotes   // votes of hosts that had noticed
	HandOvers   // leaders that gave their leadership up
	Forgettings // hosts that forgot what they could not write
	FailedHosts
	FailedStarts
	ClockDrifts
	Pauses        // of a process
	TornTails     // torn tails that a recovery cut
	LostAuthority // hosts that came back without authority
	Regained      // groups that have authority again
	Repaired      // logs, by an operator, with something missing
	LeadersTold   // of members without authority, and Explain says so
	LostHosts     // hosts lost for good in a crash, as the mode of durability allows
	Pulses        // heard, that stand for the heartbeats of idle groups
	Exceptions    // groups that a follower excepted from a pulse

	SnapshotsTaken
	SnapshotsFailed
	Restores    // state machines that were restored from a snapshot
	Compactions // of the log of a group
	Installs    // of snapshots that came from another host
	Aborts      // of snapshots on their way
	RottenReads // of snapshots, that returned wrong bits
	Lies        // that a host sent

	Plans     // to change the members
	PlansDone // and carried out
	Wipes     // of the directory of a member, which is then replaced
	Tokens    // that let a host join
	Joins     // by a token
	Reuses    // of a token, or other tokens that the leader refused
	Rekeys    // hosts that come with another key
	Accepts   // of keys, by an operator
	Moves     // of hosts to another address
	Restored  // copies of a directory that were started
	Restarted // starts of such copies before that

	Placements // leaders that handed over because another member should rather lead

	Uploads      // of large objects, begun
	UploadsHeld  // that ended well
	UploadsOver  // that did not
	ObjectsNamed // and read by state machines, counted for each member
	NamesRefused // commands that named what they must not
	Fetches      // of objects by members
	FetchesOver  // that ended early, and began again
	PassedBy     // machines that got a snapshot in place of an object that no member had

	Bursts      // of a fault of the whole network
	ClockJumps  // forward
	Transferred // leaderships that were asked to be handed over
	Floods      // of commands
	Damaged     // logs, below what was durable

	Shortages    // of descriptors on a machine, or of memory for them
	RefusedOpens // while they lasted

	MovedDirectories // of hosts that run

	PoisonCommands  // that were handed in
	Halts           // machines that could not apply one
	CommandsSkipped // by a decision of a group
	SkipsRefused    // of requests of an operator
	HaltedForGood   // members that had applied what the group skips
	MadeAgain       // machines that worked again in the same life

	PackedCommands // applied, that came behind another one in their entry
	CutsInApply    // crashes in the middle of a call of a machine on disk
	Undivided      // looks at a machine on disk that has not said which command of an entry has halted it

	Upgrades        // of the version of a group's machines, as members have said that were asked
	UpgradesRefused // and requests that were refused
	WrongVersions   // machines halted because their program could not do the version

	LaterEntries      // of a later version of Millrace, that a leader has sent
	GoneBack          // logs with such an entry, on which the present version was started
	PromotionsRefused // because a learner's program could not do the version

	Configurations // of which machines have learned

	LagRefusals // commands refused because the leader's machine was too far behind

	faultKinds
)

var faultNames = [faultKinds]string{
	"power cuts", "process crashes", "crashes inside an operation", "closes under load", "closes of a group under load", "cuts", "disk stalls", "disk hangs",
	"hanging reads", "machine stalls", "disk errors", "full disks", "refusals of a full disk", "votes beside a full disk", "leaderships given up",
	"members that forgot what was refused", "failed hosts", "failed starts", "clock drifts", "pauses",
	"torn tails", "hosts without authority", "groups with authority again", "logs repaired", "leaders that name a member without authority", "hosts lost for good",
	"pulses for idle groups", "answers with exceptions",
	"snapshots taken", "snapshots that failed", "state machines restored", "compactions", "snapshots installed", "snapshot transfers that ended early",
	"wrong reads of snapshots", "lies",
	"plans begun", "plans carried out", "directories wiped", "join tokens", "hosts that joined by a token", "tokens refused",
	"hosts with another key", "keys accepted by an operator", "hosts that moved", "directories restored", "starts of restored directories before that", "leaderships placed",
	"uploads", "uploads held", "uploads that failed", "objects named", "commands refused for objects", "objects fetched",
	"fetches that ended early", "objects passed by",
	"bursts in the network", "clock jumps", "transfers asked for", "floods of commands", "logs damaged",
	"lacks of descriptors", "opens that found no descriptor", "directories moved away",
	"poison commands", "machines halted", "commands skipped", "skips refused", "members halted for good", "halted machines made again",
	"commands behind others in their entry", "crashes in a call of a machine on disk", "looks at machines on disk halted by an entry",
	"upgrades of machines", "upgrades refused", "machines of a wrong version",
	"entries of a later version sent", "logs of a later version", "promotions of old programs refused",
	"configurations learned by machines",
	"commands refused behind a slow machine",
}

func (f Fault) String() string { return faultNames[f] }

// Faults counts faults by kind: f[PowerCuts] is the number of power cuts.
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
