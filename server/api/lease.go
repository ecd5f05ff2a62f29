package api

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

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

// LeaseKeepAlive answers renewals in their order. It takes the next ones while the first wait for their
// command: a client has one stream for all of its leases, and one command a lease would be too slow for many
// of them. The header is of before the renewal: so a client that sees revision 3 in it knows that the lease
// was alive then.
func (s leases) LeaseKeepAlive(stream pb.Lease_LeaseKeepAliveServer) error {
	ctx := stream.Context()
	begun := make(chan keptAlive, maxGathered)
	var received error // why begun is closed
	go func() {
		defer close(begun)
		for {
			r, err := stream.Recv()
			if err != nil {
				received = err
				return
			}
			k := keptAlive{response: &pb.LeaseKeepAliveResponse{ID: r.ID, Header: s.fill(nil)}}
			if k.answer, received = s.renewals.begin(ctx, r.ID); received != nil {
				return
			}
			select {
			case begun <- k:
			case <-ctx.Done():
				received = ended(ctx)
				return
			}
		}
	}()
	for {
		select {
		case k, more := <-begun:
			if !more && errors.Is(received, io.EOF) {
				return nil
			}
			if !more {
				return received
			}
			if err := k.send(ctx, stream); err != nil {
				return err
			}
		case <-ctx.Done():
			return ended(ctx)
		}
	}
}

// keptAlive is a renewal whose answer is owed.
type keptAlive struct {
	response *pb.LeaseKeepAliveResponse
	answer   <-chan renewed
}

func (k keptAlive) send(ctx context.Context, stream pb.Lease_LeaseKeepAliveServer) error {
	select {
	case a := <-k.answer:
		if k.response.TTL = a.ttl; a.err != nil {
			return a.err
		}
		return stream.Send(k.response)
	case <-ctx.Done():
		return ended(ctx)
	}
}

// Bounds of one command of gathered renewals.
const (
	gatherTime  = 5 * time.Millisecond
	maxGathered = 1024
)

// renewals gathers the renewals of all streams of this member, so that many leases cost few commands. What
// comes while a command is under way goes with the next one, after at most gatherTime.
type renewals struct {
	*Backend
	ask  chan renewal
	idle chan struct{} // has one element while no command is under way
}

type renewal struct {
	id     int64
	answer chan<- renewed // has room for one
}

type renewed struct {
	ttl int64
	err error
}

func newRenewals(b *Backend) *renewals {
	r := &renewals{Backend: b, ask: make(chan renewal), idle: make(chan struct{}, 1)}
	r.idle <- struct{}{}
	return r
}

// begin begins to renew a lease. The answer is its TTL; 0 if there is no such lease.
func (r *renewals) begin(ctx context.Context, id int64) (<-chan renewed, error) {
	answer := make(chan renewed, 1)
	select {
	case r.ask <- renewal{id, answer}:
		return answer, nil
	case <-ctx.Done():
		return nil, ended(ctx)
	case <-r.Stopping.Done():
		return nil, stopped()
	}
}

// run gathers until the service stops.
func (r *renewals) run() {
	for {
		var batch []renewal
		select {
		case first := <-r.ask:
			batch = append(batch, first)
		case <-r.Stopping.Done():
			return
		}
		late := time.After(gatherTime)
		isFirst := false // no other command is under way
	gather:
		for len(batch) < maxGathered {
			select {
			case next := <-r.ask:
				batch = append(batch, next)
			case <-r.idle:
				isFirst = true
				break gather
			case <-late:
				break gather
			}
		}
		go func() {
			r.propose(batch)
			if isFirst {
				r.idle <- struct{}{}
			}
		}()
	}
}

func (r *renewals) propose(batch []renewal) {
	ids := make([]int64, len(batch))
	for k, b := range batch {
		ids[k] = b.id
	}
	result, err := r.Backend.propose(context.Background(), command.LeaseRenew(ids))
	if err == nil && len(result.TTLs) != len(ids) {
		err = status.Errorf(codes.Internal, "millrace: %d renewals have %d answers", len(ids), len(result.TTLs))
	}
	for k, b := range batch {
		if err != nil {
			b.answer <- renewed{err: err}
		} else {
			b.answer <- renewed{ttl: result.TTLs[k]}
		}
	}
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
