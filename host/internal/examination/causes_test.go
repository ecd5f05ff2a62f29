package examination

import (
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/divergence"
	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/snapshot"
)

const (
	now      = 10_000
	election = 20 // in ticks
	stall    = 60
	long     = now - 1000 // ago
)

// follower are the facts of host 2 of three, which follows host 1 and lacks nothing.
func follower() *Facts {
	f := &Facts{
		Group: 1, Host: 2, Now: now, Leaderless: Never, Leads: Never,
		Bounds:   Bounds{Tick: time.Millisecond, Heartbeat: 2, Election: election, Stall: stall},
		Config:   Config{ElectionTimeout: election * time.Millisecond, StallTimeout: stall * time.Millisecond, LogDir: "d/log"},
		Status:   diagnosis.Status{ID: 2, Term: 3, Role: event.RoleFollower, Leader: 1, Applied: 8, Committed: 8, Durable: 8, LastIndex: 8},
		Founding: diagnosis.Founding{Found: true, Founded: true},
		Members:  []uint64{1, 2, 3},
		Roster:   &membership.Roster{Conf: raftpb.ConfState{Voters: []uint64{1, 2, 3}}},
	}
	for id := uint64(1); id <= 5; id++ {
		f.Peers = append(f.Peers, Peer{ID: id, Known: true, Heard: true, HeardAt: now})
	}
	return f
}

// leader are the facts of the leader of such a group.
func leader() *Facts {
	f := follower()
	f.Host, f.Status.Role, f.Status.Leader, f.Leads = 1, event.RoleLeader, 1, 0
	for _, id := range []uint64{2, 3} {
		f.Followers = append(f.Followers, Follower{ID: id, At: now, ActiveAt: now, AckedAt: now, LevelAt: now, ReadingSince: Never, LostSince: Never, Match: 8})
	}
	return f
}

// leaderless makes a follower know no leader for long.
func leaderless(f *Facts) { f.Status.Leader, f.Leaderless = 0, long }

// silent makes hosts unheard.
func silent(f *Facts, ids ...uint64) {
	for _, id := range ids {
		f.peer(id).HeardAt = 0
	}
}

// third is what a leader sees of host 3.
func third(f *Facts) *Follower { return &f.Followers[1] }

// causeTests has a row for each way to find a cause: who sees it, what is so, and what evidence and remedy
// say.
var causeTests = []struct {
	code          diagnosis.Code
	member        uint64
	facts         func() *Facts
	change        func(*Facts)
	evidence, fix string
}{
	{diagnosis.CodeStopped, 0, leader, func(f *Facts) { f.Stop = &Stop{Err: errors.New("broken")} }, "has stopped on this host: broken", "close the group and open it again"},
	{diagnosis.CodeStopped, 0, leader, func(f *Facts) { f.Stop = &Stop{Err: errors.New("closed"), Why: StoppedByProgram} }, "closed", "the program has closed it"},
	{diagnosis.CodeStopped, 0, leader, func(f *Facts) { f.Stop = &Stop{Err: errors.New("removed"), Why: StoppedByRemoval} }, "removed", "do what the error says"},
	{diagnosis.CodeStopped, 0, leader, func(f *Facts) { f.Stop = &Stop{Err: errors.New("full"), Why: StoppedByFullDisk} }, "full", "make space"},
	{diagnosis.CodeStopped, 0, leader, func(f *Facts) { f.Stop = &Stop{Err: errors.New("EIO"), Why: StoppedByDisk} }, "EIO", "look at the disk"},
	{diagnosis.CodeIdentityRefused, 3, follower, func(f *Facts) { f.peer(3).RefusedBy = &Refusal{Why: "a copy"} }, "host 3 refuses this host: a copy", "its old directory back"},
	{diagnosis.CodeIdentityRefused, 3, follower, func(f *Facts) {
		f.peer(3).Refused = &Refusal{Why: "another list", Remote: "there", Fix: FixCluster, Latest: now - 8*election}
	}, "this host refuses host 3, which speaks from there: another list", "correct the address"},
	{diagnosis.CodeIdentityRefused, 3, follower, func(f *Facts) { f.Founding.Refused, f.peer(3).Directory = []uint64{3}, "d1" }, "comes with directory d1", "its old directory back"},
	{diagnosis.CodeCertificateRefused, 3, follower, func(f *Facts) {
		silent(f, 3)
		f.peer(3).Certificate = &Certificate{ByPeer: true, Err: errors.New("the reason"), Latest: now}
	}, "host 3 refuses the certificate of this host: the reason", "renew the certificate of this host, or make host 3 trust its CA"},
	{diagnosis.CodeCertificateRefused, 3, follower, func(f *Facts) {
		silent(f, 3)
		f.peer(3).Certificate = &Certificate{Remote: "there", Err: errors.New("the reason"), Latest: now}
	}, "this host refuses a certificate of host 3, which speaks from there: the reason", "renew the certificate of host 3, or make this host trust its CA"},
	{diagnosis.CodeNotFounded, 0, follower, func(f *Facts) { f.Founding = diagnosis.Founding{Unmet: []uint64{3}} }, "group 1 is not founded: host 3 was not heard", "start every member once"},
	{diagnosis.CodeNotAdded, 0, follower, func(f *Facts) { f.Founding.Joins = true }, "group 1 has not added this host", "make a join token"},
	{diagnosis.CodeWithoutAuthority, 0, follower, func(f *Facts) { f.Authority = &Authority{} }, "it holds the log through 8", "wait: it is fed by the leader"},
	{diagnosis.CodeWithoutAuthority, 0, follower, func(f *Facts) { f.Authority, f.Status.Leader = &Authority{}, 0 }, "may lack", "without this member are needed; if they are lost for good, stop this host and accept the loss with \"millrace wal repair --write --accept-loss d/log\""},
	{diagnosis.CodeWithoutAuthority, 0, follower, func(f *Facts) { f.Authority = &Authority{Unmet: true} }, "may lack", "this log was repaired"},
	{diagnosis.CodeWithoutAuthority, 3, leader, func(f *Facts) { third(f).LostSince = long }, "the log of host 3", "keep the other members running"},
	{diagnosis.CodeDiskFull, 0, follower, func(f *Facts) { f.Disk.Full = &FullDisk{Bytes: 7} }, "7 bytes of them wait in memory: no space", "make space"},
	{diagnosis.CodeDiskStalled, 0, follower, func(f *Facts) { f.Disk.Stalls, f.Disk.StallsAt, f.Disk.Syncs = true, now-stall-1, 4 }, "has waited for 61ms (Config.StallTimeout is 60ms)", "look at the disk"},
	{diagnosis.CodeDiskStalled, 0, leader, func(f *Facts) { third(f).ReadingSince = now - stall - 1 }, "a read of old entries for host 3", "look at the disk"},
	{diagnosis.CodeDiskStalled, 3, leader, func(f *Facts) { third(f).Behind, third(f).AckedAt = 5, long }, "has acknowledged no entry for 1s, and is 5 entries behind", "ask Explain on host 3"},
	{diagnosis.CodeDiskSlow, 0, follower, func(f *Facts) { f.Disk.Stalls, f.Disk.StallsAt = true, now-election-1 }, "the oldest write of this host has waited for 21ms", "look at the disk"},
	{diagnosis.CodeDiskSlow, 0, follower, func(f *Facts) { f.Disk.Slow = &SlowDisk{Since: now - 100, N: 3, Longest: 40} }, "3 writes or syncs of this host took longer than Config.ElectionTimeout (20ms) in the last 100ms, the longest 40ms", "look at the disk"},
	{diagnosis.CodeMachineHalted, 0, follower, func(f *Facts) { f.Machine.Halt = &Halt{At: "command 9", One: true, Err: errors.New("no")} }, "halted at command 9: no", "ask Explain on the other members"},
	{diagnosis.CodeMachineHalted, 0, follower, func(f *Facts) { f.Machine.Halt = &Halt{} }, "halted", "and says which it is"},
	{diagnosis.CodeMachineHalted, 0, follower, func(f *Facts) { f.Machine.Halt = &Halt{One: true, Skipped: true} }, "halted", "the command is skipped"},
	{diagnosis.CodeMachineHalted, 0, follower, func(f *Facts) { f.Machine.Halt = &Halt{One: true, Stays: true} }, "halted", "replace this member"},
	{diagnosis.CodeApplyStuck, 0, follower, func(f *Facts) { f.Machine.Turn = (stall + 1) * time.Millisecond }, "a turn of the group has run for 61ms, and entry 9 is the next", "take the stacks"},
	{diagnosis.CodeApplyStuck, 0, follower, func(f *Facts) { f.Machine.Lane = Lane{Busy: true, Running: true, Since: long, Lanes: 3, Hung: 2} }, "a call of the state machine for entry 9 and later ones has run for 1s", "take the stacks"},
	{diagnosis.CodeApplyStuck, 0, follower, func(f *Facts) { f.Machine.Lane = Lane{Busy: true, Since: long} }, "have waited for an apply lane for 1s", "take the stacks"},
	{diagnosis.CodeObjectLacking, 0, follower, func(f *Facts) { f.Machine.Object = &Object{Since: long, Entry: 9, ID: "o1"} }, "entry 9 names object o1, which this host has not fetched for 1s; other members have it", "look at the disk"},
	{diagnosis.CodeObjectLacking, 0, follower, func(f *Facts) { f.Machine.Object = &Object{Since: long, Lost: true} }, "no member that was asked has it", "look at the disk"},
	{diagnosis.CodeNoQuorum, 0, follower, func(f *Facts) { leaderless(f); silent(f, 1, 3) }, "of 3 voters this host hears 1, itself included; a quorum is 2: host 1 was heard 10s ago", "start the hosts that are down"},
	{diagnosis.CodeNoLeader, 0, follower, leaderless, "hosts [1 2 3] are heard, a quorum of 3 voters", "ask Explain on the hosts that are heard"},
	{diagnosis.CodeMemberUnreachable, 3, leader, func(f *Facts) { silent(f, 3) }, "nothing has come from host 3 for 10s", "one member less can fail meanwhile"},
	{diagnosis.CodeMemberUnreachable, 3, leader, func(f *Facts) { f.peer(3).Heard = false; silent(f, 3) }, "since this host has started", "start host 3"},
	{diagnosis.CodeMemberUnreachable, 3, leader, func(f *Facts) { *f.peer(3) = Peer{ID: 3} }, "the most that it can", "start host 3"},
	{diagnosis.CodeMemberSilent, 3, leader, func(f *Facts) { third(f).ActiveAt = long }, "host 3 is heard, and its member of this group has answered nothing for 1s", "ask Explain on host 3"},
	{diagnosis.CodeNotSent, 3, leader, func(f *Facts) {
		f.peer(3).Unsent, third(f).Behind, third(f).AckedAt = Repeats{Since: now - 10, Latest: now, N: 9}, 2, long
	}, "9 times in 10ms, the latest 0s ago, this host has dropped messages to host 3", "look at the network to host 3"},
	{diagnosis.CodeSlowMember, 3, leader, func(f *Facts) { third(f).Behind, third(f).Slow, third(f).LevelAt = 5, true, long }, "host 3 is 5 entries behind, for 1s; it has acknowledged entry 8", "if host 3 has just started"},
	{diagnosis.CodeSlowMember, 3, leader, func(f *Facts) { third(f).Behind, third(f).Snapshot, third(f).AckedAt = 5, 9, long }, "needs the snapshot through entry 9", "wait"},
	{diagnosis.CodeSlowMember, 3, leader, func(f *Facts) { third(f).Behind, third(f).AckedAt = 5, now-4*election-1 }, "has acknowledged no entry for 81ms (Config.StallTimeout is 60ms)", "its disk may be slow"},
	{diagnosis.CodeDiverged, 3, leader, func(f *Facts) {
		f.Differs, f.DiffersBy = &event.Diverged{Group: 1, In: event.DivergedState, Index: 9, Members: []event.DivergedMember{{ID: 1}, {ID: 3, Minority: true}}}, 1
	}, "entry 9", "find what is not the same on every host"},
	{diagnosis.CodeDiverged, 0, follower, func(f *Facts) { f.Differs, f.DiffersBy = &event.Diverged{In: event.DivergedCommands}, 1 }, "host 1, which leads, says: ", "millrace wal verify"},
	{diagnosis.CodeDiverged, 0, leader, func(f *Facts) { f.Differs, f.DiffersBy = &event.Diverged{In: event.DivergedOptions}, 1 }, "", "the same CommandOptions.Sessions"},
	{diagnosis.CodeNotCompared, 3, leader, func(f *Facts) {
		f.Uncompared = []divergence.Uncompared{{Member: 3, Theirs: divergence.Watch{States: true}, Ours: divergence.Watch{Form: "f"}}}
	}, "the form of the results is none on host 3 and \"f\" on host 1, host 3 has a digest of the state and host 1 has none", "KeepResults) and the same Machine.Digest"},
	{diagnosis.CodeSnapshotFails, 0, follower, func(f *Facts) {
		f.Snapshots = Snapshots{Failures: 2, Err: errors.New("no space"), LogEntries: 7}
	}, "2 snapshots in a row could not be taken, and the log has 7 entries: no space", "it is tried again by itself"},
	{diagnosis.CodeSnapshotFails, 0, follower, func(f *Facts) { f.Snapshots = Snapshots{Failures: 1, Err: &snapshot.StuckError{}} }, "1 snapshots", "start this host again: it removes the directory"},
	{diagnosis.CodeSnapshotFails, 0, follower, func(f *Facts) {
		f.Snapshots = Snapshots{Failures: 1, Err: syscall.EMFILE, Disabled: true, FailedAt: now - 8*election}
	}, "too many open files", "let the process open more files (ulimit -n, LimitNOFILE), or end what holds the machine's; call TakeSnapshot again"},
	{diagnosis.CodeSnapshotHangs, 0, follower, func(f *Facts) { f.Snapshots.Hangs, f.Snapshots.HangsFor = "which writes a snapshot", time.Second }, "this group, which writes a snapshot, has been at one piece of it for 1s", "look at the disk"},
	{diagnosis.CodeSnapshotStuck, 0, follower, func(f *Facts) { f.Snapshots.Stuck = []error{errors.New("EIO"), errors.New("later")} }, "EIO; 1 later directories are left alone, too", "start this host again: it removes the directory"},
	{diagnosis.CodeSnapshotRefused, 0, follower, func(f *Facts) { f.Snapshots.Refused = &RefusedSnapshot{Index: 77, Why: "no Restore"} }, "its snapshot through entry 77 is refused, and committed entries behind it cannot be applied: no Restore", "give this host the state machine and the pipeline that the other members have"},
	{diagnosis.CodePlacementRests, 3, leader, func(f *Facts) { f.Placement = Placement{Wants: 3, Recent: 4, Most: 4, Window: time.Hour} }, "in the past 1h0m0s the leadership was handed over for placement 4 times", "give all members the same Placement"},
	{diagnosis.CodeSettingsDiffer, 3, follower, func(f *Facts) {
		f.peer(3).Settings = []Setting{{"Config.HeartbeatInterval", 1, 1}, {"Config.ElectionTimeout", time.Second, time.Minute}}
	}, "Config.ElectionTimeout is 1s on host 3 and 1m0s on host 2", "give all members the same Config.ElectionTimeout, and"},
	{diagnosis.CodeSingleEntries, 3, leader, func(f *Facts) { f.Config.Batches = true; f.peer(2).Batches = BatchesRead }, "host 3 has not said that it reads entries with several commands, so host 1, which leads, writes an entry for each", "give host 3 the program"},
	{diagnosis.CodeSingleEntries, 3, leader, func(f *Facts) {
		f.Config.Batches, f.peer(2).Batches, f.peer(3).Batches = true, BatchesRead, BatchesRefused
	}, "host 3 has Config.SingleEntries, so host 1", "take Config.SingleEntries from host 3"},
	{diagnosis.CodePaused, 0, leader, func(f *Facts) { f.Pauses = Pauses{N: 1, Missed: election / 2, Longest: election / 2} }, "did not run for 10ms in all, in 1 pauses", "look for what stops the process"},
	{diagnosis.CodeOverloaded, 0, leader, func(f *Facts) { f.Load.Commands = Repeats{Latest: now, N: 5} }, "5 commands were refused with ErrOverloaded, the latest 0s ago", "propose less at a time"},
	{diagnosis.CodeOverloaded, 0, follower, func(f *Facts) { f.Load.Messages = Repeats{Since: now - 2*election - 1, Latest: now, N: 5} }, "5 messages of other members were dropped", "slower than its leader"},
}

// Each cause is found by its facts alone, with evidence and a remedy, and nothing else is.
func TestEachCause(t *testing.T) {
	rows := map[diagnosis.Code]int{}
	for _, row := range causeTests {
		rows[row.code]++
		f := row.facts()
		if d := Examine(f); !d.Healthy || len(d.Warnings) > 0 {
			t.Fatalf("setup: %v", d)
		}
		row.change(f)
		d := Examine(f)
		all := slices.Concat(d.Causes, d.Warnings)
		if len(all) != 1 || all[0].Code != row.code || all[0].Member != row.member || !strings.Contains(all[0].Evidence, row.evidence) || !strings.Contains(all[0].Fix, row.fix) {
			t.Errorf("want %q of %d, %q, and %q:\n%v", row.code, row.member, row.evidence, row.fix, d)
		}
		if d.Healthy != row.code.IsWarning() {
			t.Errorf("%q: healthy is %t", row.code, d.Healthy)
		}
	}
	for _, code := range diagnosis.Codes() {
		if rows[code] == 0 {
			t.Errorf("%q has no row", code)
		}
	}
}

// A group that stops because of a directory names the host's identity too.
func TestStoppedByADirectory(t *testing.T) {
	f := leader()
	f.Stop = &Stop{Err: errors.New("another directory"), Why: StoppedByDirectory, Directory: true}
	if d := Examine(f); len(d.Causes) != 2 || !d.Has(diagnosis.CodeStopped) || !d.Has(diagnosis.CodeIdentityRefused) {
		t.Error(d)
	}
}

// What a healthy cluster does, and what has ended, is no cause.
func TestNoCryOfWolf(t *testing.T) {
	for _, row := range []struct {
		name   string
		facts  func() *Facts
		change func(*Facts)
	}{
		{"an election", follower, func(f *Facts) { f.Status.Leader, f.Leaderless = 0, now-2*election }},
		{"hosts that have just found each other", follower, func(f *Facts) { leaderless(f); f.peer(1).HeardSince, f.peer(3).HeardSince = now-election, now-election }},
		{"a group that was just opened", follower, func(f *Facts) { f.Founding, f.Opened = diagnosis.Founding{}, now-2*election }},
		{"a refusal that was not repeated", follower, func(f *Facts) { f.peer(3).Refused = &Refusal{Latest: now - 8*election - 1} }},
		{"a directory that does not come any more", follower, func(f *Facts) { f.Founding.Refused = []uint64{3}; f.peer(3).HeardAt = now - 8*election - 1 }},
		{"a certificate of a host that is heard", follower, func(f *Facts) { f.peer(3).Certificate = &Certificate{Latest: now} }},
		{"a certificate of the past", follower, func(f *Facts) {
			silent(f, 3)
			f.peer(3).Certificate = &Certificate{Latest: now - 8*election - 1}
		}},
		{"a write", follower, func(f *Facts) { f.Disk.Stalls, f.Disk.StallsAt = true, now-election }},
		{"a call of the machine", follower, func(f *Facts) { f.Machine.Lane = Lane{Busy: true, Running: true, Since: now - stall} }},
		{"a view of the past", leader, func(f *Facts) { third(f).At, third(f).LostSince = now-2*election-1, long }},
		{"a host that is as silent as one that lives", leader, func(f *Facts) { f.peer(3).HeardAt = now - 2*election - 4 }},
		{"a leader that has just begun", leader, func(f *Facts) { f.Leads = now - election; silent(f, 3) }},
		{"a message that was dropped once", leader, func(f *Facts) { f.peer(3).Unsent = Repeats{Latest: now, N: 1} }},
		{"hand-overs for placement", leader, func(f *Facts) { f.Placement = Placement{Wants: 3, Recent: 3, Most: 4} }},
		{"a snapshot that failed, of which a caller was told", follower, func(f *Facts) {
			f.Snapshots = Snapshots{Failures: 1, Disabled: true, FailedAt: now - 8*election - 1}
		}},
		{"short pauses", leader, func(f *Facts) { f.Pauses = Pauses{N: 2, Missed: election - 1, Longest: election/2 - 1} }},
		{"a moment without memory", follower, func(f *Facts) { f.Load.Messages = Repeats{Since: now - 2*election, Latest: now, N: 5} }},
	} {
		f := row.facts()
		if row.change(f); !Examine(f).Healthy || len(Examine(f).Warnings) > 0 {
			t.Errorf("%s: %v", row.name, Examine(f))
		}
	}
}

// A follower that is behind because this host drops what it sends to it has a disk that is well. The cause
// ends when the messages leave again, or when the follower is level.
func TestNotSentEnds(t *testing.T) {
	f := leader()
	f.peer(3).Unsent = Repeats{Latest: now - 3*election, N: 9}
	third(f).Behind, third(f).AckedAt = 2, long
	if d := Examine(f); d.Has(diagnosis.CodeNotSent) || !d.Has(diagnosis.CodeDiskStalled) {
		t.Errorf("they leave again: %v", d)
	}
	f.peer(3).Unsent.Latest = now
	third(f).Behind, third(f).AckedAt = 0, now
	if d := Examine(f); !d.Healthy {
		t.Errorf("it is level: %v", d)
	}
}
