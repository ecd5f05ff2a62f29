// Command queue is one of three processes that replicate a job queue. Start three:
//
//	go run ./examples/queue -id 1      (and 2, and 3, in other terminals)
//	curl -d 'print this' localhost:8001/jobs
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/ops"
)

func main() { ops.Main("queue", run) }

func run(ctx context.Context, args []string) error {
	s := ops.NewSettings("queue")
	s.Config.Members, s.Config.ClientAddrs = map[uint64]string{}, map[uint64]string{}
	for i := range uint64(3) { // unless the settings say otherwise
		s.Config.Members[i+1] = fmt.Sprintf("127.0.0.1:%d", 7001+i)
		s.Config.ClientAddrs[i+1] = fmt.Sprintf("127.0.0.1:%d", 8001+i)
	}
	s.Config.Dir = "data" // each process has a directory in it
	if err := s.Parse(args, os.Environ()); err != nil {
		return err
	}
	s.Config.Dir = fmt.Sprintf("%s/%d", s.Config.Dir, s.Config.ID)
	listener, err := net.Listen("tcp", s.Config.ClientAddrs[s.Config.ID])
	if err != nil {
		return fmt.Errorf("listen for clients: %w", err)
	}
	defer listener.Close()
	q, m := machine()
	node, err := millrace.Open(ctx, s.Config, m)
	if err != nil {
		return err
	}
	service := s.Service()
	service.Handler, service.Listener = (&server{node, q, 5 * time.Second}).handler(), listener
	service.Options.Collectors = append(service.Options.Collectors, prometheus.NewGaugeFunc(
		prometheus.GaugeOpts{Name: "queue_jobs", Help: "Jobs that are not done."},
		func() float64 { jobs, _ := q.length(); return float64(jobs) }))
	return ops.Run(ctx, node, service)
}
