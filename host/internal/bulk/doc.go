// Package bulk moves content between hosts, block by block: a snapshot to a member that is behind, an
// object to a member that lacks it. What is special to either is behind SentContent and ReceivedContent.
//
// The core's wish, the records of other hosts, the beats of the clock and pieces of work on the snapshot
// lanes call Transfers. Its one lock guards all transfers of a host. It is not held while a disk works;
// records and events leave, and functions are called, when it is released.
//
// Reading order: transfers.go, record.go, content.go, sender.go, queue.go, receiver.go, sources.go,
// window.go, rate.go.
package bulk
