// Package clients runs programs that were written for etcd, in five languages, on etcd and on the service,
// and compares what they print. The programs are in directories beside this file. Each prints one line for
// each thing that it has seen, without what differs by nature: ids, revisions of the raft log, times.
//
//	go test ./tests/clients                   etcdctl and curl, and Python if python3 is here
//	go test ./tests/clients -clients all      all; it says what is missing for those that cannot run
package clients
