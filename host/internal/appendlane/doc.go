// Package appendlane writes the logs of all groups of a host. A round of the lane is one write and one sync
// for what groups have queued, and then the answers. While a disk is full, groups are parked here. A snapshot
// takes the place of entries here.
//
// A turn puts the messages of its core into the Queue of its group, and then tells the Lane. The lane answers
// the group as its Client, and other hosts directly. It has a lock for the ring of queues, and each queue has
// a lock for its messages. Neither is held while the log works or a client is called.
//
// Reading order: lane.go, queue.go, write.go, hardstate.go, discard.go, install.go, compact.go.
package appendlane
