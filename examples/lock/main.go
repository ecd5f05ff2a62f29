// Command lock is one of three processes that replicate locks with leases and fencing tokens. Start three:
//
//	go run ./examples/lock -id 1      (and 2, and 3, in other terminals)
//	curl -X POST 'localhost:8001/locks/printer?owner=me&ttl=10s'
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/ops"
)

func main() {
	ops.Main("lock", func(ctx context.Context, args []string) error {
		s := ops.NewSettings("lock")
		s.Config.Members, s.Config.ClientAddrs = map[uint64]string{}, map[uint64]string{}
		for i := range uint64(3) { // unless the settings say otherwise
			s.Config.Members[i+1] = fmt.Sprintf("127.0.0.1:%d", 7001+i)
			s.Config.ClientAddrs[i+1] = fmt.Sprintf("127.0.0.1:%d", 8001+i)
		}
		s.Config.Dir = "data" // each process has a directory in it
		if err := s.Parse(args, os.Environ()); err != nil {
			return err
		}
		return run(ctx, s)
	})
}

func run(ctx context.Context, s *ops.Settings) error {
	c := s.Config
	c.Dir = fmt.Sprintf("%s/%d", c.Dir, c.ID)
	listener, err := net.Listen("tcp", c.ClientAddrs[c.ID])
	if err != nil {
		return fmt.Errorf("listen for clients: %w", err)
	}
	defer listener.Close()
	state, m := machine()
	node, err := millrace.Open(ctx, c, m)
	if err != nil {
		return err
	}
	service := s.Service()
	service.Handler, service.Listener = (&server{node: node, locks: state, timeout: 5 * time.Second}).handler(), listener
	return ops.Run(ctx, node, service)
}
