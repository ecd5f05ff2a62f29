// Command lock is one of three processes that replicate locks with leases and fencing tokens. Start three:
//
//	go run ./examples/lock -id 1      (and 2, and 3, in other terminals)
//	curl -X POST 'localhost:8001/locks/printer?owner=me&ttl=10s'
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os/signal"
	"syscall"
	"time"

	"github.com/millrace/millrace"
)

func main() {
	id := flag.Uint64("id", 1, "this process: 1, 2 or 3")
	dir := flag.String("dir", "data", "the `directory` above those of the processes")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *id, *dir); err != nil {
		log.Fatal(err)
	}
}

// closeTimeout is how long clients may take at the end, and then the node.
const closeTimeout = 10 * time.Second

func run(ctx context.Context, id uint64, dir string) error {
	config := millrace.Config{ID: id, Dir: fmt.Sprintf("%s/%d", dir, id), Members: map[uint64]string{}}
	for i := range uint64(3) {
		config.Members[i+1] = fmt.Sprintf("127.0.0.1:%d", 7001+i)
	}
	state, m := machine()
	node, err := millrace.Open(ctx, config, m)
	if err != nil {
		return err
	}
	s := &server{node: node, locks: state, timeout: 5 * time.Second}
	web := &http.Server{Addr: fmt.Sprintf("127.0.0.1:%d", 8000+id), Handler: s.handler(), ReadHeaderTimeout: 5 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- web.ListenAndServe() }()
	select {
	case err = <-failed:
	case <-ctx.Done():
	}
	answers, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if web.Shutdown(answers) != nil {
		_ = web.Close() // a client that is too slow
	}
	end, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	return errors.Join(err, node.Close(end))
}
