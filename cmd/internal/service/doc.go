// Package service measures services that speak etcd's API, version 3, from outside. Each is a few processes,
// under the same flags, the same client and the same loads. It knows nothing of what is inside them.
//
// A process is a member (process.go), and some of them a cluster. A load is of one kind (load.go). A run
// takes the systems in turn, and reports medians of rounds (run.go, table.go).
package service
