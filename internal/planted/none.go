//go:build !planted

package planted

const (
	AckBeforeSync         = false
	AnyDirectory          = false
	CompactEarly          = false
	CountLateAcks         = false
	CountLeftOut          = false
	CountMissed           = false
	CountOldTerms         = false
	CountUnsureRefusals   = false
	CountWithoutAuthority = false
	ForgetAmnesiaEarly    = false
	ForgetConfChange      = false
	ForgetDrained         = false
	ForgetVote            = false
	HandOverBlindly       = false
	HeartbeatCommits      = false
	InstallWithoutConf    = false
	KeepDeposed           = false
	KeepStuck             = false
	LeaseFromAnswer       = false
	LoseWake              = false
	MinorityFounds        = false
	MixVersions           = false
	NoRecheck             = false
	OldAnswer             = false
	OneHardState          = false
	OvertakeCommit        = false
	PublishEarly          = false
	PulseReads            = false
	PutBackVote           = false
	RegainByQuorum        = false
	RegainLocally         = false
	RegainUnconfirmed     = false
	RenumberRetries       = false
	RestoreNoSessions     = false
	SkipSessions          = false
	SupersedeSnapshot     = false
	SyncRefused           = false
	TakeWhileInstalling   = false
	TrustBirths           = false
	Unfounded             = false
	VoteWaits             = false
	VoteWithoutAuthority  = false
)
