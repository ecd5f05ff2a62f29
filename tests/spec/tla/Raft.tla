------------------------------- MODULE Raft -------------------------------
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
(* Handlers are functions from the state of one node to its next state, so *)
(* that Trace.tla can run them along what the core did.                    *)
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

(***************************************************************************)
(* Steps. A step of node n leads to memory s; what may leave leaves.       *)
(***************************************************************************)

\* A leader does not send appends one by one. It shows its log, and a node takes any part of it: each append
\* that a leader could have sent is such a part.
Shown(n, s) ==
    IF s.role # "leader" \/ (node[n].role = "leader" /\ s.log = node[n].log /\ s.commit = node[n].commit /\ s.base = node[n].base)
    THEN {} ELSE {[ty |-> "log", term |-> s.term, from |-> n, log |-> s.log, commit |-> s.commit, base |-> s.base]}

\* What a leader commits for the first time.
Choose(s) ==
    IF s.role = "leader" /\ s.commit > Len(chosen)
    THEN chosen \o [i \in 1..(s.commit - Len(chosen)) |-> [e |-> s.log[Len(chosen) + i], by |-> s.term]]
    ELSE chosen

Moves(n, s) ==
    /\ node' = [node EXCEPT ![n] = [s EXCEPT !.free = {}]]
    /\ chosen' = Choose(s)
    /\ led' = IF s.role = "leader" /\ node[n].role # "leader" THEN led \cup {<<s.term, n, lives[n]>>} ELSE led

Step(n, s) ==
    /\ s # node[n]
    /\ s.term <= MaxTerm
    /\ Len(s.log) <= MaxLog
    /\ Moves(n, s)
    /\ msgs' = msgs \cup s.free \cup Shown(n, s)
    /\ UNCHANGED <<disk, queue, lives, clock>>

Quiet == UNCHANGED stale

TimesOut(n) ==
    /\ n \in Campaigners
    /\ MayCampaign(n, node[n]) /\ node[n].role # "candidate" /\ ~Promised(node[n])
    /\ node[n].term < MaxTerm
    /\ Step(n, Campaign(n, node[n])) /\ Quiet

\* A leader that hears no quorum (checkQuorum), or that its application asks to stop.
StepsDown(n) ==
    /\ node[n].role = "leader" /\ node[n].term < MaxTerm
    /\ Step(n, Enter(node[n], "follower", node[n].term, None)) /\ Quiet

Commands(s) == Cardinality({i \in 1..Len(s.log) : s.log[i].t = s.term /\ ~IsChange(s.log[i])}) - 1
Proposes(n) ==
    /\ node[n].role = "leader" /\ Promotable(n, node[n])
    /\ Commands(node[n]) < MaxProposals
    /\ Step(n, AppendOwn(node[n], Command(node[n].term))) /\ Quiet

Part(m, prev, through) ==
    [term |-> m.term, from |-> m.from, prev |-> prev, pterm |-> IF prev = 0 THEN 0 ELSE m.log[prev].t,
     ents |-> SubSeq(m.log, prev + 1, through), commit |-> m.commit]

\* What node n makes of message m. (A log that is shown becomes an append or a snapshot elsewhere.)
Handle(n, s, m) ==
    CASE m.ty = "vote" -> OnVote(n, s, m)
      [] m.ty = "pre" -> OnPre(n, s, m)
      [] m.ty = "grant" -> OnGrant(n, s, m)
      [] m.ty = "pregrant" -> OnPreGrant(n, s, m)
      [] m.ty = "refusal" -> OnRefusal(s, m)
      [] m.ty = "ack" -> OnAck(n, s, m)
      [] m.ty = "stable" -> OnStable(s, m)
      [] m.ty = "beat" -> OnBeat(n, s, m)
      [] m.ty = "echo" -> OnEcho(n, s, m)
      [] m.ty = "order" -> IF m.term = s.term /\ s.role = "follower" /\ MayCampaign(n, s) THEN StartElection(n, s, TRUE) ELSE s
      [] OTHER -> s

IsFor(n, m) == IF m.ty \in {"vote", "pre", "log"} THEN m.from # n ELSE m.to = n

Hears(n) ==
    \E m \in msgs :
        /\ IsFor(n, m)
        /\ m.ty # "log"
        /\ Step(n, Handle(n, node[n], m))
        /\ stale' = (stale \/ (/\ m.ty = "echo" /\ node[n].role = "leader" /\ m.term = node[n].term
                              /\ \E r \in node[n].reads \ node'[n].reads : r.idx < r.floor))

HearsLog(n) ==
    \E m \in msgs :
        /\ m.ty = "log" /\ m.from # n /\ m.term >= node[n].term
        /\ ~(m.term = node[n].term /\ node[n].role = "leader")
        /\ \/ \E prev \in (IF Partial THEN m.base ELSE Max(m.base, node[n].commit))..Len(m.log) : \E through \in (IF Partial THEN prev..Len(m.log) ELSE {Len(m.log)}) :
                  Step(n, OnAppend(n, node[n], Part(m, prev, through)))
           \/ m.base > 0 /\ (Compacts \/ Len(node[n].log) < m.base) /\ Step(n, OnSnapshot(n, node[n], m.term, m.from, SubSeq(m.log, 1, m.base)))
        /\ Quiet

(***************************************************************************)
(* Storage (raft/outbox.go, raft/asyncstorage.go, raft/unstable.go).       *)
(***************************************************************************)
HandedHard(n) ==
    IF queue[n] = <<>> THEN <<disk[n].term, disk[n].vote, disk[n].commit>>
    ELSE LET w == queue[n][Len(queue[n])] IN <<w.term, w.vote, w.commit>>
SnapshotToWrite(n, s) ==
    IF s.pend > disk[n].base /\ \A i \in 1..Len(queue[n]) : queue[n][i].snap # s.pend THEN s.pend ELSE 0

Write(n, s) ==
    LET snap == SnapshotToWrite(n, s)
        ents == SubSeq(s.log, s.handed + 1, Len(s.log))
        own == IF s.role = "leader" /\ ents # <<>> THEN {Ack(n, s.term, n, Len(s.log))} ELSE {}
        stable == IF ents = <<>> /\ snap = 0 THEN {}
                  ELSE {[ty |-> "stable", term |-> 0, from |-> n, to |-> n, idx |-> IF ents = <<>> THEN 0 ELSE Len(s.log),
                         ack |-> s.ack, snap |-> snap]}
    IN [term |-> s.term, vote |-> s.vote, commit |-> s.commit, snap |-> snap, past |-> SubSeq(s.log, 1, snap),
        first |-> s.handed + 1, ents |-> ents, resp |-> s.out \cup own \cup stable]

HasReady(n, s) == s.out # {} \/ s.handed < Len(s.log) \/ SnapshotToWrite(n, s) # 0 \/ HandedHard(n) # <<s.term, s.vote, s.commit>>
HandedOut(s) == [s EXCEPT !.handed = Len(s.log), !.out = {}]

Ready(n) ==
    /\ Len(queue[n]) < MaxQueue
    /\ HasReady(n, node[n])
    /\ queue' = [queue EXCEPT ![n] = Append(@, Write(n, node[n]))]
    /\ node' = [node EXCEPT ![n] = HandedOut(@)]
    /\ UNCHANGED <<disk, msgs, lives, chosen, led, clock, stale>>

\* The parts of a write, in the order of the contract. A crash leaves the first p of them.
PartsOf(w) == 4 + Len(w.ents)
Terms(d, w) == [d EXCEPT !.term = w.term, !.vote = w.vote]
Past(d, w) == IF w.snap = 0 THEN d ELSE [d EXCEPT !.log = w.past, !.base = w.snap]
Cut(d, w) == IF w.ents = <<>> THEN d ELSE [d EXCEPT !.log = SubSeq(@, 1, w.first - 1)]
Hard(d, w) == [Terms(d, w) EXCEPT !.commit = w.commit]
More(d, w, k) == [d EXCEPT !.log = @ \o SubSeq(w.ents, 1, k)]

Does(d, w, p) ==
    LET k == IF p > 4 THEN p - 4 ELSE 0 IN
    CASE p = 0 -> d
      [] p = 1 -> Terms(d, w)
      [] p = 2 -> Past(Terms(d, w), w)
      [] p = 3 -> Cut(Past(Terms(d, w), w), w)
      [] OTHER -> More(Hard(Cut(Past(d, w), w), w), w, k)
Tears(d, w, p) ==
    CASE Planted("tornEntriesFirst") /\ p < PartsOf(w) -> More(Cut(Past(d, w), w), w, Min(p, Len(w.ents)))
      [] Planted("tornCommitFirst") /\ p \in 1..3 -> Hard(d, w)
      [] OTHER -> Does(d, w, p)

\* A node hears its own worker first of what is durable, then of its vote, then of its entries.
Rank(m) == CASE m.ty = "stable" -> 1 [] m.ty \in {"grant", "pregrant"} -> 2 [] OTHER -> 3
RECURSIVE HearsOwn(_, _, _)
HearsOwn(n, s, own) ==
    IF own = {} THEN s
    ELSE LET m == CHOOSE m \in own : \A o \in own : Rank(m) <= Rank(o)
         IN HearsOwn(n, Handle(n, s, m), own \ {m})

UnderWay(n) == IF MaxQueue = 0 THEN HasReady(n, node[n]) ELSE queue[n] # <<>>
Oldest(n) == IF MaxQueue = 0 THEN Write(n, node[n]) ELSE Head(queue[n])

Persist(n) ==
    /\ UnderWay(n)
    /\ LET w == Oldest(n)
           own == IF Late THEN {} ELSE {m \in w.resp : m.ty # "vote" /\ m.to = n}
           s == HearsOwn(n, IF MaxQueue = 0 THEN HandedOut(node[n]) ELSE node[n], own)
       IN /\ disk' = [disk EXCEPT ![n] = Does(@, w, PartsOf(w))]
          /\ Moves(n, s)
          /\ msgs' = msgs \cup (w.resp \ own) \cup s.free \cup Shown(n, s)
    /\ queue' = IF MaxQueue = 0 THEN queue ELSE [queue EXCEPT ![n] = Tail(@)]
    /\ UNCHANGED <<lives, clock, stale>>

\* A node that crashes starts again at once. (One that stays away is one that takes no step.) Its recovery
\* lowers the commit index to the end of the log. Its state machine has kept a part of what it had applied.
Images(n) ==
    IF Torn /\ UnderWay(n)
    THEN {Tears(disk[n], Oldest(n), p) : p \in 0..(PartsOf(Oldest(n)) - 1)} ELSE {disk[n]}
Recovered(d) == [d EXCEPT !.commit = Max(Min(@, Len(d.log)), d.base)]

Restarted(d, a) ==
    LET s == Started(d, a)
    IN [s EXCEPT !.promise = IF Leases /\ d.term > 0 /\ ~Planted("crashForgetsPromise") THEN clock + Timeout ELSE 0]

Crashes(n) ==
    /\ n \in Fragile
    /\ Cardinality({<<m, i>> \in Nodes \X (1..MaxCrashes) : i <= lives[m]}) < MaxCrashes
    /\ \E image \in Images(n) :
        LET d == Recovered(image) IN
        \E a \in (IF Members THEN {d.base, Max(d.base, node[n].applied)} ELSE {d.base}) :
            /\ disk' = [disk EXCEPT ![n] = d]
            /\ node' = [node EXCEPT ![n] = Restarted(d, a)]
    /\ queue' = [queue EXCEPT ![n] = <<>>]
    /\ msgs' = {m \in msgs : ~(m.from = n /\ m.ty \notin {"vote", "pre", "log"} /\ m.to = n)}
    /\ lives' = [lives EXCEPT ![n] = @ + 1]
    /\ UNCHANGED <<chosen, led, clock, stale>>

(***************************************************************************)
(* Membership (raft/membership.go). A change is in force on a node when    *)
(* that node applies it.                                                   *)
(***************************************************************************)
Applies(n, s) ==
    LET i == s.applied + 1
        r == [s EXCEPT !.applied = i, !.conf = IF IsChange(s.log[i]) THEN ConfOf(s.log[i]) ELSE @]
    IN CASE r.role = "leader" -> IF Promotable(n, r) THEN Release(n, AdvanceCommit(n, r)) ELSE r
         [] r.role \in {"pre", "candidate"} /\ ~Promotable(n, r) -> Enter(r, "follower", r.term, None)
         [] OTHER -> r

Apply(n) ==
    /\ Members
    /\ node[n].pend = 0
    /\ node[n].applied < Min(node[n].commit, node[n].stable)
    /\ Step(n, Applies(n, node[n])) /\ Quiet

\* The last entry that may be a change, and must be applied before the next is proposed.
PendingChange(s) == Greatest({TermStart(s) - 1} \cup {i \in TermStart(s)..Len(s.log) : IsChange(s.log[i])})
NextConfs(c) ==
    IF c.old # {} THEN {Conf({}, c.new)}
    ELSE {Conf({}, v) : v \in {v \in SUBSET Nodes \ {{}} :
              (Planted("changesTwoAtOnce") /\ v # c.new) \/ Cardinality((v \ c.new) \cup (c.new \ v)) = 1}}
         \cup {Conf(c.new, v) : v \in SUBSET Nodes \ {{}, c.new}}

Changes(n) ==
    LET s == node[n] IN
    /\ Members
    /\ s.role = "leader" /\ Promotable(n, s)
    /\ PendingChange(s) <= s.applied \/ Planted("changeBeforeApplied")
    /\ Cardinality({i \in 2..Len(s.log) : IsChange(s.log[i])}) < MaxChanges
    /\ \E c \in NextConfs(s.conf) : Step(n, AppendOwn(s, Change(s.term, c))) /\ Quiet

(***************************************************************************)
(* Compaction (raft/snapshot.go; the application makes the snapshot).      *)
(***************************************************************************)
Compact(n) ==
    /\ Compacts
    /\ node[n].pend = 0
    /\ LET s == node[n] IN
       \E i \in (s.base + 1)..Min(Len(disk[n].log), Min(s.stable, IF Members THEN s.applied ELSE s.commit)) :
       LET r == [s EXCEPT !.base = i, !.applied = Max(@, i), !.conf = ConfAt(s.log, Max(s.applied, i))]
       IN /\ disk' = [disk EXCEPT ![n].base = i]
          /\ node' = [node EXCEPT ![n] = r]
          /\ msgs' = msgs \cup Shown(n, r)
    /\ UNCHANGED <<queue, lives, chosen, led, clock, stale>>

(***************************************************************************)
(* Reads and time.                                                         *)
(***************************************************************************)
Asks(n) ==
    LET s == node[n]
        r == [pos |-> s.pos + 1, idx |-> s.commit, floor |-> Len(chosen), at |-> clock]
    IN /\ Reads /\ MayRead(s) /\ s.pos < MaxReads
       /\ Step(n, [s EXCEPT !.pos = r.pos, !.reads = @ \cup {r},
                            !.free = {Heartbeat(n, s, to, r.pos) : to \in Nodes \ {n}}])
       /\ Quiet

\* A leader hands over: the target may campaign, and all may vote for it, whatever they have promised.
Orders(n) ==
    /\ Leases /\ node[n].role = "leader"
    /\ \E to \in Campaigners \ {n} :
        /\ node[n].match[to] = Len(node[n].log)
        /\ Step(n, [node[n] EXCEPT !.ordered = TRUE,
                       !.free = {[ty |-> "order", term |-> node[n].term, from |-> n, to |-> to]}])
    /\ Quiet

Passes ==
    /\ Leases /\ clock < MaxTime
    /\ clock' = clock + 1
    /\ UNCHANGED <<node, disk, queue, msgs, lives, chosen, led, stale>>

(***************************************************************************)
(* The first state. Three are possible, and the later ones save a search   *)
(* the way there, which other models find:                                 *)
(*                                                                         *)
(*   founders that hold their first entry;                                 *)
(*   Led: a leader of term 2 whose first entry all founders hold durably   *)
(*     and know to be committed. With Leases, a round has just ended that  *)
(*     all but the Campaigners have heard.                                 *)
(*   Second: then Led has written one more entry, which no other node has, *)
(*     and Second was elected for term 3 by the rest; those that are no    *)
(*     members hold what the rest hold. With Reads, Led has asked a round  *)
(*     before, at time 0, and the rest have answered it; the answers are   *)
(*     on their way. With Late, so are the answers of its storage worker   *)
(*     about that entry.                                                   *)
(***************************************************************************)
Rest == Founders \ {Led, Second}
BirthLog(n) ==
    CASE n \notin Founders /\ Second = None -> <<>>
      [] n \in Founders /\ Led = None -> <<Birth>>
      [] Second # None /\ n = Led -> <<Birth, Command(2), Command(2)>>
      [] OTHER -> <<Birth, Command(2)>>
BirthDisk(n) ==
    [term |-> CASE n \notin Founders /\ Second = None -> 0 [] n \in Founders /\ Led = None -> 1
                [] Second # None /\ n # Led -> 3 [] OTHER -> 2,
     vote |-> CASE n \notin Founders \/ Led = None -> None [] Second # None /\ n # Led -> Second [] OTHER -> Led,
     commit |-> Min(2, Len(BirthLog(n))), log |-> BirthLog(n), base |-> Min(1, Len(BirthLog(n)))]
Leader(n, s) == [s EXCEPT !.role = "leader", !.lead = n, !.ack = s.term]
Asked == [pos |-> 1, idx |-> 2, floor |-> 2, at |-> 0]

FirstMemory(n) ==
    LET s == Started(BirthDisk(n), Min(2, Len(BirthLog(n))))
    IN CASE Led = None -> s
         [] n = Led /\ Second = None ->
                [Leader(n, s) EXCEPT !.match = [k \in Nodes |-> Len(BirthLog(k))], !.lease = IF Leases THEN Timeout ELSE 0]
         [] n = Led /\ Second # None ->
                [Leader(n, s) EXCEPT !.match = [k \in Nodes |-> IF k = n /\ ~Late THEN 3 ELSE Len(BirthLog(k))],
                                     !.stable = IF Late THEN 2 ELSE 3,
                                     !.pos = IF Reads THEN 1 ELSE 0, !.reads = IF Reads THEN {Asked} ELSE {}]
         [] n = Second -> AppendOwn([Leader(n, s) EXCEPT !.match[n] = 2], Command(3))
         [] OTHER -> [s EXCEPT !.lead = IF Second = None /\ n \in Founders THEN Led ELSE None,
                               !.promise = IF Leases /\ Second = None /\ n \in Founders \ Campaigners THEN Timeout ELSE 0]

FirstLog(n, t, log) == [ty |-> "log", term |-> t, from |-> n, log |-> log, commit |-> 2, base |-> 1]

Init ==
    /\ disk = [n \in Nodes |-> BirthDisk(n)]
    /\ node = [n \in Nodes |-> FirstMemory(n)]
    /\ queue = [n \in Nodes |-> <<>>]
    /\ msgs = (IF Led = None THEN {} ELSE {FirstLog(Led, 2, BirthLog(Led))})
              \cup (IF Second = None THEN {} ELSE {FirstLog(Second, 3, <<Birth, Command(2), Command(3)>>)})
              \cup (IF Second = None \/ ~Reads THEN {}
                    ELSE {[ty |-> "echo", term |-> 2, from |-> n, to |-> Led, pos |-> 1] : n \in Rest})
              \cup (IF Second = None \/ ~Late THEN {}
                    ELSE {Ack(Led, 2, Led, 3),
                          [ty |-> "stable", term |-> 0, from |-> Led, to |-> Led, idx |-> 3, ack |-> 2, snap |-> 0]})
    /\ lives = Zero
    /\ chosen = IF Led = None THEN <<[e |-> Birth, by |-> 1]>> ELSE <<[e |-> Birth, by |-> 1], [e |-> Command(2), by |-> 2]>>
    /\ led = (IF Led = None THEN {} ELSE {<<2, Led, 0>>}) \cup (IF Second = None THEN {} ELSE {<<3, Second, 0>>})
    /\ clock = IF Leases /\ Second # None THEN Timeout ELSE 0
    /\ stale = FALSE

Next ==
    \/ \E n \in Awake :
        \/ TimesOut(n) \/ StepsDown(n) \/ Proposes(n) \/ Hears(n) \/ HearsLog(n)
        \/ Ready(n) \/ Persist(n) \/ Crashes(n)
        \/ Apply(n) \/ Changes(n) \/ Compact(n)
        \/ Asks(n) \/ Orders(n)
    \/ Passes

Spec == Init /\ [][Next]_vars

(***************************************************************************)
(* Properties.                                                             *)
(***************************************************************************)

\* A term has one leader, in one life of it (thesis §3.4).
ElectionSafety == \A a, b \in led : a[1] = b[1] => a = b

\* A node votes once in a term, in all its lives. A request for votes is a vote for its sender.
VotesOf(n) == {<<m.term, m.to>> : m \in {m \in msgs : m.ty = "grant" /\ m.from = n}}
              \cup {<<m.term, n>> : m \in {m \in msgs : m.ty = "vote" /\ m.from = n}}
VotesOnce == \A n \in Nodes : \A a, b \in VotesOf(n) : a[1] = b[1] => a = b

\* What left for others is on the disk: votes, requests for them, and acknowledgements (§3.8, §10.2).
PromisesAreDurable ==
    \A m \in msgs :
        LET d == disk[m.from] IN
        /\ m.ty = "grant" => d.term > m.term \/ (d.term = m.term /\ d.vote = m.to)
        /\ m.ty = "vote" => d.term > m.term \/ (d.term = m.term /\ d.vote = m.from)
        /\ m.ty = "ack" => d.term > m.term \/ (d.term = m.term /\ Len(d.log) >= m.idx)

\* Two logs with an entry of the same index and term are equal up to it (§3.5).
LogMatching ==
    \A a, b \in Nodes :
        LET la == node[a].log
            lb == node[b].log
            same == {i \in 1..Min(Len(la), Len(lb)) : la[i].t = lb[i].t}
        IN a # b /\ same # {} => SubSeq(la, 1, Greatest(same)) = SubSeq(lb, 1, Greatest(same))

\* A leader has all that was committed in earlier terms (§3.6.3).
LeaderCompleteness ==
    \A n \in Nodes : node[n].role = "leader" =>
        \A i \in 1..Len(chosen) : chosen[i].by < node[n].term => Len(node[n].log) >= i /\ node[n].log[i] = chosen[i].e

\* What any node takes for committed was committed, and is the same everywhere (§3.6.3).
StateMachineSafety ==
    \A n \in Nodes :
        /\ node[n].commit <= Len(node[n].log)
        /\ node[n].commit <= Len(chosen)
        /\ \A i \in 1..node[n].commit : node[n].log[i] = chosen[i].e

\* What is committed is durable on a quorum, the disk of the leader being one among others (§10.2.1). The quorum
\* may be one of a configuration that is in the log of the leader that committed it.
CommittedIsDurable ==
    \A i \in 1..Len(chosen) :
        LET holders == {n \in Nodes : Len(disk[n].log) >= i /\ disk[n].log[i] = chosen[i].e}
            confs == {ConfOf(chosen[j].e) : j \in {j \in 1..i : IsChange(chosen[j].e)}}
                     \cup {ConfOf(node[n].log[j]) : <<n, j>> \in {<<n, j>> \in Nodes \X (1..MaxLog) :
                               j <= Len(node[n].log) /\ IsChange(node[n].log[j])}}
        IN \E c \in confs : IsQuorum(c, holders)

\* What a node knows to be durable is.
StableIsDurable == \A n \in Nodes :
    node[n].pend = 0 => node[n].stable <= Len(disk[n].log) /\ SubSeq(node[n].log, 1, node[n].stable) = SubSeq(disk[n].log, 1, node[n].stable)

\* Each change leads to a configuration whose quorums meet those of the one before (§4.1, §4.3).
Quorums(c) == {Q \in SUBSET Voters(c) : IsQuorum(c, Q)}
ConfsOf(log) == SelectSeq(log, IsChange)
QuorumsMeet ==
    \A n \in Nodes : LET cs == ConfsOf(node[n].log) IN
        \A i \in 2..Len(cs) : \A P \in Quorums(ConfOf(cs[i - 1])) : \A Q \in Quorums(ConfOf(cs[i])) : P \cap Q # {}

\* A disk that holds a change holds that all changes before it are committed (raft/membership.go).
ChangesWaitForCommit ==
    \A n \in Nodes : Cardinality({i \in (Max(disk[n].commit, disk[n].base) + 1)..Len(disk[n].log) : IsChange(disk[n].log[i])}) <= 1

\* A read sees what was committed when it was asked (§6.4), by a round or by a lease (§6.4.1).
ReadsAreFresh == ~stale
LeasesHold == \A n \in Nodes : MayRead(node[n]) /\ LeaseHolds(node[n]) => node[n].commit >= Len(chosen)

\* No pre-vote moves a node to another term or vote (§9.6).
PreVotesDisturbNone ==
    [][\A n \in Nodes : \A m \in msgs :
         m.ty = "pre" /\ m.from # n => LET s == Handle(n, node[n], m) IN s.term = node[n].term /\ s.vote = node[n].vote]_vars

=============================================================================
