package recipe

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/client"
	"github.com/millrace/millrace/cmd/internal/lab/rig"
	"github.com/millrace/millrace/host"
)

// service is a cluster with a port for clients on each host, as the dissertation's: a host that does not lead
// names the leader, and a write is answered when the leader's state machine has applied it.
type service struct {
	*rig.Cluster
	mu      sync.Mutex
	servers []*client.Server // nil: the host is gone
	addrs   []string         // where they listen, or did
}

func newService(c *rig.Cluster) (_ *service, err error) {
	s := &service{Cluster: c, servers: make([]*client.Server, len(c.Members())), addrs: make([]string, len(c.Members()))}
	for i := range c.Members() {
		if err := s.serve(i); err != nil {
			return nil, errors.Join(err, s.close())
		}
	}
	return s, nil
}

// serve opens the port of a host, the same one as before if it had one.
func (s *service) serve(i int) error {
	addr := s.addrs[i]
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	server, err := client.ServeAt(addr, func(ctx context.Context, value []byte) (client.Status, string) { return s.handle(ctx, i, value) })
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.servers[i], s.addrs[i] = server, server.Addr()
	return nil
}

// addrOf returns the address of a host by its id, for a hint.
func (s *service) addrOf(id uint64) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id == 0 {
		return ""
	}
	return s.addrs[id-1]
}

func (s *service) handle(ctx context.Context, i int, value []byte) (client.Status, string) {
	group := s.Member(i).Group(0)
	if group == nil {
		return client.NotTaken, ""
	}
	receipt, err := group.Propose(ctx, value)
	if err == nil {
		err = rig.Applied(ctx, group, receipt.Index)
	}
	var elsewhere *host.NotLeaderError
	switch {
	case err == nil:
		return client.Done, ""
	case errors.As(err, &elsewhere):
		return client.NotTaken, s.addrOf(elsewhere.Leader)
	case errors.Is(err, host.ErrStopped) && !host.MayHaveCommitted(err):
		return client.NotTaken, ""
	}
	return client.Failed, err.Error()
}

// kill kills a host and its port.
func (s *service) kill(i int) error {
	s.mu.Lock()
	server := s.servers[i]
	s.servers[i] = nil
	s.mu.Unlock()
	return errors.Join(s.Member(i).Kill(), server.Close())
}

// again opens both.
func (s *service) again(ctx context.Context, i int) error {
	if err := s.Member(i).Again(ctx); err != nil {
		return err
	}
	return s.serve(i)
}

func (s *service) close() (err error) {
	for _, server := range s.servers {
		if server != nil {
			err = errors.Join(err, server.Close())
		}
	}
	return err
}

// newClient returns a client that knows some hosts, from 0, and addresses at which there is none.
func (s *service) newClient(o client.Options, dead ...string) *client.Client {
	if o.Seeds == nil {
		o.Seeds = append(o.Seeds, s.addrs...)
	}
	o.Seeds = append(o.Seeds, dead...)
	o.ConnectTimeout = b1Connect
	return client.New(o)
}

// b1Connect bounds an attempt to connect.
const b1Connect = time.Second
