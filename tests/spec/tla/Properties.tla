----------------------------- MODULE Properties -----------------------------
(***************************************************************************)
(* What holds in every state of Raft.tla, or in every step. The sections   *)
(* are those of the thesis.                                                *)
(***************************************************************************)
EXTENDS Raft

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
