------------------------------ MODULE Founding ------------------------------
(***************************************************************************)
(* How a group is founded (host/founding.go, decision 0013), and why a     *)
(* host whose directory was wiped does not count for what it has promised. *)
(*                                                                         *)
(* A host has a directory with an incarnation: what it has promised, and   *)
(* the incarnations of the hosts that it has met. A wipe makes another     *)
(* directory. Two hosts meet if neither has recorded another incarnation   *)
(* of the other. Until the entry found is in its log, a member takes part  *)
(* in elections only when it has met every other one in this life. found   *)
(* binds incarnations; founded follows when found is durable on all; a     *)
(* command follows behind founded.                                         *)
(*                                                                         *)
(* Disks are in time here; Raft.tla is about disks that are behind.        *)
(***************************************************************************)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS Hosts, None, MaxTerm, MaxWipes, MaxRestarts, Plant

VARIABLES
    inc,        \* of each host: the incarnation of its directory
    known,      \* in it: the incarnation of each other host that was met, or None
    term, vote, log,
    met,        \* whom a host has met in this life
    leads,      \* the term that a host leads in this life, or 0
    match,      \* of a leader: how much of its log each host has
    votes,      \* messages: [t, from, inc, to]
    wipes, restarts,
    led, acked  \* history: <<term, host, incarnation>> of leaders; entries that were committed

vars == <<inc, known, term, vote, log, met, leads, match, votes, wipes, restarts, led, acked>>

Others(h) == Hosts \ {h}
Last(l) == IF l = <<>> THEN 0 ELSE l[Len(l)].t
IsMajority(S) == Cardinality(S) * 2 > Cardinality(Hosts)
UpToDate(a, b) == Last(a) > Last(b) \/ (Last(a) = Last(b) /\ Len(a) >= Len(b))
Holds(l, what) == \E i \in 1..Len(l) : l[i].e = what

Found(t, bound) == [t |-> t, e |-> "found", bound |-> bound]
Other(t, what) == [t |-> t, e |-> what, bound |-> [h \in Hosts |-> 0]]
\* The incarnation to which the log of h binds g; 0: it binds it to none.
Bound(h, g) ==
    LET at == {i \in 1..Len(log[h]) : log[h][i].e = "found"}
    IN IF at = {} THEN 0 ELSE log[h][CHOOSE i \in at : \A j \in at : j <= i].bound[g]

\* Whether h hears g, whose incarnation is i.
Hears(h, g, i) == Plant = "wipedCounts" \/ (known[h][g] = i /\ Bound(h, g) \in {0, i})
Talk(h, g) == Hears(h, g, inc[g]) /\ Hears(g, h, inc[h])
TakesPart(h) == Holds(log[h], "found") \/ met[h] = Others(h) \/ Plant = "voteBeforeMeeting"

Meet(h, g) ==
    /\ h # g
    /\ known[h][g] \in {None, inc[g]} \/ Plant = "wipedCounts"
    /\ known[g][h] \in {None, inc[h]} \/ Plant = "wipedCounts"
    /\ (Bound(h, g) \in {0, inc[g]} /\ Bound(g, h) \in {0, inc[h]}) \/ Plant = "wipedCounts"
    /\ g \notin met[h] \/ h \notin met[g]
    /\ known' = [known EXCEPT ![h][g] = inc[g], ![g][h] = inc[h]]
    /\ met' = [met EXCEPT ![h] = @ \cup {g}, ![g] = @ \cup {h}]
    /\ UNCHANGED <<inc, term, vote, log, leads, match, votes, wipes, restarts, led, acked>>

Campaign(h) ==
    /\ TakesPart(h) /\ leads[h] = 0 /\ term[h] < MaxTerm
    /\ term' = [term EXCEPT ![h] = @ + 1]
    /\ vote' = [vote EXCEPT ![h] = h]
    /\ votes' = votes \cup {[t |-> term[h] + 1, from |-> h, inc |-> inc[h], to |-> h]}
    /\ UNCHANGED <<inc, known, log, met, leads, match, wipes, restarts, led, acked>>

Votes(h, c) ==
    /\ h # c /\ TakesPart(h) /\ Talk(h, c) /\ vote[c] = c /\ leads[c] = 0
    /\ term[h] < term[c] \/ (term[h] = term[c] /\ vote[h] = None)
    /\ UpToDate(log[c], log[h])
    /\ term' = [term EXCEPT ![h] = term[c]]
    /\ vote' = [vote EXCEPT ![h] = c]
    /\ leads' = [leads EXCEPT ![h] = 0]
    /\ votes' = votes \cup {[t |-> term[c], from |-> h, inc |-> inc[h], to |-> c]}
    /\ UNCHANGED <<inc, known, log, met, match, wipes, restarts, led, acked>>

Wins(c) ==
    /\ leads[c] = 0 /\ vote[c] = c /\ TakesPart(c)
    /\ <<term[c], c, inc[c]>> \notin led
    /\ IsMajority({m.from : m \in {m \in votes : m.t = term[c] /\ m.to = c /\ (m.from = c \/ Hears(c, m.from, m.inc))}})
    /\ leads' = [leads EXCEPT ![c] = term[c]]
    /\ led' = led \cup {<<term[c], c, inc[c]>>}
    /\ match' = [match EXCEPT ![c] = [h \in Hosts |-> IF h = c THEN Len(log[c]) ELSE 0]]
    /\ UNCHANGED <<inc, known, term, vote, log, met, votes, wipes, restarts, acked>>

\* What a leader appends next: found, then founded, then one command of its term.
Follows(h) ==
    LET l == log[h]
        at == CHOOSE i \in 1..Len(l) : l[i].e = "found"
        onAll == \A g \in Hosts : match[h][g] >= at
    IN CASE ~Holds(l, "found") -> <<Found(term[h], [g \in Hosts |-> IF g = h THEN inc[h] ELSE known[h][g]])>>
         [] Holds(l, "found") /\ ~Holds(l, "founded") /\ onAll -> <<Other(term[h], "founded")>>
         [] Holds(l, IF Plant = "commandBeforeFounded" THEN "found" ELSE "founded") /\ Last(l) < term[h] -> <<Other(term[h], "command")>>
         [] OTHER -> <<>>
Appends(h) ==
    /\ leads[h] = term[h] /\ leads[h] > 0
    /\ \A g \in Others(h) : known[h][g] # None \/ Holds(log[h], "found")
    /\ Follows(h) # <<>>
    /\ log' = [log EXCEPT ![h] = @ \o Follows(h)]
    /\ match' = [match EXCEPT ![h][h] = Len(log[h]) + 1]
    /\ UNCHANGED <<inc, known, term, vote, met, leads, votes, wipes, restarts, led, acked>>

Replicates(l, h) ==
    /\ l # h /\ leads[l] = term[l] /\ leads[l] > 0 /\ term[h] <= term[l] /\ Talk(l, h)
    /\ log[h] # log[l] \/ match[l][h] # Len(log[l])
    /\ term' = [term EXCEPT ![h] = term[l]]
    /\ vote' = [vote EXCEPT ![h] = IF term[h] = term[l] THEN @ ELSE None]
    /\ leads' = [leads EXCEPT ![h] = 0]
    /\ log' = [log EXCEPT ![h] = log[l]]
    /\ match' = [match EXCEPT ![l][h] = Len(log[l])]
    /\ LET able == {i \in 1..Len(log[l]) : log[l][i].t = term[l] /\ IsMajority({g \in Hosts : match'[l][g] >= i})}
       IN acked' = acked \cup {[i |-> i, e |-> log[l][i], by |-> term[l]] : i \in {i \in 1..Len(log[l]) : \E j \in able : j >= i}}
    /\ UNCHANGED <<inc, known, met, votes, wipes, restarts, led>>

Fresh(h) == /\ met' = [met EXCEPT ![h] = {}]
            /\ leads' = [leads EXCEPT ![h] = 0]

Restarts(h) ==
    /\ restarts < MaxRestarts
    /\ restarts' = restarts + 1
    /\ Fresh(h)
    /\ UNCHANGED <<inc, known, term, vote, log, match, votes, wipes, led, acked>>

Wipe(h) ==
    /\ wipes < MaxWipes
    /\ wipes' = wipes + 1
    /\ inc' = [inc EXCEPT ![h] = @ + 1]
    /\ known' = [known EXCEPT ![h] = [g \in Hosts |-> None]]
    /\ term' = [term EXCEPT ![h] = 0] /\ vote' = [vote EXCEPT ![h] = None] /\ log' = [log EXCEPT ![h] = <<>>]
    /\ Fresh(h)
    /\ UNCHANGED <<match, votes, restarts, led, acked>>

Init ==
    /\ inc = [h \in Hosts |-> 1] /\ known = [h \in Hosts |-> [g \in Hosts |-> None]]
    /\ term = [h \in Hosts |-> 0] /\ vote = [h \in Hosts |-> None] /\ log = [h \in Hosts |-> <<>>]
    /\ met = [h \in Hosts |-> {}] /\ leads = [h \in Hosts |-> 0] /\ match = [h \in Hosts |-> [g \in Hosts |-> 0]]
    /\ votes = {} /\ wipes = 0 /\ restarts = 0 /\ led = {} /\ acked = {}

Next ==
    \/ \E h, g \in Hosts : Meet(h, g) \/ Votes(h, g) \/ Replicates(h, g)
    \/ \E h \in Hosts : Campaign(h) \/ Wins(h) \/ Appends(h) \/ Restarts(h) \/ Wipe(h)

Spec == Init /\ [][Next]_vars
Alike == Permutations(Hosts)

ElectionSafety == \A a, b \in led : a[1] = b[1] => a = b
\* What was committed is in the log of every later leader.
LeaderCompleteness ==
    \A h \in Hosts : leads[h] > 0 => \A a \in acked : a.by < leads[h] => Len(log[h]) >= a.i /\ log[h][a.i] = a.e
\* A command is committed only in a group that is founded on all its members.
CommandsFollowFounded ==
    \A a \in acked : a.e.e = "command" => \E b \in acked : b.e.e = "founded" /\ b.i < a.i
=============================================================================
