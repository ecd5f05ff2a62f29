package host_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"os"
	"sync/atomic"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/statemachine"
)

type counter struct{ n atomic.Int64 }

func (c *counter) Apply(entries []statemachine.Entry) error {
	c.n.Add(int64(len(entries)))
	return nil
}

// A group of one: the same calls make a group of three, with three hosts in Members.
func Example() {
	dir, err := os.MkdirTemp("", "millrace-example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	ctx := context.Background()
	h, err := host.Open(ctx, host.Config{
		ID:      1,
		Dir:     dir,
		Members: map[uint64]string{1: "127.0.0.1:0"},
	}, host.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		log.Fatal(err)
	}
	defer h.Close(ctx)
	group, err := h.OpenGroup(ctx, host.GroupConfig{ID: 1}, &counter{})
	if err != nil {
		log.Fatal(err)
	}
	group.Campaign() // rather than wait for the election timeout

	if _, err := group.WaitLeader(ctx); err != nil {
		log.Fatal(err)
	}
	receipt, err := group.Propose(ctx, []byte("one"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("committed at index", receipt.Index)
	// Output: committed at index 4
}
