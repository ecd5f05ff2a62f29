package etcdnode_test

import (
	"context"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/etcdnode"
	"github.com/millrace/millrace/raft/raftpb"
)

// Three nodes in one process; channels are the network, and memory is the disk.
func Example() {
	network := map[uint64]chan raftpb.Message{1: make(chan raftpb.Message, 64), 2: make(chan raftpb.Message, 64), 3: make(chan raftpb.Message, 64)}
	applied := make(chan string)
	var loops sync.WaitGroup
	var nodes []*etcdnode.Local
	for id := range network {
		storage := raft.NewMemoryStorage()
		storage.SetConfState(raftpb.ConfState{Voters: []uint64{1, 2, 3}})
		n, err := etcdnode.Restart(&raft.Config{
			ID: id, Storage: storage, ElectionTick: 10, HeartbeatTick: 1, MaxSizePerMsg: 1 << 20, MaxInflightMsgs: 256,
			PreVote: true, CheckQuorum: true,
		})
		if err != nil {
			log.Fatal(err)
		}
		nodes = append(nodes, n)
		loops.Go(func() { serve(n, storage, network, network[id], applied) })
	}

	// There is no leader yet: the proposal waits until the ticks have caused an election.
	if err := nodes[0].Propose(context.Background(), []byte("hello")); err != nil {
		log.Fatal(err)
	}
	for range nodes {
		fmt.Println(<-applied)
	}
	for _, n := range nodes {
		n.Stop()
	}
	loops.Wait()
	// Output:
	// hello
	// hello
	// hello
}

func serve(n *etcdnode.Local, storage *raft.MemoryStorage, network map[uint64]chan raftpb.Message, inbox <-chan raftpb.Message, applied chan<- string) {
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			n.Tick()
		case m := <-inbox:
			_ = n.Step(context.Background(), m) // a refused message is lost, and will be sent again
		case rd := <-n.Ready():
			if !raft.IsEmptyHardState(rd.HardState) {
				_ = storage.SetHardState(rd.HardState)
			}
			if err := storage.Append(rd.Entries); err != nil {
				log.Fatal(err)
			}
			for _, m := range rd.Messages {
				select {
				case network[m.To] <- m:
				default: // lost
				}
			}
			for _, e := range rd.CommittedEntries {
				if len(e.Data) > 0 {
					applied <- string(e.Data)
				}
			}
			n.Advance()
		case <-n.Done():
			return
		}
	}
}
