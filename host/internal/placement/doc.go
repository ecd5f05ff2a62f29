// Package placement is where the leader of a group should be. It owns the rules (Preference), what hosts
// tell each other for them (Load, Moved), the choice of a host (Placer) and a group's part in it (Member).
//
// Any member can lead, but one may be nearer to the clients, or have the better machine. And a host that
// leads most of its groups works while the others wait. Two rules move a leadership that works, and nothing
// else does:
//
//	priorities  the leader hands over to a member that Preference ranks above it (by priority, then by zone)
//	balance     among members of the same rank, a host that leads more groups hands over to one that leads
//	            at least two fewer (host.Config.Balance)
//
// Both are hints. They never take part in an election: a group without a leader takes the first one that it
// can get. And the leader follows its own configuration: it has what must be known (who is level). So members
// need not agree, and a wrong opinion cannot stop a group. Members that disagree would hand the leadership to
// and fro. So the members of a group count such hand-overs together (Moves). After MaxPlacements of them in
// an hour the leader stays where it is.
//
// The clock of a host calls the Placer, which chooses for which groups something should change, and leaves
// them a Wish. The turn of the group looks whether a member is level, and hands over (Member.Advance).
// Decision 0024 has the reasons. Placer and Moves have a lock each; the first is held while a survey asks
// groups (Group). In reading order: preference.go, moves.go, record.go, member.go, placer.go, wish.go.
package placement
