// Package membership is the algebra of a group's members as its hosts see it. It has who is a member, with
// what directory, and which entry of the log changes that and how. It also has the steps that lead from one
// set of members to another. It computes and decides; package host proposes, applies and carries out.
//
// The core (package raft) knows members by number. A number is not enough to trust a member: a host that
// comes back with another directory has forgotten what it has promised under its number. So a Roster binds
// each member to the incarnation of its directory. Each change of the core's configuration carries, in its
// context, a Change that says what happens to the roster. Both follow from the log alone, so all members
// agree.
//
//	Plan        what an operator wants, in stages; one entry of the log
//	Change      one stage; the context of one entry ConfChangeV2, which the core understands as well
//	Roster      the result: immutable, and a new one after each change (Roster.Next)
//
// # Why a directory is never exchanged under a voter
//
// A change is in force on a member when the member applies it (raft/membership.go). So two members may
// follow rosters that are one change apart. If one change could bind a voter to another directory, its old
// and its new directory could both vote in one term, each counted by another candidate. So a voter is
// replaced in steps. It becomes a learner, which counts for nothing, and is removed. Then its new directory
// is added as a learner, catches up, and is promoted. Each of these steps has a quorum in common with the
// one before, and none of them has both directories among the voters.
//
// Removal and addition are two steps. If a change both removes and adds a member, the core keeps what it
// knows of the member: how much of the log it holds. The new directory holds nothing.
package membership
