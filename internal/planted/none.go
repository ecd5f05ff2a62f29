//go:build !planted

package planted

const (
	AckBeforeSync         = false
	AnyCA                 = false
	AnyDirectory          = false
	AnyKey                = false
	HearReplaced          = false
	KeepToken             = false
	AnyMember             = false
	BalanceBlindly        = false
	BelieveFarTerms       = false
	BelieveOneRemoval     = false
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
	KeepRevoked           = false
	KeepStuck             = false
	LeaseFromAnswer       = false
	LoseWake              = false
	MinorityFounds        = false
	MixVersions           = false
	NoRecheck             = false
	OldAnswer             = false
	OneHardState          = false
	OvertakeCommit        = false
	PlaceBehind           = false
	PlaceWithoutBound     = false
	PublishEarly          = false
	PulseReads            = false
	PutBackVote           = false
	RegainByQuorum        = false
	RegainLocally         = false
	RegainUnconfirmed     = false
	RejoinRemoved         = false
	RenumberRetries       = false
	RescueBehind          = false
	RescueKeepsCluster    = false
	RestoreNoSessions     = false
	SkipSessions          = false
	StageBlindly          = false
	SupersedeSnapshot     = false
	SyncRefused           = false
	TakeWhileInstalling   = false
	TrustBirths           = false
	Unfounded             = false
	VoteWaits             = false
	VoteWithoutAuthority  = false
)
