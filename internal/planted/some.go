//go:build planted

package planted

import (
	"fmt"
	"os"
)

var plantedNow = os.Getenv(Variable)

func is(name string) bool {
	known[name] = true
	return plantedNow == name
}

var known = map[string]bool{"": true}

var (
	// AckBeforeSync makes the append worker give its answers before the sync that they wait for.
	AckBeforeSync = is("ack_before_sync")
	// AnyCA makes a host accept certificates that no CA has signed, or that have expired.
	AnyCA = is("any_ca")
	// AnyDirectory makes a host accept a peer with any directory.
	AnyDirectory = is("any_directory")
	// AnyKey makes a host accept a member with any key that a CA has signed.
	AnyKey = is("any_key")
	// AnyMember makes a host accept the certificate of another member.
	AnyMember = is("any_member")
	// ApplyWithoutObjects makes a member apply a command that names objects which it does not have.
	ApplyWithoutObjects = is("apply_without_objects")
	// BalanceBlindly makes a host balance as if all others led nothing.
	BalanceBlindly = is("balance_blindly")
	// BelieveFarTerms makes a node enter any term that one peer names.
	BelieveFarTerms = is("believe_far_terms")
	// BelieveGenerations makes a host believe that a later life of a directory follows on the ones that it has
	// heard.
	BelieveGenerations = is("believe_generations")
	// BelieveOneRemoval makes a member stop when one host says that it was removed.
	BelieveOneRemoval = is("believe_one_removal")
	// ChangeWithoutObjects makes a leader change the members although no quorum of the new ones holds an object
	// that may be named.
	ChangeWithoutObjects = is("change_without_objects")
	// CompactEarly makes a host compact its log before a snapshot was read back.
	CompactEarly = is("compact_early")
	// CountLeftOut makes the members of a group that is founded without some go on hearing those.
	CountLeftOut = is("count_left_out")
	// CountMissed makes a group that stood still count the time that it missed as time without a leader.
	CountMissed = is("count_missed")
	// CountOldTerms makes a leader count entries of earlier terms for commit (thesis figure 3.7).
	CountOldTerms = is("count_old_terms")
	// CountUnsureRefusals makes one refusal of a forwarded command count for its earlier tries, too.
	CountUnsureRefusals = is("count_unsure_refusals")
	// ForgetConfChange makes a host put a change of the members in force, and not tell its core.
	ForgetConfChange = is("forget_conf_change")
	// CountLateAcks makes a leader believe an acknowledgement of a member's earlier life, after the member has
	// come without authority.
	CountLateAcks = is("count_late_acks")
	// CountWithoutAuthority makes the acknowledgements of a member without authority count like others.
	CountWithoutAuthority = is("count_without_authority")
	// ForgetAmnesiaEarly makes a host remove the mark of its log when the first of its groups has authority.
	ForgetAmnesiaEarly = is("forget_amnesia_early")
	// ForgetDrained makes an apply lane forget what waits until all is applied, if it came meanwhile.
	ForgetDrained = is("forget_drained")
	// ForgetVote makes a restart forget the vote of the node in its term.
	ForgetVote = is("forget_vote")
	// HeartbeatCommits makes a member without authority take the commit index of a heartbeat that was sent to
	// its earlier life.
	HeartbeatCommits = is("heartbeat_commits")
	// HandOverBlindly makes a leader with a stuck state machine hand over to a member that has not applied more.
	HandOverBlindly = is("hand_over_blindly")
	// HearReplaced makes a host go on hearing the connections of a directory when another one takes its place.
	HearReplaced = is("hear_replaced")
	// HoldBeforeLog makes a member say that it holds objects whose entries open its log does not have yet.
	HoldBeforeLog = is("hold_before_log")
	// HoldByAnyone makes objects held before a quorum of the members has them.
	HoldByAnyone = is("hold_by_anyone")
	// InstallWithoutConf makes a member install a snapshot with a configuration of its own, in place of the
	// snapshot's.
	InstallWithoutConf = is("install_without_conf")
	// IgnoreElection makes a host look at objects when its term begins, and not when it is elected in it.
	IgnoreElection = is("ignore_election")
	// JudgeObjectsEarly makes a host remove the files of objects that it does not know yet when it starts.
	JudgeObjectsEarly = is("judge_objects_early")
	// KeepToken makes a join token stay valid when it was used.
	KeepToken = is("keep_token")
	// KeepDeposed makes the clients of a deposed leader wait until the commit index passes their commands,
	// forever if it does not.
	KeepDeposed = is("keep_deposed")
	// KeepRevoked makes a host keep connections whose certificates it would not accept any more.
	KeepRevoked = is("keep_revoked")
	// KeepStuck makes a leader with a stuck state machine keep the leadership.
	KeepStuck = is("keep_stuck")
	// LeaseFromAnswer makes a lease begin when its round was answered, not when it was sent.
	LeaseFromAnswer = is("lease_from_answer")
	// LoseWake makes a shard forget a group that was given something to do while its turn ran.
	LoseWake = is("lose_wake")
	// MinorityFounds makes FoundWithout accept that fewer than a majority of the members are kept.
	MinorityFounds = is("minority_founds")
	// MixVersions makes a leader compare the results of members with other versions.
	MixVersions = is("mix_versions")
	// NameAnything makes a command be applied that names an object which is not held, or has expired.
	NameAnything = is("name_anything")
	// NoRecheck makes Lease.Holds ignore the time that has passed since Group.Lease.
	NoRecheck = is("no_recheck")
	// OldAnswer makes a follower serve a read by the answer to a question that was asked before the read began.
	OldAnswer = is("old_answer")
	// OneHardState makes one write of each message of a round, and puts the only hard state into the first of
	// them.
	OneHardState = is("one_hard_state")
	// OvertakeCommit writes the newest commit index with the term and vote that overtake what a full disk
	// refuses.
	OvertakeCommit = is("overtake_commit")
	// PlaceBehind makes a leader hand over for placement to a member that is behind.
	PlaceBehind = is("place_behind")
	// PlaceWithoutBound makes a leader hand over for placement again and again, however often within an hour.
	PlaceWithoutBound = is("place_without_bound")
	// PromoteWithoutObjects makes a leader promote a learner that does not have the group's objects.
	PromoteWithoutObjects = is("promote_without_objects")
	// PublishEarly makes a host publish a snapshot before its log is durable through it.
	PublishEarly = is("publish_early")
	// PulseReads makes the answer to a pulse confirm the reads that wait.
	PulseReads = is("pulse_reads")
	// PutBackVote lets a refused round write its own term and vote, although later ones have overtaken it.
	PutBackVote = is("put_back_vote")
	// RegainByQuorum gives a member that may have forgotten a vote authority again when a quorum follows its
	// leader.
	RegainByQuorum = is("regain_by_quorum")
	// RegainLocally gives a member authority again when it holds what it knows to be committed itself, whatever
	// its leader had committed.
	RegainLocally = is("regain_locally")
	// RegainUnconfirmed gives a member authority again without asking the others whether its leader leads.
	RegainUnconfirmed = is("regain_unconfirmed")
	// RejoinRemoved makes a directory that was removed a member again.
	RejoinRemoved = is("rejoin_removed")
	// RemoveObjectsEarly makes a host remove the files of an object as soon as it has expired.
	RemoveObjectsEarly = is("remove_objects_early")
	// RenumberRetries makes a host give a forwarded command a new number for each try.
	RenumberRetries = is("renumber_retries")
	// RescueBehind makes a rescue take the first directory given, also if the log of another goes further.
	RescueBehind = is("rescue_behind")
	// RescueKeepsCluster makes a rescued host keep the number of the old cluster.
	RescueKeepsCluster = is("rescue_keeps_cluster")
	// RestoreNoSessions makes a member that begins from a snapshot forget its sessions.
	RestoreNoSessions = is("restore_no_sessions")
	// SkipSessions makes the members of a group apply a command again that their table of sessions knows.
	SkipSessions = is("skip_sessions")
	// StageBlindly makes a leader change the members although those left are no quorum.
	StageBlindly = is("stage_blindly")
	// SupersedeSnapshot makes a later answer of the append lane replace one that carries a snapshot.
	SupersedeSnapshot = is("supersede_snapshot")
	// SyncRefused makes the append worker forget the sync of a round that a full disk refused, if an earlier
	// round is synced first.
	SyncRefused = is("sync_refused")
	// TakeWhileInstalling makes a group take a snapshot between the restore and the mark of an install.
	TakeWhileInstalling = is("take_while_installing")
	// TrustBirths makes the table of sessions begin a session that it may have forgotten.
	TrustBirths = is("trust_births")
	// Unfounded makes the members of a group vote, and its leader take commands, before the group is founded.
	Unfounded = is("unfounded")
	// VoteWithoutAuthority makes a member without authority vote and campaign.
	VoteWithoutAuthority = is("vote_without_authority")
	// VoteWaits makes a full disk refuse term and vote with the entries before them.
	VoteWaits = is("vote_waits")
)

func init() {
	if !known[plantedNow] {
		fmt.Fprintf(os.Stderr, "%s is %q, and no bug has that name\n", Variable, plantedNow)
		os.Exit(2)
	}
}
