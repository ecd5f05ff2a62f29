package host_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"os"
	"sync/atomic"

	"github.com/millrace/millrace/host"
)

type counter struct{ n atomic.Int64 }

func (c *counter) Apply(entries []host.Entry) error {
	c.n.Add(int64(len(entries)))
	return nil
}

// A group of one: the same calls make a group of three, with three hosts in Peers.
func Example() {
	dir, err := os.MkdirTemp("", "millrace-example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	h, err := host.Open(host.Config{
		ID:    1,
		Dir:   dir,
		Peers: map[uint64]string{1: "127.0.0.1:0"},
	}, &counter{}, host.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		log.Fatal(err)
	}
	defer h.Close(context.Background())
	h.Group().Campaign() // rather than wait for the election timeout

	ctx := context.Background()
	if _, err := h.Group().WaitLeader(ctx); err != nil {
		log.Fatal(err)
	}
	receipt, err := h.Group().Propose(ctx, []byte("one"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("committed at index", receipt.Index)
	// Output: committed at index 2
}
