// Package lab holds what the benches of Millrace share. Errors name a field of a plan (field.go). A working
// directory has a guard of its disk (workdir.go). The machine is described (environment.go). Files are
// written as fast as the disk allows (rawfile.go). Programs measure one point each (child.go). The benches
// themselves are in the packages below it, and imports among them point down:
//
//	recipe                   the experiments of the sources and ours, their figures and their demands
//	remote                   members that are processes of their own, and the load on them from elsewhere
//	experiment               any cluster under any load, through the phases of a point, into an archive; and
//	                         the machine on which that is: what it says of itself, and what it can do
//	rig                      clusters of named components, and a network between them
//	bench   logs             one experiment each: a plan, its run, its table and its plots
//	peers                    one more: other libraries' replicated logs beside ours
//	                         logs/child   the process that measures one point
//	compare                  two runs side by side
//	report                   rows, tables, progress, files of results, plots; report/page shows an archive
//	archive                  the directory that one run leaves behind: what reports and comparisons read
//	load                     a target, clients that put it under load, and the check of what it acknowledged
//	labtest                  a kit for tests: targets with faults, archives, goldens
//	lab
//
// bench compares pipelines in whole clusters; logs measures a log alone, without Raft; peers puts the same
// load on other libraries.
//
// A *target* is one replicated log. It is a Raft cluster under one of the three pipelines, or *bare*, a
// majority group commit without Raft. bare stands for the speed of light on this machine. With checksums
// and state machines, it stands for the least that a correct replication costs. A *plan* is what the user
// asked for. It expands into *points*, one target at one load, and each point passes through the same
// phases (load/trial.go):
//
//	start → warm-up → measure → drain → verify → close, directory removed
//
// Load comes in two models. Closed (load/load.go): each client has one write outstanding. The target's pace
// is the load's pace, which finds the peak. Open (load/openloop.go): writes arrive on a seeded Poisson
// schedule, whatever the target does, and a latency counts from the moment that the schedule intended. A
// stall is then charged to every write that should have been sent during it. Rejected: to measure from the
// actual send, which hides the stall ("coordinated omission").
//
// Figures that were not checked are worth nothing. Each value carries its client, sequence and checksum
// (load/value.go). Each host applies values to a Machine (load/machine.go) that chains a hash over all of
// them and remembers, in one bit for each write, what it has seen. Clients record in a Ledger
// (load/ledger.go) what was acknowledged. After the clients of a point have stopped, all machines must agree
// and hold each acknowledged write exactly once. Otherwise the run ends in ErrMismatch and reports no figure.
//
// CPU and allocations are those of the whole process: all hosts and the load generator together. Rows of one
// run compare fairly, because one generator drives every target. Absolute figures include the generator's
// share.
//
// No package here knows the command line: a refusal names a field of the plan (FieldError), and cmd/millrace
// translates it into a flag.
//
// Reading order: load/target.go, value.go, machine.go, ledger.go, load.go, openloop.go, histogram.go,
// trial.go; bench/plan.go, run.go, cluster.go, limits.go, bare*.go; report/result.go; bench/table.go.
package lab

import "errors"

// ErrMismatch is the error of a target that does not hold what it acknowledged. It is wrapped with what is
// wrong.
var ErrMismatch = errors.New("verification failed")
