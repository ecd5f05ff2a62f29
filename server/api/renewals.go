package api

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/millrace/millrace/server/command"
)

// LeaseKeepAlive answers renewals in their order. It takes the next ones while the first wait for their
// command. A client has one stream for all of its leases, so one command a lease would be too slow for many.
// The header is of before the renewal: a client that sees revision 3 in it knows that the lease was alive
// then.
func (s leases) LeaseKeepAlive(stream pb.Lease_LeaseKeepAliveServer) error {
	ctx := stream.Context()
	k := &keepAlives{changed: make(chan struct{}, 1), space: make(chan struct{}, 1)}
	go func() {
		for {
			r, err := stream.Recv()
			if err == nil {
				err = s.renewals.begin(ctx, k, &pb.LeaseKeepAliveResponse{ID: r.ID, Header: s.fill(nil)})
			}
			if err != nil {
				k.end(err)
				return
			}
		}
	}()
	for {
		done, err := k.take()
		for _, r := range done {
			if r.err != nil {
				return r.err
			}
			if err := stream.Send(r.response); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case <-k.changed:
		case <-ctx.Done():
			return ended(ctx)
		}
	}
}

// keepAlives are the renewals of one stream whose answers are owed, at most maxGathered.
type keepAlives struct {
	mu      sync.Mutex
	owed    []*renewal    // in the order of the requests
	ended   error         // no more requests come
	changed chan struct{} // has one element when the first of owed is done, or all is over
	space   chan struct{} // has one element when owed may take another
}

// renewal is one renewal. What it ends with is guarded by its stream's mu.
type renewal struct {
	stream   *keepAlives
	response *pb.LeaseKeepAliveResponse
	err      error
	done     bool
}

// add owes an answer. It waits for space.
func (k *keepAlives) add(ctx context.Context, r *renewal) error {
	for {
		k.mu.Lock()
		if len(k.owed) < maxGathered {
			k.owed = append(k.owed, r)
			k.mu.Unlock()
			return nil
		}
		k.mu.Unlock()
		select {
		case <-k.space:
		case <-ctx.Done():
			return ended(ctx)
		}
	}
}

// take returns the renewals that are done and have none before them that is not. Behind the last of them it
// returns why no more come.
func (k *keepAlives) take() (done []*renewal, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := 0
	for n < len(k.owed) && k.owed[n].done {
		n++
	}
	done, k.owed = k.owed[:n:n], k.owed[n:]
	if n > 0 {
		offer(k.space)
	}
	if len(k.owed) == 0 {
		k.owed, err = nil, k.ended
	}
	return done, err
}

// complete ends a renewal.
func (r *renewal) complete(ttl int64, err error) {
	k := r.stream
	k.mu.Lock()
	defer k.mu.Unlock()
	r.response.TTL, r.err, r.done = ttl, err, true
	if len(k.owed) > 0 && k.owed[0].done {
		offer(k.changed)
	}
}

// end notes that no more requests come.
func (k *keepAlives) end(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ended = err
	offer(k.changed)
}

// offer puts an element into a channel that has room for one, if it has none.
func offer(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Bounds of one command of gathered renewals.
const (
	gatherTime  = 5 * time.Millisecond
	maxGathered = 1024
)

// renewals gathers the renewals of all streams of this member, so that many leases cost few commands. What
// comes while a command is under way goes with the next one, after at most gatherTime. A stream has at most
// maxGathered of them here.
type renewals struct {
	*Backend
	mu      sync.Mutex
	waiting []*renewal
	asked   chan struct{} // has one element if there is one in waiting that gather has not seen
	many    chan struct{} // has one element if waiting fills a command
	idle    chan struct{} // has one element while no command is under way
}

func newRenewals(b *Backend) *renewals {
	r := &renewals{Backend: b, asked: make(chan struct{}, 1), many: make(chan struct{}, 1), idle: make(chan struct{}, 1)}
	r.idle <- struct{}{}
	return r
}

// begin begins to renew a lease of a stream. Its answer has a TTL then; 0 if there is no such lease.
func (r *renewals) begin(ctx context.Context, k *keepAlives, response *pb.LeaseKeepAliveResponse) error {
	if r.Stopping.Err() != nil {
		return stopped()
	}
	one := &renewal{stream: k, response: response}
	if err := k.add(ctx, one); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = append(r.waiting, one)
	switch len(r.waiting) {
	case 1:
		offer(r.asked)
	case maxGathered:
		offer(r.many)
	}
	return nil
}

// run gathers until the service stops.
func (r *renewals) run() {
	for {
		select {
		case <-r.asked:
		case <-r.Stopping.Done():
			return
		}
		late := time.NewTimer(gatherTime)
		isFirst := false // no other command is under way
		select {
		case <-r.idle:
			isFirst = true
		case <-r.many:
		case <-late.C:
		}
		late.Stop()
		batch := r.gather()
		go func() {
			r.propose(batch)
			if isFirst {
				r.idle <- struct{}{}
			}
		}()
	}
}

// gather takes what one command takes.
func (r *renewals) gather() []*renewal {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := min(len(r.waiting), maxGathered)
	batch := r.waiting[:n:n]
	if r.waiting = r.waiting[n:]; len(r.waiting) == 0 {
		r.waiting = nil
		return batch
	}
	offer(r.asked)
	if len(r.waiting) >= maxGathered {
		offer(r.many)
	}
	return batch
}

func (r *renewals) propose(batch []*renewal) {
	ids := make([]int64, len(batch))
	for k, b := range batch {
		ids[k] = b.response.ID
	}
	result, err := r.Backend.propose(context.Background(), command.LeaseRenew(ids))
	if err == nil && len(result.TTLs) != len(ids) {
		err = status.Errorf(codes.Internal, "millrace: %d renewals have %d answers", len(ids), len(result.TTLs))
	}
	for k, b := range batch {
		if err != nil {
			b.complete(0, err)
		} else {
			b.complete(result.TTLs[k], nil)
		}
	}
}
