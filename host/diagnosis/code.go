package diagnosis

// Code names a cause of a Diagnosis.
type Code string

// The causes, in the order in which a Diagnosis names them.
const (
	// CodeStopped: the group has stopped on this host.
	CodeStopped Code = "stopped"
	// CodeIdentityRefused: a host refuses the directory of another one, so the two do not speak.
	CodeIdentityRefused Code = "identity refused"
	// CodeCertificateRefused: two hosts do not speak, because one refuses the certificate of the other.
	CodeCertificateRefused Code = "certificate refused"
	// CodeNotFounded: the group takes no commands, because members have not met.
	CodeNotFounded Code = "not founded"
	// CodeNotAdded: this host waits to be added to the group.
	CodeNotAdded Code = "not added"
	// CodeWithoutAuthority: a member may lack what it has acknowledged, and does not count until it has
	// caught up.
	CodeWithoutAuthority Code = "without authority"
	// CodeDiskFull: this host's disk refuses entries.
	CodeDiskFull Code = "disk full"
	// CodeDiskStalled: this host's disk completes nothing or, if Member is set, that of a follower seems to.
	CodeDiskStalled Code = "disk stalled"
	// CodeMachineHalted: this host's state machine could not apply a committed command, so this member refuses
	// commands and reads. It votes and replicates.
	CodeMachineHalted Code = "machine halted"
	// CodeApplyStuck: this host's state machine has not returned from Apply.
	CodeApplyStuck Code = "apply stuck"
	// CodeObjectLacking: this host's state machine waits for a large object that a command names.
	CodeObjectLacking Code = "object lacking"
	// CodeNoQuorum: no leader is known, and too few members are heard to elect one.
	CodeNoQuorum Code = "no quorum"
	// CodeNoLeader: no leader is known, although enough members are heard.
	CodeNoLeader Code = "no leader"
	// CodeMemberUnreachable: this host leads and does not hear the host of a follower.
	CodeMemberUnreachable Code = "member unreachable"
	// CodeMemberSilent: this host leads and hears the host of a follower, but not its member of this group.
	CodeMemberSilent Code = "member silent"
	// CodeSlowMember: this host leads, and a follower that works is far behind.
	CodeSlowMember Code = "slow member"
	// CodeNotSent: this host leads, and has no space in its queue to the host of a follower that is behind.
	CodeNotSent Code = "not sent"
	// CodeDiverged: members have applied the same commands and differ, as this host has found as the
	// leader, or its leader has told it.
	CodeDiverged Code = "members differ"
	// CodeSnapshotFails: a snapshot of this host's state machine could not be taken, so the log grows.
	CodeSnapshotFails Code = "snapshot fails"
	// CodeSnapshotHangs: a piece of work with a snapshot does not return.
	CodeSnapshotHangs Code = "snapshot hangs"
	// CodeSnapshotStuck: a directory of a snapshot stays until this host is started again, as its sync failed.
	CodeSnapshotStuck Code = "snapshot stuck"
	// CodeSnapshotRefused: this member needs the leader's snapshot, and its machine or its pipeline can use
	// none, so it stays behind.
	CodeSnapshotRefused Code = "snapshot refused"
	// CodePlacementRests: this host leads, another member should rather lead, and the leadership was handed
	// over for that so often that it stays for now.
	CodePlacementRests Code = "placement rests"
	// CodeSettingsDiffer: a member has another HeartbeatInterval or ElectionTimeout than this one.
	CodeSettingsDiffer Code = "settings differ"
	// CodeSingleEntries: this host leads, and writes an entry for each command, because a member has not said
	// that it reads entries with several.
	CodeSingleEntries Code = "single entries"
	// CodeNotCompared: this host leads, and a member with the same CommandOptions.Version sums up results in
	// another form, or states on one side only. So differences between the two may not be noticed.
	CodeNotCompared Code = "not compared"
	// CodePaused: this process did not run for a while.
	CodePaused Code = "process paused"
	// CodeDiskSlow: a write or a sync of this host takes longer than an election timeout, and not as long as
	// Config.StallTimeout.
	CodeDiskSlow Code = "disk slow"
	// CodeOverloaded: commands, or entries of the leader, are refused because the memory for them is used up.
	CodeOverloaded Code = "overloaded"
)

// Codes returns all codes, in the order in which a Diagnosis names them.
func Codes() []Code {
	return []Code{
		CodeStopped, CodeIdentityRefused, CodeCertificateRefused, CodeNotFounded, CodeNotAdded,
		CodeWithoutAuthority, CodeDiskFull, CodeDiskStalled, CodeMachineHalted, CodeApplyStuck, CodeObjectLacking,
		CodeNoQuorum, CodeNoLeader, CodeMemberUnreachable, CodeMemberSilent, CodeSlowMember,
		CodeNotSent, CodeDiverged, CodeSnapshotFails, CodeSnapshotHangs, CodeSnapshotStuck, CodeSnapshotRefused,
		CodePlacementRests, CodeSettingsDiffer, CodeSingleEntries, CodeNotCompared, CodePaused, CodeDiskSlow, CodeOverloaded,
	}
}

// IsWarning reports whether a group with this cause works: an operator should know it, and no probe should
// take the member out of service for it.
func (c Code) IsWarning() bool {
	switch c {
	case CodePaused, CodePlacementRests, CodeSettingsDiffer, CodeSingleEntries, CodeNotCompared, CodeDiskSlow, CodeSnapshotStuck:
		return true
	}
	return false
}
