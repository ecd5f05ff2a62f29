// Package millrace replicates a state machine over several hosts. Commands go in on any member; every member
// applies the same commands in the same order; a command counts when a majority holds it on its disks. What
// was acknowledged survives crashes of all members and the loss of a minority.
//
// # A program
//
// Write a [StateMachine], choose a [Codec] for its commands, and [Open] a [Node] with what [InMemory] or
// [Durable] return for both. [Node.Propose] changes the state and returns the result of the change;
// [Node.View] and [Node.ViewExclusive] read it. The same Open is for a new directory and for one that was
// used before. Any member takes commands and serves reads: those that do not lead ask the leader.
//
// At the first start every member must be up once, until the group is founded. From then on a majority is
// enough. A member that comes back with an empty directory is refused, because it has forgotten its votes.
//
// A node is one member of a group. It runs on a host, which is a directory with a log, and an address for
// other hosts. Open makes a host for its node. With [OpenGroup] many groups share one.
//
// Two calls are enough for most programs: Propose for a change, and View for a read. Use [Node.Commit] where
// the result is not needed. For one goroutine with many commands under way there are [Node.Submit] and
// [Node.SubmitMany].
//
// # What blocks
//
// Open reads the log and returns; it waits for no other member. A method with a context waits until that
// ends, such as Propose, View and WaitReady: give it a deadline. A method without one waits for no other
// member. No method may be called by the state machine, and none that waits by the function of
// ViewExclusive.
//
// # What each error means
//
// Propose and Wait end in one of three ways. Nil: the command was applied, once, and the result is its own.
// An error for which [MayHaveCommitted] is true: the command may have been applied, or may be later; read
// the state before it is proposed again. Any other error: it was not applied and never will be.
//
//	ErrOverloaded      Submit: too many commands are under way. Wait for RetryAfter, or use Propose
//	ErrNotLeader       only with IfLeader: send the client to NotLeaderError.ClientAddr
//	ErrMachineHalted   the machine of this member could not apply a command: use another member
//	ErrSkipped         machines could not apply it, and an operator has made all members skip it
//	ErrReentrant       the state machine has called: call elsewhere
//	ErrDropped         a new leader's entry took its place. Propose it again
//	ErrTooLarge        the command is larger than Config.MaxCommandBytes
//	ErrIndeterminate   the context or the node ended after the command was on its way
//	ErrAlreadyApplied  it was applied before, and its result is not kept (Machine.Results keeps it)
//	ErrNoResult        it is committed, and this host has stopped or halted before it had the result
//	ErrSessionExpired  a session of yours (InSession) was idle for too long and is forgotten
//	ErrSessionFull     too many numbers of a session of yours are unanswered
//	ErrDiverged        Node.Err: the member differs from the majority (Machine.StopDiverged)
//	ErrStopped         the node was closed, or has failed: Node.Err says why
//	ErrRemoved         the group was removed from this host
//	ErrAmnesia         Open: the log may lack what this host has promised, and no others can fill the gap
//
// Errors that wrap the context's and for which MayHaveCommitted is false say "not proposed". All that wrap
// the context's say what was missing when it ended: errors.Is finds ErrNotFounded, ErrNoQuorum, ErrNoLeader
// or ErrDiskFull, and the sentence names the hosts. What a state machine has against a command is a part of
// its result, not an error. An error of Apply means that this member is broken; it halts the machine.
//
// # Shutting down
//
// [Node.Close] with a context that can end hands the leadership over, so the others do not wait for an
// election timeout. It answers every caller and syncs the log. A process may also be killed at any time:
// the next Open recovers what was acknowledged.
//
// Close does not wait for callers. So the order of an end is: take no new requests, wait until those that
// were taken have their answers, and close the node last. With net/http the first two are Server.Shutdown.
//
// # What to watch
//
// Members compare their commands and the results of their machines, as far as types prove these equal, and
// their states with [Machine.Digest]. A difference is a cause in Explain on every member: a machine reads the
// clock, draws numbers, or follows the order of a map. [Machine.StopDiverged] stops the member that differs
// from a majority. Set it on all members, with a Digest, where a wrong answer is worse than one member less;
// not in a group of two. docs/howto/embed.md says what is compared.
//
// [Node.Explain] says whether anything is wrong, with evidence and what to do; a healthy node has nothing
// to explain. [Node.Metrics] has the numbers to record. [Node.Err] is not nil when the member has stopped.
// [Node.Status] has the role, the leader, and how far the log and the state machine have come: Committed -
// Applied that grows is a slow state machine. [Node.Events] reports elections, full and slow disks, members
// that lag, and refused hosts; the log lines (Config.Logger) say the same.
//
// # The log and its snapshots
//
// A node takes snapshots of its state machine when the log has grown by 64 MiB (Config.Snapshots), and then
// forgets the commands before them. It begins from the newest when it is opened, and a member that was away
// for longer than the log reaches back gets one from another member. [Node.TakeSnapshot] takes one now.
// [Node.Export] writes a backup, from which a new cluster can begin.
//
// # Other machines
//
// Members at addresses of other machines need Config.TLS: certificates that name members. "millrace cert"
// makes them. docs/operate/tls.md says what is checked, and how certificates are replaced.
//
// # Members
//
// [Node.Plan] says what a change of the members does to the quorum, stage by stage. [Node.Execute] carries
// it out while the group works. Nodes are added ([AddMember]), removed, and replaced when their directory
// is lost. With [Node.NewJoinToken] a new node joins by itself. docs/operate/members.md says how.
//
// Package host is the layer below, for bytes and for many groups. The how-to pages are in docs/howto.
package millrace
