package rig

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/transport/cert"
	"github.com/millrace/millrace/transport/loopback"
	"github.com/millrace/millrace/transport/tcp"
)

// Transport is how hosts reach each other.
type Transport string

// The transports.
const (
	TCP      Transport = "tcp"
	TLS      Transport = "tcp+tls"
	Loopback Transport = "loopback" // in memory: no sockets, and no faults
)

// network is how the hosts of a cluster reach each other: directly, or over a link for each ordered pair.
type network struct {
	kind       Transport
	hosts      int
	listenAddr string // of every host
	memory     *loopback.Network
	addrs      []string // of the present life of each host; "": it has none yet
	open       []Peered
	foreign    Listen    // nil: tcp
	links      [][]*Link // from, to; nil without faults and delay
	tls        []*cert.Credentials
	rejections []rejections // by host, in its present life
}

func newNetwork(s Setup) (_ *network, err error) {
	n := &network{kind: s.Transport, hosts: s.Hosts, listenAddr: "127.0.0.1:0", addrs: make([]string, s.Hosts), rejections: make([]rejections, s.Hosts), open: make([]Peered, s.Hosts), foreign: s.Foreign.Transports[string(s.Transport)]}
	if s.Transport == Loopback {
		n.memory = loopback.NewNetwork()
		return n, nil
	}
	if s.Transport == TLS {
		if n.tls, err = credentials(s.Hosts); err != nil {
			return nil, err
		}
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.close())
		}
	}()
	// All listen at once, so that each knows where the others are: the lives to come get addresses of their
	// own.
	for i := range s.Hosts {
		if n.open[i], err = n.listen(i); err != nil {
			return nil, err
		}
		n.addrs[i] = n.open[i].Addr()
	}
	if !s.Faults && s.NetworkDelay == 0 {
		return n, nil
	}
	for from := range s.Hosts {
		row := make([]*Link, s.Hosts)
		n.links = append(n.links, row)
		for to := range s.Hosts {
			if from == to {
				continue
			}
			if row[to], err = NewLink(n.addrs[to]); err != nil {
				return nil, err
			}
			row[to].SetDelay(s.NetworkDelay)
		}
	}
	return n, nil
}

func (n *network) listen(i int) (Peered, error) {
	if n.foreign != nil {
		return n.foreign(uint64(i + 1))
	}
	o := tcp.Options{ID: uint64(i + 1), Listen: n.listenAddr, Logger: slog.New(slog.DiscardHandler)}
	if n.tls != nil {
		own := n.tls[i]
		o.TLS = &tcp.TLS{Credentials: func() (*cert.Credentials, error) { return own, nil }}
	}
	t, err := tcp.Listen(o)
	if err != nil {
		return nil, err // a nil *tcp.Transport in the interface would not be nil
	}
	return t, nil
}

// fixedAddresses is a transport whose addresses only this package sets. A host looks for SetPeer and
// SetOtherAddr in its transport, to follow others that have moved; it would find a way beside the links.
type fixedAddresses struct {
	*tcp.Transport
	SetPeer, SetOtherAddr struct{} // fields, which hide the methods
	rejections            *rejections
}

// foreignAddresses is fixedAddresses for another transport.
type foreignAddresses struct {
	Peered
	SetPeer    struct{}
	rejections *rejections
}

// transport returns the transport for the next life of a host, and the addresses for its configuration.
func (n *network) transport(i int) (host.Transport, map[uint64]string, error) {
	peers := map[uint64]string{}
	for to := range n.hosts {
		peers[uint64(to+1)] = n.addr(i, to)
	}
	if n.memory != nil {
		t := n.memory.Host(uint64(i + 1))
		for to := range n.hosts {
			t.SetPeer(uint64(to+1), "")
		}
		return t, peers, nil
	}
	t := n.open[i]
	n.open[i] = nil
	if t == nil {
		var err error
		if t, err = n.listen(i); err != nil {
			return nil, nil, err
		}
		n.addrs[i] = t.Addr()
		for from := range n.hosts {
			if n.links != nil && from != i {
				n.links[from][i].SetTarget(t.Addr())
			}
		}
	}
	for to := range n.hosts {
		t.SetPeer(uint64(to+1), n.addr(i, to))
	}
	n.rejections[i].reset()
	if own, ok := t.(*tcp.Transport); ok {
		return fixedAddresses{Transport: own, rejections: &n.rejections[i]}, peers, nil
	}
	return foreignAddresses{Peered: t, rejections: &n.rejections[i]}, peers, nil
}

// addr is where one host reaches another.
func (n *network) addr(from, to int) string {
	switch {
	case n.memory != nil:
		return fmt.Sprintf("memory-%d:1", to+1)
	case n.links == nil || from == to:
		return n.addrs[to]
	}
	return n.links[from][to].Addr()
}

// each calls f for the links from and to a host.
func (n *network) each(i int, f func(*Link)) {
	for other := range n.hosts {
		if n.links != nil && other != i {
			f(n.links[i][other])
			f(n.links[other][i])
		}
	}
}

// refuse makes the links of a host refuse, or pass again.
func (n *network) refuse(i int, refuses bool) {
	mode := Passes
	if refuses {
		mode = Refuses
	}
	n.each(i, func(l *Link) { l.Set(mode) })
}

func (n *network) close() (err error) {
	for _, t := range n.open {
		if t != nil {
			err = errors.Join(err, t.Close())
		}
	}
	for _, row := range n.links {
		for _, l := range row {
			if l != nil {
				err = errors.Join(err, l.Close())
			}
		}
	}
	return err
}

// Hold makes a member deaf and mute without a reset, as a cut cable or a stopped process does, or ends that.
func (c *Cluster) Hold(i int, holds bool) {
	mode := Passes
	if holds {
		mode = Holds
	}
	c.network.each(i, func(l *Link) { l.Set(mode) })
}

// Refuse resets and refuses the connections of a member, or ends that.
func (c *Cluster) Refuse(i int, refuses bool) { c.network.refuse(i, refuses) }

// SetRate bounds what is sent from and to a member, on each link; 0: no bound.
func (c *Cluster) SetRate(i int, bytesPerSecond float64) {
	c.network.each(i, func(l *Link) { l.SetRate(bytesPerSecond) })
}

// credentials makes a CA for this run, and a certificate of each host.
func credentials(hosts int) (all []*cert.Credentials, err error) {
	now := time.Now()
	valid := cert.Span{NotBefore: now.Add(-time.Hour), NotAfter: now.Add(48 * time.Hour)}
	ca, err := cert.NewCA("millrace lab", valid)
	if err != nil {
		return nil, err
	}
	for id := range uint64(hosts) {
		key, err := cert.NewKey()
		if err != nil {
			return nil, err
		}
		c, err := ca.Member(id+1, key.Public(), valid)
		if err != nil {
			return nil, err
		}
		all = append(all, &cert.Credentials{
			Certificate: tls.Certificate{Certificate: [][]byte{c.Raw}, PrivateKey: key, Leaf: c},
			Roots:       []*x509.Certificate{ca.Certificate},
		})
	}
	return all, nil
}
