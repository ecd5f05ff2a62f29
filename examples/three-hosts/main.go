package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"sync/atomic"

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
	h, err := host.Open(host.Config{
		ID:    *id,
		Dir:   fmt.Sprintf("data/%d", *id),
		Peers: map[uint64]string{1: "127.0.0.1:7001", 2: "127.0.0.1:7002", 3: "127.0.0.1:7003"},
	}, &counter{})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	leader, err := h.Group().WaitLeader(ctx)
	if err != nil {
		log.Fatal(err)
	}
	if leader == *id { // only the leader takes commands
		receipt, err := h.Group().Propose(ctx, []byte("one"))
		switch {
		case host.MayHaveCommitted(err):
			log.Print("no answer: the command may be committed: ", err)
		case err != nil:
			log.Print("surely not committed: ", err)
		default:
			log.Print("committed at index ", receipt.Index)
		}
	}
	<-ctx.Done()
	if err := h.Close(context.Background()); err != nil {
		log.Fatal(err)
	}
}
