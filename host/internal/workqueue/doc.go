// Package workqueue passes work of one group to a lane: its turn puts messages of the core, and the lane
// takes what has accumulated. Package appendlane has one for each group, and the apply lanes have another.
//
// A queue has one lock, under which it calls nothing. What was taken belongs to the lane.
//
// Reading order: queue.go, precedence.go.
package workqueue
