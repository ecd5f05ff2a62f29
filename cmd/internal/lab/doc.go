// Package lab puts a replicated log under load and says what it cost.
//
// A *target* (target.go) is one replicated log: a Raft cluster under one of the three pipelines, or *bare*, a majority
// group commit without Raft that stands for the speed of light on this machine (bare.go, bare_log.go, bare_net.go).
// A *plan* is what the user asked for; it expands into *points*, one target at one load, and each point passes
// through the same phases (run.go):
//
//	start → warm-up → measure → drain → verify → close, directory removed
//
// Load comes in two models. Closed (load.go): so many clients, each with one write outstanding; the target's pace is
// the load's pace, which finds the peak. Open (openloop.go): writes arrive on a seeded Poisson schedule whatever the
// target does, and a latency counts from the moment the schedule intended; a stall is then paid for by every write
// that should have been sent during it ("coordinated omission" is what hides it). Measuring from the actual send
// was rejected for that reason.
//
// Numbers that were not checked are worth nothing. Each value carries its client, sequence and checksum (value.go); each
// node applies values to a Machine (machine.go) that chains a hash over everything and remembers, in one bit per
// write, what it has seen; clients keep a Ledger of what was acknowledged (ledger.go). When a point's clients have
// stopped, all machines must agree and hold each acknowledged write exactly once; otherwise the run ends in ErrMismatch and
// reports no number at all.
//
// CPU and allocations are those of the whole process: all nodes and the load generator together. Rows of one run
// compare fairly, since every target is driven by the same generator; absolute figures flatter nobody.
//
// Two more benches use the same load and the same checks. One (logstore.go, logtarget.go, logchild.go, logplan.go, logreport.go) puts
// a durable log alone under it, ours, a raw file or somebody else's, each in a process of its own; mechanism.go compares ways of writing
// with no log at all. The other (flush.go, flushreport.go) compares the durability modes of our log in whole clusters.
//
// Reading order: target.go, value.go, machine.go, ledger.go; load.go, openloop.go, histogram.go; run.go, matrix.go;
// limits.go, bare*.go; results.go, report.go, plot.go.
package lab
