// Package millrace is where the module starts. It will be the library's typed face; today it has nothing to
// call.
//
// Start at:
//
//   - [github.com/millrace/millrace/host]: a process that replicates commands to your state machine.
//   - [github.com/millrace/millrace/raft]: the deterministic core; you write the loop around it.
//   - [github.com/millrace/millrace/raft/etcdnode]: the core behind etcd-io/raft's Node, for ports.
//   - [github.com/millrace/millrace/wal]: the durable log, shared by many groups.
//   - [github.com/millrace/millrace/sim]: whole hosts in virtual time, with faults, from one seed.
//   - cmd/millrace, a module of its own: the bench, and the tools that inspect and repair a log.
//   - examples, a module of its own: programs to copy, each with a test.
package millrace
