package spec

import (
	"regexp"
	"slices"
)

// plantedError is an error of the specification (its constant Plant), and a property that it breaks in a
// model, perhaps with other bounds.
type plantedError struct {
	name     string
	says     string
	model    string
	property string
	bounds   map[string]string
	way      string // a constraint of Model.tla that leads TLC to the harm, or ""
}

// planted has at least one error for each property that a model checks, and every error of the specification.
var planted = []plantedError{
	{"voteBeforeDurable", "a vote leaves before it is durable", "elections", "PromisesAreDurable", nil, ""},
	{"voteBeforeDurable", "a vote leaves before it is durable", "elections", "VotesOnce", nil, ""},
	{"requestBeforeDurable", "a request for votes leaves before the candidate's term and vote are durable", "elections", "PromisesAreDurable", nil, ""},
	{"requestBeforeDurable", "a request for votes leaves before the candidate's term and vote are durable", "elections", "ElectionSafety", nil, ""},
	{"voteTwice", "a node votes for two candidates of a term", "elections", "ElectionSafety", nil, ""},
	{"ackBeforeDurable", "an acknowledgement leaves before the entries are durable", "elections", "CommittedIsDurable", nil, ""},
	{"leaderNeedsNoDisk", "a leader counts itself without its disk", "elections", "CommittedIsDurable", nil, ""},
	{"voteForAnyLog", "a node votes for a candidate whose log is older", "divided", "LeaderCompleteness", map[string]string{
		"MaxCrashes": "0", "Torn": "FALSE", "MaxTerm": "4", "MaxLog": "4", "Campaigners": "{n1}"}, ""},
	{"keepConflicts", "a follower keeps entries that conflict with the leader's", "divided", "LogMatching", map[string]string{
		"MaxCrashes": "0", "Torn": "FALSE", "MaxLog": "4", "MaxProposals": "1"}, ""},
	{"commitUnverified", "a follower takes entries for committed that it has not verified", "divided", "StateMachineSafety", map[string]string{
		"MaxCrashes": "0", "Torn": "FALSE", "Partial": "TRUE"}, ""},
	{"countOldTerms", "a leader counts entries of earlier terms (thesis, figure 3.7)", "divided", "LeaderCompleteness", map[string]string{
		"MaxCrashes": "0", "Torn": "FALSE", "MaxTerm": "5", "MaxLog": "4", "Partial": "TRUE", "Campaigners": "{n1, n2}"}, "OldTermWay"},
	{"tornCommitFirst", "a torn write leaves the commit index without the truncation before it", "divided", "StateMachineSafety", map[string]string{"MaxTerm": "3"}, ""},
	{"tornEntriesFirst", "a torn write leaves entries without the commit index before them", "members", "ChangesWaitForCommit", nil, ""},
	{"staleStable", "an acknowledgement of a write counts although its entries were replaced", "answers", "StableIsDurable", nil, ""},
	{"truncationKeepsStable", "entries that were replaced stay durable", "answers", "StableIsDurable", nil, ""},
	{"campaignUnapplied", "a node campaigns although it has not applied a committed change", "members_restart", "ElectionSafety", nil, "TwoChangesWay"},
	{"changeBeforeApplied", "a change is proposed before the one before it is applied", "joint", "QuorumsMeet", nil, ""},
	{"changesTwoAtOnce", "a simple change exchanges several members", "joint", "QuorumsMeet", nil, ""},
	{"jointByNewAlone", "a joint configuration decides by its new half alone", "joint", "QuorumsMeet", nil, ""},
	{"learnUnmatched", "a candidate takes the commit index of a refusal for its own log, which has another entry there", "refusals", "StateMachineSafety", nil, ""},
	{"snapshotOverLog", "a snapshot replaces a log that has its last entry, and more", "snapshots", "CommittedIsDurable", map[string]string{
		"MaxCrashes": "0", "Torn": "FALSE", "MaxLog": "4", "MaxProposals": "2"}, ""},
	{"beatCommitsAll", "a heartbeat carries a commit index beyond what its receiver has acknowledged", "reads", "StateMachineSafety", map[string]string{"MaxReads": "2"}, ""},
	{"anyEchoConfirms", "the answer to an earlier round confirms a read", "reads", "ReadsAreFresh", map[string]string{"MaxReads": "2"}, ""},
	{"readBeforeOwnCommit", "a leader reads before it has committed an entry of its term", "reads_new_leader", "ReadsAreFresh", nil, "NextLeaderWay"},
	{"leaseFromAnswer", "a lease begins when its round is answered, not when it was asked", "leases_late", "LeasesHold", nil, ""},
	{"crashForgetsPromise", "a node that was restarted forgets that it owes a promise", "leases", "LeasesHold", map[string]string{
		"MaxCrashes": "1", "Fragile": "{n3}", "MaxTime": "0"}, ""},
	{"leaseOutlivesOrder", "a leader that hands over keeps its lease", "leases", "LeasesHold", map[string]string{"MaxTime": "0"}, ""},
	{"preVoteRaisesTerm", "a request for a pre-vote raises the term of its receiver", "prevote", "PreVotesDisturbNone", nil, ""},
	{"voteBeforeMeeting", "a member of a group that is not founded votes before it has met the others", "founding", "ElectionSafety", nil, ""},
	{"wipedCounts", "a host whose directory was wiped counts like the one before", "founding", "LeaderCompleteness", nil, ""},
	{"commandBeforeFounded", "a leader appends a command before the group is founded", "founding", "CommandsFollowFounded", nil, ""},
}

var plantPattern = regexp.MustCompile(`Planted\("(\w+)"\)|Plant = "(\w+)"`)

// plantsIn returns the planted errors of a module.
func plantsIn(text string) (names []string) {
	for _, m := range plantPattern.FindAllStringSubmatch(text, -1) {
		if name := m[1] + m[2]; !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}
