// Command etcdraft is the child of `millrace bench peers` for go.etcd.io/raft with etcd's write-ahead log
// (go.etcd.io/etcd/server/v3/storage/wal), under the pipeline that its argument names:
//
//	basic      save, send, apply, answer, in line
//	parallel   send appends, then save, so that all disks work at once; answer at commit, before applying
//	async      asynchronous storage writes: a goroutine that appends and one that applies, each taking all that
//	           waits; answer at commit
//
// These are the pipelines of the rafttoy harness, whose authors wrote the library. Nodes talk over loopback
// TCP: a length and a protobuf message, all that waits in one write (link.go).
package main

import (
	"fmt"
	"os"

	"github.com/millrace/millrace/cmd/lab/peer"
)

func main() {
	if len(os.Args) != 2 || pipelines[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: etcdraft basic|parallel|async, with a request on the standard input")
		os.Exit(2)
	}
	open := opener(os.Args[1])
	if err := peer.Serve(os.Stdin, os.Stdout, "etcd-raft-"+os.Args[1], open); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
