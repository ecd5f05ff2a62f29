package rig

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/transport/cert"
)

// Seat is one member of a cluster whose other members run in processes of their own, here or on other
// machines. It is made of the same components as a member of a cluster in one process.
type Seat struct {
	ID     uint64 // 1 to Setup.Hosts
	Listen string // where this member listens for the others
	// Credentials are what this member presents with TLS.
	Credentials *cert.Credentials
	// Members is called when this member listens, with its address. It returns where all members are, by id
	// from 1, and the number of the cluster, which is the same for all members and in all their lives.
	Members func(listening string) (addrs []string, cluster uint64, err error)
	Logger  *slog.Logger // what the host has to say; nil: nothing
}

// TakeSeat opens one member. The cluster that it returns has the others as members that are closed. It does
// not wait for them.
func TakeSeat(ctx context.Context, s Setup, seat Seat) (_ *Cluster, err error) {
	s.Groups = max(s.Groups, 1)
	s.Founders = s.Hosts
	s.Logger = seat.Logger
	if s.Transport != TCP && s.Transport != TLS || s.Faults || s.PowerCuts {
		return nil, errors.New("a member in a process of its own needs sockets, and no other process can spoil its disk or its links")
	}
	c := &Cluster{setup: s, ledger: &load.Ledger{}, leaders: make([]atomic.Int32, s.Groups), acked: make([]atomic.Uint64, s.Groups)}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	if c.network, c.setup.Cluster, err = newSeatNetwork(s, seat); err != nil {
		return nil, err
	}
	for i := range s.Hosts {
		c.members = append(c.members, newMember(c, i))
	}
	return c, c.members[seat.ID-1].Open(ctx)
}

// newSeatNetwork is newNetwork for one member: it has the links from that to the others.
func newSeatNetwork(s Setup, seat Seat) (_ *network, cluster uint64, err error) {
	at := int(seat.ID - 1)
	n := &network{
		kind: s.Transport, hosts: s.Hosts, listenAddr: seat.Listen, rejections: make([]rejections, s.Hosts),
		open: make([]Peered, s.Hosts),
	}
	if s.Transport == TLS {
		if seat.Credentials == nil {
			return nil, 0, errors.New("TLS needs credentials")
		}
		n.tls = make([]*cert.Credentials, s.Hosts)
		n.tls[at] = seat.Credentials
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.close())
		}
	}()
	if n.open[at], err = n.listen(at); err != nil {
		return nil, 0, err
	}
	if n.addrs, cluster, err = seat.Members(n.open[at].Addr()); err != nil {
		return nil, 0, err
	}
	if len(n.addrs) != s.Hosts {
		return nil, 0, fmt.Errorf("%d addresses of members, want %d", len(n.addrs), s.Hosts)
	}
	if s.NetworkDelay == 0 {
		return n, cluster, nil
	}
	n.links = make([][]*Link, s.Hosts)
	n.links[at] = make([]*Link, s.Hosts)
	for to := range s.Hosts {
		if to == at {
			continue
		}
		if n.links[at][to], err = NewLink(n.addrs[to]); err != nil {
			return nil, 0, err
		}
		n.links[at][to].SetDelay(s.NetworkDelay)
	}
	return n, cluster, nil
}
