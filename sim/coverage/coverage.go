// Package coverage counts which faults hit a group in which phase of its work.
//
// A simulator that injects faults at random hits the common phases of a group ten thousand times and the
// rare ones never. Its totals do not show it: a crash is counted, but not that none ever came between a
// learner and its first snapshot. So both levels of the simulator count each injection in a Matrix, once
// for each phase that held at that moment. CI fails when a cell that can be hit was not hit often enough.
//
// A cell that neither level can hit is named in impossible.go, with its reason. sim/core hits all others but
// those of the faults that only whole hosts have (OfHosts). A table of reasons was chosen over a lower demand
// for all cells, because a reason can be read and doubted, and a lower demand cannot.
package coverage

// Fault is a row of the matrix: a kind of fault that the simulator injects.
type Fault uint8

// The faults. The comments say what one injection is.
const (
	Crash               Fault = iota // a process ends at once; what it had written stays
	PowerCut                         // a host ends at once, and its disk loses what was not synced
	Pause                            // a process does nothing for some time
	MajorityCrash                    // a majority of the members ends at once
	OneWayCut                        // one direction of one link loses everything
	PartialCut                       // links between some members lose everything, and each still hears another one
	FullPartition                    // the members are divided: nothing passes between the parts
	DropBurst                        // some messages are lost, for some time
	DuplicateBurst                   // some messages arrive twice, for some time
	ReorderBurst                     // messages overtake others, for some time
	LongDelay                        // messages take longer than an election timeout
	CorruptFrame                     // bits of a frame are flipped on its way
	SlowDisk                         // writes take longer than usual and less than an election timeout
	HungDisk                         // writes take longer than an election timeout
	SyncError                        // a sync fails
	LostSync                         // a sync succeeds and makes nothing durable, and the power fails
	FullDisk                         // a disk has no space for entries
	ReadError                        // a read fails
	BitFlip                          // bits at rest change
	MisdirectedWrite                 // a write goes to another place
	TornWrite                        // a power cut leaves a part of a write
	ReorderedCompletion              // the answer of a storage worker arrives after later events than it would have
	ClockJump                        // a clock jumps forward: many ticks at once
	ClockDrift                       // a clock runs fast or slow
	MemberAdd                        // a change that adds a member is proposed
	MemberRemove                     // a change that removes a member is proposed
	LostDisk                         // a member comes back with an empty disk
	RestoredDisk                     // a member comes back with an old state of its disk
	LeaderTransfer                   // a leader is asked to hand its leadership over
	ProposalFlood                    // many more commands than a group takes are proposed at once
	NoDescriptor                     // opens of files and directories fail, for some time

	faults
)

// Phase is a column of the matrix: what a group is doing. Several phases may hold at once.
type Phase uint8

// The phases. The comments say when a phase holds for an injection into one member.
const (
	Bootstrap       Phase = iota // the group has not committed its first command
	Steady                       // a leader that all members follow, and none of the phases below
	Candidate                    // the member, or another one that runs, is a candidate or a pre-candidate
	NewLeader                    // the leader has not committed an entry of its term
	PipelineFull                 // the leader may send no more entries to a follower before it hears an answer
	Conflict                     // a follower has entries that its leader will make it replace, or is replacing them
	SnapshotBuild                // the member makes a snapshot
	SnapshotSend                 // a leader has a follower that needs its snapshot
	SnapshotInstall              // the member puts a snapshot in the place of its state
	LearnerCatchUp               // a learner lacks committed entries
	ConfigChange                 // a change of members is in a log and not applied, or the configuration is joint
	Transfer                     // a leadership is being handed over
	Compaction                   // the log of the member is being cut at its beginning, or rolls to another segment
	Recovery                     // the member started and has not yet applied what was committed when it ended
	Shutdown                     // the member ends in good order
	MixedVersions                // members speak different versions of the protocol

	phases
)

var faultNames = [faults]string{
	"crash", "power-cut", "pause", "majority-crash", "one-way-cut", "partial-cut", "full-partition", "drop-burst", "duplicate-burst", "reorder-burst",
	"long-delay", "corrupt-frame", "slow-disk", "hung-disk", "sync-error", "lost-sync", "full-disk", "read-error", "bit-flip", "misdirected-write",
	"torn-write", "reordered-completion", "clock-jump", "clock-drift", "member-add", "member-remove", "lost-disk", "restored-disk",
	"leader-transfer", "proposal-flood", "no-descriptor",
}

var phaseNames = [phases]string{
	"bootstrap", "steady", "candidate", "new-leader", "pipeline-full", "conflict", "snapshot-build", "snapshot-send", "snapshot-install",
	"learner-catch-up", "config-change", "transfer", "compaction", "recovery", "shutdown", "mixed-versions",
}

// String returns the name of a fault in files and tables. Names do not change.
func (f Fault) String() string { return nameOf(faultNames[:], int(f), "fault") }

// String returns the name of a phase in files and tables. Names do not change.
func (p Phase) String() string { return nameOf(phaseNames[:], int(p), "phase") }

// Faults returns all faults, in the order of the rows.
func Faults() []Fault { return all[Fault](int(faults)) }

// OfHosts reports whether only whole hosts can have a fault: the core opens nothing.
func OfHosts(f Fault) bool { return f == NoDescriptor }

// Phases returns all phases, in the order of the columns.
func Phases() []Phase { return all[Phase](int(phases)) }

func all[T ~uint8](n int) []T {
	list := make([]T, n)
	for i := range list {
		list[i] = T(i)
	}
	return list
}
