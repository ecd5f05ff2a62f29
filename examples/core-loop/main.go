// Command core-loop runs a small cluster in one process: three members, then a fourth that joins as a
// learner. It shows the loop around raft.RawNode that an embedder writes, in both modes, over two kinds of
// log:
//
//	go run ./core-loop -mode sync -log memory
//	go run ./core-loop -mode async -log wal
//
// sync.go is the loop of Ready and Advance. async.go is the loop with asynchronous storage writes, with one
// goroutine that appends and one that applies. log.go has the two logs, network.go the channels that stand in
// for a network.
//
// The example keeps its whole log, so it needs no snapshots. A program that compacts its log must also
// install the snapshot of a Ready or of a MsgStorageAppend, before the entries beside it.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"time"
)

func main() {
	mode := flag.String("mode", "async", "how the core hands out storage work: sync or async")
	kind := flag.String("log", "wal", "where entries are stored: memory or wal")
	flag.Parse()

	dir, err := os.MkdirTemp("", "core-loop")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx, *mode, *kind, dir); err != nil {
		log.Fatal(err)
	}
}

// run replicates ten commands: five among three members, five more after a fourth has joined as a learner.
func run(ctx context.Context, mode, kind, dir string) error {
	c, err := newCluster(mode, kind, dir)
	if err != nil {
		return err
	}
	defer c.stop()
	if err := c.start(1, 2, 3); err != nil {
		return err
	}
	for i := range 5 {
		if err := c.propose(ctx, fmt.Sprintf("command %d", i)); err != nil {
			return err
		}
	}
	if err := c.addLearner(ctx, 4); err != nil {
		return err
	}
	if err := c.start(4); err != nil {
		return err
	}
	for i := 5; i < 10; i++ {
		if err := c.propose(ctx, fmt.Sprintf("command %d", i)); err != nil {
			return err
		}
	}
	for id := uint64(1); id <= 4; id++ {
		commands, err := c.members[id].machine.wait(ctx, 10)
		if err != nil {
			return err
		}
		fmt.Printf("member %d has applied %d commands, the last is %q\n", id, len(commands), commands[len(commands)-1])
	}
	return nil
}
