------------------------------- MODULE Model -------------------------------
EXTENDS Properties, TLC
\* The nodes that nothing distinguishes in the first state.
First == {Led, Second}
Sets == {Founders, Campaigners, Awake, Fragile}
\* Nodes are alike if they are in the same of these sets.
Kind(n) == {S \in Sets : n \in S}
Groups == {{m \in Nodes \ First : Kind(m) = Kind(n)} : n \in Nodes \ First}
Alike == UNION {Permutations(S) : S \in Groups}

\* Some planted errors do harm only after a long way. A constraint (CONSTRAINT in a .cfg file) leads TLC along a
\* part of all ways: what it finds there is a behaviour like any other.
TermsAfter(t, chose) == \A n \in Nodes : node[n].term >= t => Len(chosen) >= chose

\* Thesis, figure 3.7: Led replicates its old entry in term 4, and then Second leads term 5.
OldTermWay ==
    /\ TermsAfter(5, 3)
    /\ led \subseteq {<<2, Led, 0>>, <<3, Second, 0>>, <<4, Led, 0>>, <<5, Second, 0>>}
    /\ Len(node[Led].log) >= 3 /\ node[Led].log[3].t = 2 /\ node[Led].term <= 4
    /\ \A n \in Rest : Len(node[n].log) <= 3 /\ (Len(node[n].log) = 3 => node[n].log[3].t = 2)
    /\ node[Second].log[3].t = 3
    /\ Len(chosen) < 3 => node[Second].role \in {"leader", "follower"}
    /\ \A m \in msgs : m.ty = "ack" => m.idx >= 3 /\ m.to = Led
    /\ \A n \in Nodes : \A m \in node[n].out : m.ty = "ack" => m.idx >= 3 /\ m.to = Led

\* Two simple changes, to all nodes and then to all but Led, are committed; then Led crashes.
TwoChangesWay ==
    /\ TermsAfter(3, 4)
    /\ Len(chosen) < 4 => node[Led].role = "leader" /\ lives[Led] = 0
    /\ \A n \in Nodes \ {Led} : lives[n] = 0
    /\ \A n \in Nodes : \A i \in 3..Min(4, Len(node[n].log)) :
           node[n].log[i].old = {} /\ node[n].log[i].new = IF i = 3 THEN Nodes ELSE Nodes \ {Led}

\* Led commits one more entry with one other node, which leads next, and reads.
NextLeaderWay ==
    /\ TermsAfter(3, 3)
    /\ Len(chosen) < 3 => node[Led].role = "leader"
    /\ node[Led].pos = 0 /\ Len(node[Led].log) <= 3
    /\ \A n \in Founders \ ({Led} \cup Campaigners) : Len(node[n].log) <= 2
=============================================================================
