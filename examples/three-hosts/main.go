package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/host"
)

// counter is the state machine: every host applies the same commands in the same order.
type counter struct{ n atomic.Int64 }

func (c *counter) Apply(entries []host.Entry) error {
	log.Print("the counter is ", c.n.Add(int64(len(entries))))
	return nil
}

func main() {
	id := flag.Uint64("id", 1, "this host's id: 1, 2 or 3")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	h, err := host.Open(ctx, host.Config{
		ID:    *id,
		Dir:   fmt.Sprintf("data/%d", *id),
		Peers: map[uint64]string{1: "127.0.0.1:7001", 2: "127.0.0.1:7002", 3: "127.0.0.1:7003"},
	})
	if err != nil {
		log.Fatal(err)
	}
	group, err := h.OpenGroup(ctx, host.GroupConfig{ID: 1}, &counter{})
	if err != nil {
		log.Fatal(err)
	}
	for tick := time.Tick(time.Second); ctx.Err() == nil; {
		select {
		case <-ctx.Done():
		case <-tick:
			receipt, err := group.Propose(ctx, []byte("one"))
			switch {
			case err == nil:
				log.Print("committed at index ", receipt.Index)
			case errors.Is(err, host.ErrNotLeader): // only the leader takes commands
			case host.MayHaveCommitted(err):
				log.Print("no answer: the command may be committed: ", err)
			default:
				log.Print("surely not committed: ", err)
			}
		}
	}
	if err := h.Close(context.Background()); err != nil {
		log.Fatal(err)
	}
}
