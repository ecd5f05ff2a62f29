// Three processes count together: go run ./examples/counter -id 1, and in other terminals 2 and 3.
// Kill one, with kill -9 if you like, and start it again: the sum is right, and the others go on.
package main

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"log"
	"time"

	"github.com/millrace/millrace"
)

// counter is the state machine: each member applies the same commands in the same order.
type counter struct{ n int64 }

func (c *counter) Apply(batch []millrace.Command[int64], results []int64) error {
	for i := range batch {
		c.n += batch[i].Value
		results[i] = c.n
	}
	return nil
}

func (c *counter) Snapshot() (millrace.Snapshot, error) {
	return millrace.BytesSnapshot(binary.BigEndian.AppendUint64(nil, uint64(c.n))), nil
}

func (c *counter) Restore(_ context.Context, r io.Reader) error {
	return binary.Read(r, binary.BigEndian, &c.n)
}

func main() {
	id, ctx, c := flag.Uint64("id", 1, "1, 2 or 3"), context.Background(), &counter{}
	flag.Parse()
	node, err := millrace.Open(ctx, millrace.Config{ID: *id, Dir: fmt.Sprint("data/", *id),
		Members: map[uint64]string{1: "127.0.0.1:7001", 2: "127.0.0.1:7002", 3: "127.0.0.1:7003"},
	}, millrace.InMemory(c, millrace.Binary[int64]()))
	if err != nil {
		log.Fatal(err)
	}
	for range time.Tick(time.Second) {
		sum, err := node.Propose(ctx, 1) // on any member; the command counts once
		read := func() error { log.Print(c.n); return nil }
		log.Println("added one:", sum, err, node.ViewExclusive(ctx, millrace.Linearizable, read))
	}
}
