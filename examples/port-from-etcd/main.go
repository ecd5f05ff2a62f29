// Command port-from-etcd is a small key-value store of three members in one process, written as a program
// over etcd-io/raft is: a Node, its channel of Readys, Advance. A port from there changes the import paths,
//
//	go.etcd.io/raft/v3         →  github.com/millrace/millrace/raft
//	go.etcd.io/raft/v3 (Node)  →  github.com/millrace/millrace/raft/etcdnode
//	go.etcd.io/raft/v3/raftpb  →  github.com/millrace/millrace/raft/raftpb
//
// and then the lines that are marked with "Port:" below. docs/porting.md has all differences.
package main

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/millrace/millrace/raft"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

// run writes through one member, reads from another, and hands leadership over.
func run(ctx context.Context) error {
	net := newNetwork(1, 2, 3)
	var members []*member
	for id := range net.inboxes {
		r, err := startMember(id, net, []raft.Peer{{ID: 1}, {ID: 2}, {ID: 3}})
		if err != nil {
			return err
		}
		defer r.stop()
		members = append(members, r)
	}
	if err := members[0].put(ctx, "colour", "green"); err != nil {
		return err
	}
	value, err := members[1].get(ctx, "colour")
	if err != nil {
		return err
	}
	fmt.Println("colour is", value)

	leader, err := members[2].moveLeadership(ctx)
	if err != nil {
		return err
	}
	fmt.Println("leadership moved:", leader != raft.None)
	return nil
}
