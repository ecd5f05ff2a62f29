package api

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/millrace/millrace/server/command"
	"github.com/millrace/millrace/server/lease"
)

// leases is the Lease service.
type leases struct {
	pb.UnsafeLeaseServer
	*Backend
	renewals *renewals
}

// minTTL is the TTL to which shorter ones are raised: one and a half election timeouts, in whole
// seconds.
func (b *Backend) minTTL() int64 {
	return int64((b.Config.ElectionTimeout*3/2 + time.Second - 1) / time.Second)
}

func (s leases) LeaseGrant(ctx context.Context, r *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	if r.TTL > lease.MaxTTL {
		return nil, rpctypes.ErrGRPCLeaseTTLTooLarge
	}
	id := r.ID
	for id == 0 {
		id = drawID()
	}
	resp := &pb.LeaseGrantResponse{}
	if err := s.answer(ctx, command.LeaseGrant(id, max(r.TTL, s.minTTL())), resp); err != nil {
		return nil, err
	}
	resp.Header = s.fill(resp.Header)
	return resp, nil
}

// drawID draws a positive id.
func drawID() int64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return int64(binary.BigEndian.Uint64(b[:]) >> 1)
}

func (s leases) LeaseRevoke(ctx context.Context, r *pb.LeaseRevokeRequest) (*pb.LeaseRevokeResponse, error) {
	resp := &pb.LeaseRevokeResponse{}
	if err := s.answer(ctx, command.LeaseRevoke(r.ID), resp); err != nil {
		return nil, err
	}
	resp.Header = s.fill(resp.Header)
	return resp, nil
}

func (s leases) LeaseTimeToLive(ctx context.Context, r *pb.LeaseTimeToLiveRequest) (*pb.LeaseTimeToLiveResponse, error) {
	resp := &pb.LeaseTimeToLiveResponse{ID: r.ID, TTL: -1}
	err := s.view(ctx, false, func() error {
		i, keys, ok := s.Store.Lease(r.ID, r.Keys)
		if ok {
			resp.TTL, resp.GrantedTTL, resp.Keys = i.Remaining(s.Node.LogTime()), i.TTL, keys
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	resp.Header = s.fill(nil)
	return resp, nil
}

func (s leases) LeaseLeases(ctx context.Context, _ *pb.LeaseLeasesRequest) (*pb.LeaseLeasesResponse, error) {
	resp := &pb.LeaseLeasesResponse{}
	err := s.view(ctx, false, func() error {
		resp.Leases = nil
		for _, i := range s.Store.Leases() {
			resp.Leases = append(resp.Leases, &pb.LeaseStatus{ID: i.ID})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	resp.Header = s.fill(nil)
	return resp, nil
}

// Bounds of the timer that ends leases.
const (
	expiryInterval = 500 * time.Millisecond // at most until it looks again: a lease lives a second at least
	expiryPause    = 20 * time.Millisecond  // at least between two commands
	maxExpired     = 1000                   // leases of one command
)

// expireLeases ends leases whose time is over, while this member leads. A command names the renewal
// that the timer knows, so a lease that was renewed meanwhile lives on.
func (b *Backend) expireLeases(ctx context.Context) {
	for led := range b.Node.Led(ctx) {
		for led.Err() == nil {
			now := b.Node.LogTime()
			due, next := b.Store.DueLeases(now, maxExpired)
			wait := min(max(next-now, expiryPause), expiryInterval)
			if len(due) > 0 {
				r, err := b.propose(led, command.LeaseExpire(due))
				if wait = expiryPause; err != nil || r.Expired == 0 {
					wait = expiryInterval // nothing has ended: the stamp of the command was earlier, or there is no quorum
				}
			}
			select {
			case <-time.After(wait):
			case <-led.Done():
			}
		}
	}
}
