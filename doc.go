// Package millrace is where the module starts, and will be its typed face; today there is nothing in it to call.
//
// Start at:
//
//   - [github.com/millrace/millrace/host]: a process that replicates commands to a state machine of yours.
//   - [github.com/millrace/millrace/raft]: the deterministic core, for those who write the loop around it themselves.
//   - [github.com/millrace/millrace/raft/etcdnode]: the core behind etcd-io/raft's Node, for those who port.
//   - [github.com/millrace/millrace/wal]: the durable log, shared by many groups.
//   - [github.com/millrace/millrace/sim]: whole hosts in virtual time, with faults, from one seed.
//   - cmd/millrace, a module of its own: the bench, and what an operator asks of a log.
package millrace
