// Package service measures services that speak etcd's API, version 3, from outside. Each is a few processes,
// under the same flags, the same client and the same loads. It knows nothing of what is inside them.
//
//	process.go   a member: a process, its processor time and its memory
//	cluster.go   members that form a cluster
//	load.go      one load: puts, gets, lists, watches, renewals
//	run.go       the plan: systems in turn, medians of rounds
//	table.go     the report
package service
