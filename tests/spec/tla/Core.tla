------------------------------- MODULE Core -------------------------------
(***************************************************************************)
(* The protocol of package raft, as far as safety goes.                    *)
(*                                                                         *)
(* What the core of most specifications of Raft takes as one step is many  *)
(* here. A node changes its memory (node). Ready hands what changed, with  *)
(* the messages that must wait for it, to a storage worker (queue). The    *)
(* worker is behind: Persist makes the oldest write durable (disk), and    *)
(* only then its messages leave (msgs). Messages that promise nothing      *)
(* leave at once. A crash forgets memory and queue, and may leave a part   *)
(* of the write that was under way, in the order of the storage contract   *)
(* (raft/doc.go, "A write is atomic").                                     *)
(*                                                                         *)
(* This module has the state, and how a node handles a message: handlers   *)
(* are functions from the memory of one node to its next memory, so that   *)
(* Trace.tla can run them along what the core did. Raft.tla has the steps. *)
(***************************************************************************)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS
    Nodes,      \* all that may ever be members
    None,       \* no node
    Founders,   \* the first configuration
    \* Parts of the protocol, each on or off.
    PreVote,    \* an election is preceded by a round of pre-votes
    Torn,       \* a crash may leave a part of a write
    Reads,      \* reads by a round of heartbeats
    Leases,     \* reads by a lease, promises and transfers of leadership
    Members,    \* membership changes
    Compacts,   \* snapshots
    Late,       \* the answers of a storage worker to its own node travel like messages; else they are there at once
    Campaigners, \* the nodes whose election timeout may expire
    Awake,      \* the nodes that take steps
    Fragile,    \* the nodes that may crash
    Partial,    \* an append may end before the end of the leader's log, and begin before what is committed
    Led,        \* None, or the node that leads term 2 in the first state
    Second,     \* None, or the node that leads term 3 besides, unknown to Led
    \* Bounds.
    MaxTerm, MaxLog, MaxCrashes, MaxTime, MaxReads, MaxProposals, MaxChanges,
    MaxQueue,   \* writes that were handed out. 0: a write is handed out when it is done, with all that is new by then
    Plant       \* the planted error, or "none"

VARIABLES
    node,       \* of each node: its memory
    disk,       \* of each node: what is durable
    queue,      \* of each node: the writes that its storage worker has still to do
    msgs,       \* every message that has left. A message that is lost is one that no node takes
    lives,      \* how often each node has crashed
    \* What no node knows: history, for the properties.
    chosen,     \* the entries that were ever committed, with the term of the leader that did so
    led,        \* who has led which term, in which life
    clock,      \* of all nodes (leases)
    stale       \* a read was answered that lacks what was committed when it was asked

vars == <<node, disk, queue, msgs, lives, chosen, led, clock, stale>>

Planted(p) == Plant = p

Min(a, b) == IF a < b THEN a ELSE b
Max(a, b) == IF a > b THEN a ELSE b
Least(S) == CHOOSE x \in S : \A y \in S : x <= y
Greatest(S) == CHOOSE x \in S : \A y \in S : x >= y
Zero == [n \in Nodes |-> 0]

(***************************************************************************)
(* Configurations and entries. An entry that changes the configuration     *)
(* names the one that follows it. A configuration with old # {} is joint.  *)
(***************************************************************************)
Conf(old, new) == [old |-> old, new |-> new]
NoConf == Conf({}, {})
Command(t) == [t |-> t, old |-> {}, new |-> {}]
Change(t, c) == [t |-> t, old |-> c.old, new |-> c.new]
IsChange(e) == e.new # {}
ConfOf(e) == Conf(e.old, e.new)
Voters(c) == c.old \cup c.new

IsMajority(voters, S) == Cardinality(voters \cap S) * 2 > Cardinality(voters)
IsQuorum(c, S) ==
    /\ c.new # {}
    /\ IsMajority(c.new, S)
    /\ c.old = {} \/ Planted("jointByNewAlone") \/ IsMajority(c.old, S)

ConfAt(log, i) ==
    LET changes == {j \in 1..i : IsChange(log[j])}
    IN IF changes = {} THEN NoConf ELSE ConfOf(log[Greatest(changes)])

\* Entry 1 made the founders; all of them hold it as a snapshot.
Birth == Change(1, Conf({}, Founders))

(***************************************************************************)
(* The memory of a node.                                                   *)
(***************************************************************************)

\* Of a node that starts, from the image d of its disk. Its state machine has applied entries through a.
Started(d, a) ==
    [role |-> "follower", term |-> d.term, vote |-> d.vote, lead |-> None,
     log |-> d.log,
     base |-> d.base,                       \* what is compacted: entries through base are not read
     commit |-> Max(Min(d.commit, Len(d.log)), Max(d.base, a)),
     applied |-> a, conf |-> ConfAt(d.log, a),
     handed |-> Len(d.log),                 \* the entries through handed were given to the storage worker
     stable |-> Len(d.log),                 \* the entries through stable are known to be durable
     ack |-> 0,                             \* the leader's term of the append that last changed the log
     pend |-> 0,                            \* the snapshot that is not known to be durable, or 0
     votes |-> {},                          \* of a candidate or pre-candidate
     match |-> Zero,                        \* of a leader, its own disk included
     pos |-> 0, reads |-> {}, echoed |-> Zero, lease |-> 0, ordered |-> FALSE,  \* of a leader: reads
     promise |-> 0,                         \* the time until which it neither votes nor campaigns
     out |-> {},                            \* messages that wait for the next write
     free |-> {}]                           \* messages that leave with this step

Promised(s) == Leases /\ clock < s.promise
Timeout == 2  \* the election timeout, which is how long a promise lasts. No lease may last longer

LastTerm(s) == IF s.log = <<>> THEN 0 ELSE s.log[Len(s.log)].t
Has(s, i, t) == i = 0 \/ (i <= Len(s.log) /\ s.log[i].t = t)
IsUpToDate(s, lt, li) == lt > LastTerm(s) \/ (lt = LastTerm(s) /\ li >= Len(s.log))
Promotable(n, s) == n \in Voters(s.conf) /\ s.pend = 0
HasUnappliedChange(s) == \E i \in (s.applied + 1)..s.commit : IsChange(s.log[i])
MayCampaign(n, s) ==
    /\ s.role # "leader"
    /\ Promotable(n, s)
    /\ ~HasUnappliedChange(s) \/ Planted("campaignUnapplied")
\* The first entry of a leader's term. Only entries from there on are counted.
TermStart(s) == Least({i \in 1..Len(s.log) : s.log[i].t = s.term})

Wait(s, m) == [s EXCEPT !.out = @ \cup {m}]
Leave(s, m) == [s EXCEPT !.free = @ \cup {m}]

Ack(n, t, to, i) == [ty |-> "ack", term |-> t, from |-> n, to |-> to, idx |-> i]
SendAck(n, s, to, i) ==
    IF Planted("ackBeforeDurable") THEN Leave(s, Ack(n, s.term, to, i)) ELSE Wait(s, Ack(n, s.term, to, i))

\* Terms and roles (raft/term.go).
Enter(s, role, t, lead) ==
    [s EXCEPT !.role = role, !.term = t, !.vote = IF t = s.term THEN @ ELSE None, !.lead = lead,
              !.votes = {}, !.match = Zero,
              !.pos = 0, !.reads = {}, !.echoed = Zero, !.lease = 0, !.ordered = FALSE]

HearLeader(s, t, lead) ==
    LET r == IF t > s.term \/ s.role # "follower" THEN Enter(s, "follower", t, lead) ELSE [s EXCEPT !.lead = lead]
    IN [r EXCEPT !.promise = IF Leases THEN clock + Timeout ELSE 0]

(***************************************************************************)
(* Elections (raft/candidate.go).                                          *)
(***************************************************************************)
Grant(n, t, to) == [ty |-> "grant", term |-> t, from |-> n, to |-> to]
PreGrant(n, t, to) == [ty |-> "pregrant", term |-> t, from |-> n, to |-> to]
Request(ty, n, s, t, ordered) ==
    [ty |-> ty, term |-> t, from |-> n, lt |-> LastTerm(s), li |-> Len(s.log), ord |-> ordered]
\* The refusal of a node that may not lead itself says what is committed.
Refusal(n, s, to) ==
    [ty |-> "refusal", term |-> s.term, from |-> n, to |-> to, idx |-> s.commit,
     lt |-> IF s.commit = 0 THEN 0 ELSE s.log[s.commit].t]

\* Its own vote is a message to itself, which waits for its disk like every vote.
StartElection(n, s, ordered) ==
    LET c == [Enter(s, "candidate", s.term + 1, None) EXCEPT !.vote = n]
        request == Request("vote", n, s, c.term, ordered)
        asked == IF Planted("requestBeforeDurable") THEN Leave(c, request) ELSE Wait(c, request)
    IN Wait(asked, Grant(n, c.term, n))

StartPreVote(n, s) ==
    LET c == Enter(s, "pre", s.term, None)
    IN Wait(Leave(c, Request("pre", n, s, c.term + 1, FALSE)), PreGrant(n, c.term + 1, n))

Campaign(n, s) == IF PreVote THEN StartPreVote(n, s) ELSE StartElection(n, s, FALSE)

OnVote(n, s, m) ==
    IF (Promised(s) /\ ~m.ord) \/ m.term < s.term THEN s
    ELSE LET r == IF m.term > s.term THEN Enter(s, "follower", m.term, None) ELSE s
             isFree == r.vote = m.from \/ (r.vote = None /\ r.lead = None) \/ Planted("voteTwice")
             grants == isFree /\ (IsUpToDate(r, m.lt, m.li) \/ Planted("voteForAnyLog"))
             given == [r EXCEPT !.vote = m.from]
         IN CASE grants /\ Planted("voteBeforeDurable") -> Leave(given, Grant(n, r.term, m.from))
              [] grants -> Wait(given, Grant(n, r.term, m.from))
              [] ~grants /\ ~Promotable(n, r) -> Wait(r, Refusal(n, r, m.from))
              [] OTHER -> r

\* A pre-vote promises nothing and changes nothing.
OnPre(n, s, m) ==
    IF Promised(s) \/ m.term < s.term THEN s
    ELSE LET isFree == m.term > s.term \/ s.vote = m.from \/ (s.vote = None /\ s.lead = None)
             r == IF Planted("preVoteRaisesTerm") /\ m.term > s.term THEN Enter(s, "follower", m.term, None) ELSE s
         IN CASE isFree /\ IsUpToDate(s, m.lt, m.li) -> Wait(r, PreGrant(n, m.term, m.from))
              [] ~Promotable(n, s) -> Wait(r, Refusal(n, s, m.from))
              [] OTHER -> r

\* What is committed stays committed, whichever node says so (learnCommitted).
OnRefusal(s, m) ==
    IF s.role # "leader" /\ m.idx > s.commit /\ m.idx <= Len(s.log) /\ (Has(s, m.idx, m.lt) \/ Planted("learnUnmatched"))
    THEN [s EXCEPT !.commit = m.idx] ELSE s

(***************************************************************************)
(* Leading and commit (raft/leader.go, raft/commit.go).                    *)
(***************************************************************************)
Held(n, s, i) == {k \in Nodes : s.match[k] >= i \/ (k = n /\ Planted("leaderNeedsNoDisk"))}
AdvanceCommit(n, s) ==
    LET able == {i \in (s.commit + 1)..Len(s.log) :
                    IsQuorum(s.conf, Held(n, s, i)) /\ (s.log[i].t = s.term \/ Planted("countOldTerms"))}
    IN IF able = {} THEN s ELSE [s EXCEPT !.commit = Greatest(able)]

AppendOwn(s, e) == [s EXCEPT !.log = Append(@, e), !.ack = s.term]

Lead(n, s) ==
    LET r == [Enter(s, "leader", s.term, n) EXCEPT !.match[n] = s.stable]
    IN AppendOwn(r, Command(s.term))

OnGrant(n, s, m) ==
    IF s.role # "candidate" \/ m.term # s.term \/ m.from \notin Voters(s.conf) THEN s
    ELSE LET r == [s EXCEPT !.votes = @ \cup {m.from}] IN IF IsQuorum(s.conf, r.votes) THEN Lead(n, r) ELSE r

OnPreGrant(n, s, m) ==
    IF s.role # "pre" \/ m.term < s.term \/ m.from \notin Voters(s.conf) THEN s
    ELSE LET r == [s EXCEPT !.votes = @ \cup {m.from}]
         IN IF IsQuorum(s.conf, r.votes) THEN StartElection(n, r, FALSE) ELSE r

OnAck(n, s, m) ==
    IF s.role # "leader" \/ m.term # s.term THEN s
    ELSE AdvanceCommit(n, [s EXCEPT !.match[m.from] = Max(@, m.idx)])

(***************************************************************************)
(* Following (raft/follower.go). a is an append: entries behind prev, and  *)
(* the leader's commit index.                                              *)
(***************************************************************************)
Replace(s, first, ents) ==
    [s EXCEPT !.log = SubSeq(@, 1, first - 1) \o ents, !.ack = s.term,
              !.handed = Min(@, first - 1),
              !.stable = IF Planted("truncationKeepsStable") THEN @ ELSE Min(@, first - 1)]

OnAppend(n, s, a) ==
    LET r == HearLeader(s, a.term, a.from)
        through == a.prev + Len(a.ents)
        new == {i \in 1..Len(a.ents) :
                   IF Planted("keepConflicts") THEN a.prev + i > Len(r.log) ELSE ~Has(r, a.prev + i, a.ents[i].t)}
        w == IF new = {} THEN r ELSE Replace(r, a.prev + Least(new), SubSeq(a.ents, Least(new), Len(a.ents)))
        c == IF Planted("commitUnverified") THEN Min(a.commit, Len(w.log)) ELSE Min(a.commit, through)
    IN CASE a.term < s.term -> s
         [] a.prev < r.commit -> SendAck(n, r, a.from, r.commit)  \* late: every leader has what is committed here
         [] a.prev >= r.commit /\ ~Has(r, a.prev, a.pterm) -> r   \* refused; where to try next is no question of safety
         [] OTHER -> SendAck(n, [w EXCEPT !.commit = Max(@, c)], a.from, through)

\* p holds the entries that the snapshot stands for.
OnSnapshot(n, s, t, lead, p) ==
    LET r == HearLeader(s, t, lead)
        i == Len(p)
        installed == [r EXCEPT !.log = p, !.commit = i, !.pend = i, !.base = i, !.handed = i, !.stable = i, !.ack = t,
                               !.conf = ConfAt(p, i)]
    IN CASE t < s.term -> s
         [] i <= r.commit -> SendAck(n, r, lead, r.commit)
         [] i > r.commit /\ Has(r, i, p[i].t) /\ ~Planted("snapshotOverLog") -> SendAck(n, [r EXCEPT !.commit = i], lead, i)
         [] OTHER -> SendAck(n, installed, lead, i)

\* The storage worker says that the entries through m.idx are durable, as of m.ack, and the snapshot m.snap.
OnStable(s, m) ==
    LET r == IF (m.ack = s.ack \/ Planted("staleStable")) /\ m.idx > s.stable /\ m.idx <= Len(s.log)
             THEN [s EXCEPT !.stable = m.idx] ELSE s
    IN IF m.snap = 0 THEN r
       ELSE [r EXCEPT !.pend = IF @ = m.snap THEN 0 ELSE @, !.applied = Max(@, m.snap)]

(***************************************************************************)
(* Reads (raft/read.go, raft/lease.go).                                    *)
(***************************************************************************)
Heartbeat(n, s, to, pos) ==
    [ty |-> "beat", term |-> s.term, from |-> n, to |-> to, pos |-> pos,
     commit |-> IF Planted("beatCommitsAll") THEN s.commit ELSE Min(s.match[to], s.commit)]

OnBeat(n, s, m) ==
    IF m.term < s.term THEN s
    ELSE LET r == HearLeader(s, m.term, m.from)
             echo == [ty |-> "echo", term |-> r.term, from |-> n, to |-> m.from, pos |-> m.pos]
         IN Leave([r EXCEPT !.commit = Max(@, Min(m.commit, Len(r.log)))], echo)

\* The reads that a quorum has confirmed; the leader itself has echoed everything.
Confirmed(n, s) == {r \in s.reads : IsQuorum(s.conf, {k \in Nodes : k = n \/ s.echoed[k] >= r.pos})}
Release(n, s) ==
    LET done == Confirmed(n, s)
        from == IF Planted("leaseFromAnswer") THEN clock ELSE Greatest({r.at : r \in done})
    IN IF done = {} THEN s
       ELSE [s EXCEPT !.reads = @ \ done, !.lease = IF Leases THEN Max(@, from + Timeout) ELSE 0]

OnEcho(n, s, m) ==
    IF s.role # "leader" \/ m.term # s.term THEN s
    ELSE Release(n, [s EXCEPT !.echoed[m.from] = IF Planted("anyEchoConfirms") THEN s.pos ELSE Max(@, m.pos)])

MayRead(s) == s.role = "leader" /\ (s.commit >= TermStart(s) \/ Planted("readBeforeOwnCommit"))
LeaseHolds(s) == Leases /\ clock < s.lease /\ (~s.ordered \/ Planted("leaseOutlivesOrder"))
=============================================================================
