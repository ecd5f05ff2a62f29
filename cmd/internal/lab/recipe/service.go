package recipe

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/remote"
	"github.com/millrace/millrace/cmd/internal/lab/rig"
	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/outcome"
)

// service is a cluster with a port for clients on each host, as the dissertation's: a host that does not lead
// names the leader, and a write is answered when the leader's state machine has applied it.
type service struct {
	*rig.Cluster
	mu      sync.Mutex
	servers []*remote.ClientServer // nil: the host is gone
	addrs   []string               // where clients connect
	listens []string               // where the servers listen, or did: addrs, or the far ends of links
	links   []*rig.Link            // from the clients to each host; nil: there are none
}

// newService opens the ports of a cluster with sessions. With linked, experiments can spoil the network
// between clients and hosts: bytes pass two more sockets then.
func newService(c *rig.Cluster, linked bool) (_ *service, err error) {
	n := len(c.Members())
	s := &service{Cluster: c, servers: make([]*remote.ClientServer, n), listens: make([]string, n)}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	for i := range c.Members() {
		if err := s.serve(i); err != nil {
			return nil, err
		}
	}
	s.addrs = slices.Clone(s.listens)
	for i := range s.addrs {
		if !linked {
			break
		}
		link, err := rig.NewLink(s.listens[i])
		if err != nil {
			return nil, err
		}
		s.links, s.addrs[i] = append(s.links, link), link.Addr()
	}
	return s, nil
}

// serve opens the port of a host, the same one as before if it had one.
func (s *service) serve(i int) error {
	addr := cmp.Or(s.listens[i], "127.0.0.1:0")
	server, err := remote.ServeClientsAt(addr, func(ctx context.Context, r remote.Request) (remote.Status, string) { return s.handle(ctx, i, r) })
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.servers[i], s.listens[i] = server, server.Addr()
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

func (s *service) handle(ctx context.Context, i int, r remote.Request) (remote.Status, string) {
	group := s.Member(i).Group(0)
	if group == nil {
		return remote.NotTaken, ""
	}
	text, err := s.carryOut(ctx, s.Member(i).ID, group, r)
	var elsewhere *outcome.NotLeaderError
	switch {
	case err == nil:
		return remote.Done, text
	case errors.As(err, &elsewhere):
		return remote.NotTaken, s.addrOf(elsewhere.Leader)
	case outcome.MayHaveCommitted(err):
		return remote.Unknown, err.Error()
	case errors.Is(err, outcome.ErrStopped):
		return remote.NotTaken, ""
	}
	return remote.Failed, err.Error()
}

// carryOut carries out a request on a member that leads.
func (s *service) carryOut(ctx context.Context, id uint64, group *host.Group, r remote.Request) (text string, err error) {
	switch r.Kind {
	case remote.OpenSession:
		if leader := group.Status().Leader; leader != id {
			return "", &outcome.NotLeaderError{Leader: leader}
		}
		return group.NewSession().String(), nil
	case remote.InSession:
		return "", rig.Call(ctx, group, &r.Mark, r.Value)
	}
	return "", rig.Call(ctx, group, nil, r.Value)
}

// breakConnections breaks the connections of all clients for a moment.
func (s *service) breakConnections() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, server := range s.servers {
		if server != nil {
			server.Break()
		}
	}
}

// hold makes a host answer nothing, without a reset: its clients wait, and other hosts do not hear it.
// Or it ends that. It needs links.
func (s *service) hold(i int, holds bool) {
	mode := rig.Passes
	if holds {
		mode = rig.Holds
	}
	s.Hold(i, holds)
	s.links[i].Set(mode)
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
	for _, link := range s.links {
		err = errors.Join(err, link.Close())
	}
	return err
}

// newClient returns a client that knows some hosts, from 0, and addresses at which there is none.
func (s *service) newClient(o remote.ClientOptions, dead ...string) *remote.Client {
	if o.Seeds == nil {
		o.Seeds = append(o.Seeds, s.addrs...)
	}
	o.Seeds = append(o.Seeds, dead...)
	o.ConnectTimeout = b1Connect
	return remote.NewClient(o)
}

// b1Connect bounds an attempt to connect.
const b1Connect = time.Second
