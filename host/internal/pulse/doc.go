// Package pulse has one heartbeat for all groups of two hosts. It owns the lists that a host sends of the
// groups that lead there (Sender), and what it has heard of the lists of others (Receiver). It also owns
// how a following group relies on a list (Subscription), and the record between them. The clock of a host
// sends the records, turns put groups into the lists, and whatever hears a record takes it. Sender and
// Receiver have a lock each. In reading order: sender.go, list.go, receiver.go, subscription.go, codec.go.
//
// A leader that only has to say that it is alive (raft.RawNode.Quiet) leaves this to its host. One record
// for each other host and heartbeat interval says it for all such groups. The record is a list of groups
// with their terms and commit indexes, under a version. While the other host has the latest version, a
// pulse is that version alone, and costs neither host any work for a group.
//
//	leader's host (Sender)                      follower's host (Receiver)
//	Set(group)
//	Beat: version 7, the list            ──►    each group that follows in that term, and knows the commit
//	                                            index, subscribes to the list; the others are excluded
//	groups that are excluded beat again  ◄──    Beat: version 7, excluded groups
//	Beat: version 7                      ──►    the list was heard now; no turn
//	peers are active in these groups     ◄──    Beat: version 7, with groups that follow no more
//
// Each host beats once in a heartbeat interval, and its record carries both: what it says of its own groups,
// and its answer to the other host. Every record is a full statement, so it may replace one that still waits.
// A pulse commits nothing and renews no lease.
//
// A pulse vouches for a group, not only for a host. A group that stops, or whose shard hangs in a turn, is
// left out of the list; a follower that stops, or follows no more, is excluded.
package pulse
