// Package reads lets clients read the state machine of a group, on any member. Queue has the reads that
// wait, and one lock for them. Round belongs to the group's turn, and asks the questions. Lease lets clients
// of the leader read without asking.
//
// Package host calls it: clients begin reads, a turn calls Round, lanes say what is applied, and receivers
// put the records of other members. What a group is and does is Wiring.
//
// In reading order: queue.go, read.go, heap.go, round.go, record.go, lease.go, between.go.
package reads
