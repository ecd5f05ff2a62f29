------------------------------- MODULE Trace -------------------------------
(***************************************************************************)
(* Traces of the core: what nodes did in a run of sim/core, as this        *)
(* package's Go code writes it into the module TraceData. Each event must  *)
(* be a step of Raft.tla that leads to the state which the core reported.  *)
(*                                                                         *)
(* A report does not say everything (whether a pre-candidate has begun     *)
(* anew, for example), so several states may agree with it. TLC follows    *)
(* all of them, and a trace is accepted if one of them reaches its end.    *)
(*                                                                         *)
(* Here a message is an entry of the trace's table, and travels as its     *)
(* number. Heartbeats carry no positions of reads, and time is not in a    *)
(* trace: a node may ignore a request for votes because it hears a leader, *)
(* where the run has set that up.                                          *)
(***************************************************************************)
EXTENDS Properties, TLC, TraceData

CONSTANTS
    StopAt,     \* an event that is to be shown, or 0
    Slowly      \* the number of the only trace to follow, saying how far it gets; or 0

VARIABLES
    tr,         \* the number of the trace
    at,         \* the number of the next event
    flight      \* the numbers of the messages that have left and will be heard

tvars == <<node, disk, queue, msgs, lives, chosen, led, clock, stale, tr, at, flight>>

T == Traces[tr]
E == T.events[at]
Msg(i) == T.msgs[i]

\* Entry i of term t. What a change leads to is known from the run; where no node has applied it, it matters only
\* that it is one.
Entry(i, t) == IF <<i, t>> \in DOMAIN T.changes THEN Change(t, T.changes[<<i, t>>]) ELSE Command(t)
Entries(prev, terms) == [k \in 1..Len(terms) |-> Entry(prev + k, terms[k])]

(***************************************************************************)
(* What the core reported: role, term, vote, leader, commit, applied, last *)
(* entry, what is durable.                                                 *)
(***************************************************************************)
Agrees(s, r) ==
    /\ s.role = r[1] /\ s.term = r[2] /\ s.vote = r[3] /\ s.lead = r[4]
    /\ s.commit = r[5] /\ s.applied = r[6]
    /\ Len(s.log) = r[7] /\ LastTerm(s) = r[8]
    /\ s.pend = 0 => s.stable = r[9]

\* A leader may append entries of its own: a command, a change that may be proposed, or the end of a joint
\* configuration.
RECURSIVE Grows(_, _)
Grows(s, last) ==
    IF Len(s.log) >= last THEN s
    ELSE LET e == Entry(Len(s.log) + 1, s.term)
         IN IF IsChange(e) /\ PendingChange(s) > s.applied THEN s ELSE Grows(AppendOwn(s, e), last)
GrowsTo(n, s, last) == IF s.role = "leader" /\ Promotable(n, s) THEN Grows(s, last) ELSE s

\* What a node may do by itself, or because its application asks.
Alone(n, s) ==
    {s}
    \cup (IF MayCampaign(n, s) THEN {IF T.preVote THEN StartPreVote(n, s) ELSE StartElection(n, s, FALSE)} ELSE {})
    \cup (IF s.role = "leader" THEN {Enter(s, "follower", s.term, None)} ELSE {})

(***************************************************************************)
(* What a node may make of a message. An answer of a later term makes a    *)
(* follower first, except a pre-vote that was granted.                     *)
(***************************************************************************)
Later(s, m) ==
    IF m.ty \notin {"vote", "pre", "app", "snap", "beat", "pregrant", "stable", "applied"} /\ m.term > s.term
    THEN Enter(s, "follower", m.term, None) ELSE s

\* A candidate that too many refuse gives up. (A refusal that tells nothing is a denial.)
Loses(s) == IF s.role \in {"pre", "candidate"} THEN Enter(s, "follower", s.term, None) ELSE s

CommittedPrefix(i) == [k \in 1..i |-> chosen[k].e]

Makes(n, s0, m) ==
    LET s == Later(s0, m) IN
    CASE m.ty \in {"vote", "pre"} ->
            LET h == Handle(n, s, m) IN {IF T.ignores /\ ~m.ord /\ ~Agrees(h, E.s) THEN s ELSE h}
      [] m.ty = "app" ->
            {OnAppend(n, s, [term |-> m.term, from |-> m.from, prev |-> m.prev, pterm |-> m.pterm,
                             ents |-> Entries(m.prev, m.ents), commit |-> m.commit])}
      [] m.ty = "snap" -> {OnSnapshot(n, s, m.term, m.from, CommittedPrefix(m.idx))}
      [] m.ty = "refusal" -> UNION {{r, Loses(r)} : r \in {OnRefusal(s, m)} \cup (IF m.term < s.term THEN {s} ELSE {})}
      [] m.ty = "denial" -> {s, Loses(s)}
      [] m.ty = "ack" -> {OnAck(n, s, m)}
      [] m.ty = "applied" -> {[s EXCEPT !.applied = Max(@, m.idx)]}
      [] m.ty = "none" -> {s}
      [] OTHER -> {Handle(n, s, m)}

MayGrow(m) == m.ty \in {"none", "applied"}

(***************************************************************************)
(* What leaves.                                                            *)
(***************************************************************************)

\* A leader that missed some time may have sent heartbeats before it steps down, in one step.
LedJustNow(n, s, m) == s.role # "leader" /\ m.term <= s.term /\ <<m.term, n, lives[n]>> \in led

\* Whether node n may say m at once.
MaySay(n, s, m) ==
    CASE m.ty = "app" ->
            /\ (s.role = "leader" /\ m.term = s.term) \/ LedJustNow(n, s, m)
            /\ m.prev >= s.base /\ Has(s, m.prev, m.pterm)
            /\ m.prev + Len(m.ents) <= Len(s.log)
            /\ \A k \in 1..Len(m.ents) : s.log[m.prev + k].t = m.ents[k]
            /\ m.commit <= s.commit
      [] m.ty = "beat" ->
            IF s.role = "leader" THEN m.term = s.term /\ m.commit <= Min(s.match[m.to], s.commit)
            ELSE LedJustNow(n, s, m) /\ m.commit <= s.commit
      [] m.ty = "snap" -> s.role = "leader" /\ m.term = s.term /\ m.idx <= s.applied /\ s.log[m.idx].t = m.t
      [] m.ty = "order" -> s.role = "leader" /\ m.term = s.term /\ s.match[m.to] = Len(s.log)
      [] m.ty = "pre" -> \/ m = Request("pre", n, s, s.term + 1, FALSE) /\ s.role = "pre"
      [] m.ty = "none" -> TRUE
      [] OTHER -> FALSE

\* Whether m may wait for the write w.
MayWait(n, s, w, m) ==
    \/ m \in w.resp
    \/ m.ty \in {"none", "denial"}
    \/ m.ty = "ack" /\ m.from = n /\ m.to = n /\ m.term <= s.term /\ m.idx <= Len(s.log)
    \/ m.ty = "ack" /\ m.idx = 0

(***************************************************************************)
(* The events.                                                             *)
(***************************************************************************)
Follows(s) ==
    /\ Agrees(s, E.s)
    /\ Moves(E.n, s)
    /\ UNCHANGED <<disk, queue, lives>>

Keep(ids) == {i \in ids : T.heard[i] > at}

Starts ==
    /\ E.k = "start"
    /\ LET s == Started(disk[E.n], E.a) IN Agrees(s, E.s) /\ Moves(E.n, s)
    /\ UNCHANGED <<disk, queue, lives, flight>>

Steps ==
    /\ E.k = "step"
    /\ \E s \in Alone(E.n, node[E.n]) : Follows(GrowsTo(E.n, s, E.s[7]))
    /\ UNCHANGED flight

Heard ==
    /\ E.k = "hear"
    /\ E.m \in flight
    /\ LET m == Msg(E.m) IN
        /\ IF m.ty \in {"vote", "pre"} THEN TRUE ELSE m.to = E.n
        /\ \E s \in Makes(E.n, node[E.n], m) : Follows(IF MayGrow(m) THEN GrowsTo(E.n, s, E.s[7]) ELSE s)
    /\ flight' = Keep(flight)

TakesReady ==
    /\ E.k = "ready"
    /\ LET s == node[E.n]
           w == Write(E.n, s)
           hard == HandedHard(E.n)
           h == IF E.hard = <<>> THEN hard ELSE E.hard
       IN
        /\ \A i \in E.now : MaySay(E.n, s, Msg(i))
        /\ IF ~E.write
           THEN /\ w.ents = <<>> /\ w.snap = 0  \* an acknowledgement that another one covers may be left out
                /\ node' = [node EXCEPT ![E.n].out = {}]
                /\ UNCHANGED queue
           ELSE /\ E.hard = <<>> \/ E.hard = <<s.term, s.vote, s.commit>>
                /\ Len(w.ents) = E.ents /\ w.snap = E.snap
                /\ E.ents = 0 \/ w.first = E.first
                /\ \A i \in E.wait : MayWait(E.n, s, w, Msg(i))
                /\ queue' = [queue EXCEPT ![E.n] =
                       Append(@, [w EXCEPT !.term = h[1], !.vote = h[2], !.commit = h[3], !.resp = E.wait])]
                /\ node' = [node EXCEPT ![E.n] = HandedOut(s)]
        /\ flight' = Keep(flight \cup E.now \cup E.apply)
    /\ UNCHANGED <<disk, lives, chosen, led>>

RECURSIVE DoesAll(_, _)
DoesAll(d, ws) == IF ws = <<>> THEN d ELSE DoesAll(Does(d, Head(ws), PartsOf(Head(ws))), Tail(ws))

Syncs ==
    /\ E.k = "sync"
    /\ E.count <= Len(queue[E.n])
    /\ LET ws == SubSeq(queue[E.n], 1, E.count) IN
        /\ disk' = [disk EXCEPT ![E.n] = DoesAll(@, ws)]
        /\ flight' = Keep(flight \cup UNION {ws[i].resp : i \in 1..Len(ws)})
    /\ queue' = [queue EXCEPT ![E.n] = SubSeq(@, E.count + 1, Len(@))]
    /\ UNCHANGED <<node, lives, chosen, led>>

\* A change is in force when it is applied; the application says later that it has applied it.
Reconfigures ==
    /\ E.k = "conf"
    /\ LET s == node[E.n]
           r == [s EXCEPT !.conf = E.c]
       IN /\ E.i <= s.commit /\ IsChange(s.log[E.i]) /\ ConfOf(s.log[E.i]) = E.c
          /\ \E t \in IF s.pend # 0 THEN {s}
                      ELSE IF s.role = "leader"
                      THEN {IF Promotable(E.n, r) THEN AdvanceCommit(E.n, r) ELSE r, Enter(r, "follower", r.term, None)}
                      ELSE IF s.role # "follower" /\ ~Promotable(E.n, r) THEN {Enter(r, "follower", r.term, None)} ELSE {r}
                : Follows(t)
    /\ UNCHANGED flight

Shortens ==
    /\ E.k = "compact"
    /\ E.i <= node[E.n].commit /\ E.i <= Len(disk[E.n].log)
    /\ disk' = [disk EXCEPT ![E.n].base = E.i]
    /\ node' = [node EXCEPT ![E.n].base = Max(@, E.i)]
    /\ UNCHANGED <<queue, lives, chosen, led, flight>>

\* A prefix of the writes under way is durable, of which the last may be torn.
Left(n) ==
    LET q == queue[n]
        whole(k) == DoesAll(disk[n], SubSeq(q, 1, k))
    IN UNION {{Does(whole(k), q[k + 1], p) : p \in 0..(PartsOf(q[k + 1]) - 1)} : k \in 0..(Len(q) - 1)} \cup {whole(Len(q))}

Falls ==
    /\ E.k = "crash"
    /\ \E image \in Left(E.n) :
        LET d == [image EXCEPT !.commit = Min(@, Len(image.log))] IN
        /\ <<d.term, d.vote, d.commit, d.base, Len(d.log), IF d.log = <<>> THEN 0 ELSE d.log[Len(d.log)].t>> = E.d
        /\ disk' = [disk EXCEPT ![E.n] = d]
        /\ node' = [node EXCEPT ![E.n] = Started(d, d.base)]
    /\ queue' = [queue EXCEPT ![E.n] = <<>>]
    /\ lives' = [lives EXCEPT ![E.n] = @ + 1]
    /\ flight' = Keep(flight)
    /\ UNCHANGED <<chosen, led>>

TraceNext ==
    \/ /\ at <= Len(T.events)
       /\ at' = at + 1
       /\ Starts \/ Steps \/ Heard \/ TakesReady \/ Syncs \/ Reconfigures \/ Shortens \/ Falls
       /\ IF Slowly > 0 THEN PrintT(<<"passes", at>>) ELSE TRUE
       /\ UNCHANGED <<tr, msgs, clock, stale>>
    \/ /\ at = Len(T.events) + 1
       /\ at' = at + 1
       /\ PrintT(<<"accepted", tr>>)
       /\ UNCHANGED <<node, disk, queue, msgs, lives, chosen, led, clock, stale, tr, flight>>

TraceInit ==
    /\ tr \in IF Slowly > 0 THEN {Slowly} ELSE 1..Len(Traces)
    /\ at = 1
    /\ flight = {}
    /\ LET birth == Change(1, Conf({}, Traces[tr].founders)) IN
        /\ disk = [n \in Nodes |->
               IF n \in Traces[tr].founders THEN [term |-> 1, vote |-> None, commit |-> 1, log |-> <<birth>>, base |-> 1]
               ELSE [term |-> 0, vote |-> None, commit |-> 0, log |-> <<>>, base |-> 0]]
        /\ chosen = <<[e |-> birth, by |-> 1]>>
    /\ node = [n \in Nodes |-> Started(disk[n], Len(disk[n].log))]
    /\ queue = [n \in Nodes |-> <<>>]
    /\ msgs = {} /\ lives = Zero /\ led = {} /\ clock = 0 /\ stale = FALSE

\* Violated on purpose, to see the state before an event.
NotThere == at # StopAt

TraceSpec == TraceInit /\ [][TraceNext]_tvars
=============================================================================
