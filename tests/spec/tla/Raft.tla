------------------------------- MODULE Raft -------------------------------
(***************************************************************************)
(* The steps of all nodes, their storage workers, the network and time,    *)
(* over the handlers of Core.tla.                                          *)
(***************************************************************************)
EXTENDS Core

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
=============================================================================
