// Package property names what the simulator demands of a cluster after each event, and at the end. A
// failure begins with the name of the property that was broken. So failures can be counted by property, and
// a planted bug can say which property must find it. Names do not change.
//
// docs/traceability.md says for each property which section of the thesis it is from, and which file checks
// it in each of the two levels.
package property

// Name is the name of a property in failures, files and tables.
type Name string

// The properties.
const (
	ElectionSafety     Name = "election-safety"            // a term has one leader at most
	LeaderAppendOnly   Name = "leader-append-only"         // a leader does not replace or remove its entries
	LogMatching        Name = "log-matching"               // logs with equal index and term are equal through it
	LeaderCompleteness Name = "leader-completeness"        // a leader has all that was committed in earlier terms
	StateMachineSafety Name = "state-machine-safety"       // all apply the same entry at an index, in order, once
	CommittedStays     Name = "committed-stays"            // what is committed is never lost or replaced
	CommittedIsDurable Name = "committed-is-durable"       // what is committed is on the disks of a quorum
	OneVote            Name = "one-vote"                   // a member votes once in a term, and does not forget it
	ToldIsDurable      Name = "told-is-durable"            // votes and acknowledgements are on the disk when they leave
	Cursors            Name = "cursors"                    // terms and indexes do not go back, and are in order
	OneConfiguration   Name = "one-configuration"          // each change leads to one configuration everywhere
	QuorumsIntersect   Name = "quorums-intersect"          // quorums of configurations that follow each other share one
	OneChange          Name = "one-change"                 // a change begins when the one before is committed
	ReadsAreCurrent    Name = "reads-are-current"          // a read sees what was committed when it was asked
	Published          Name = "published"                  // a subscriber gets what was published, in order, once
	SnapshotIsState    Name = "snapshot-is-state"          // a snapshot is the state as of its index
	Compacted          Name = "compacted-is-in-a-snapshot" // what the log lacks is in a snapshot on the disk
	ExactlyOnce        Name = "exactly-once"               // a command has one outcome and one effect
	Answered           Name = "clients-are-answered"       // every client gets an answer
	Memory             Name = "memory-is-bounded"          // what a member holds for others stays in its bounds
	Cost               Name = "cost-is-bounded"            // messages, terms and snapshots for a command are few
	Recovery           Name = "recovery"                   // without faults a cluster elects, commits, reads and agrees
	Calm               Name = "no-needless-election"       // while the leader is well no member campaigns
	Failures           Name = "failures-have-a-cause"      // only its disk stops a member
	Strangers          Name = "strangers-do-not-count"     // what is no member is not believed
	DisksVerify        Name = "disks-verify"               // at the end the log of each host verifies
	Directory          Name = "keeps-to-its-directory"     // a host uses no file beside the directory that it has locked
	Objects            Name = "objects-are-held"           // a large object that a command names is where its members are
	Contract           Name = "contract"                   // core and driver keep what raft/doc.go says
	Verdicts           Name = "well-has-no-cause"          // Explain names no cause in a cluster that is well
	Scenario           Name = "scenario"                   // a scenario shows what it is for
)
