------------------------------- MODULE Model -------------------------------
EXTENDS Raft, TLC
\* The nodes that nothing distinguishes in the first state.
First == {Led, Second}
Groups == {(Founders \cap Campaigners) \ First, (Founders \ Campaigners) \ First,
           (Nodes \ Founders) \cap Campaigners, (Nodes \ Founders) \ Campaigners} \ {{}}
Alike == UNION {Permutations(S) : S \in Groups}
=============================================================================
