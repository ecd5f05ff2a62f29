package api

import (
	"context"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// stopped is the error of streams that end because the service stops: clients continue with another member.
func stopped() error { return rpctypes.ErrGRPCStopped }

var canceled = status.FromContextError(context.Canceled).Err()

// ended returns why a context has ended: its cause if that is an error of etcd's.
func ended(ctx context.Context) error {
	cause := context.Cause(ctx)
	if cause == context.Canceled { // a client's stream that is over
		return canceled
	}
	if _, ok := status.FromError(cause); ok && cause != nil {
		return cause
	}
	return status.FromContextError(ctx.Err()).Err()
}

// admit checks what every RPC is checked for, and reports whether the client wants to be refused
// without a leader.
func (b *Backend) admit(ctx context.Context) (requireLeader bool, err error) {
	if v := metadata.ValueFromIncomingContext(ctx, rpctypes.MetadataClientAPIVersionKey); len(v) > 0 && !utf8.ValidString(v[0]) {
		return false, rpctypes.ErrGRPCInvalidClientAPIVersion
	}
	v := metadata.ValueFromIncomingContext(ctx, rpctypes.MetadataRequireLeaderKey)
	if requireLeader = len(v) > 0 && v[0] == rpctypes.MetadataHasLeader; requireLeader && b.Node.Status().Leader == 0 {
		return true, rpctypes.ErrGRPCNoLeader
	}
	return requireLeader, nil
}

// learnersServe reports whether a learner serves a request: what a learner knows by itself.
func learnersServe(request any) bool {
	switch r := request.(type) {
	case *pb.StatusRequest:
		return true
	case *pb.RangeRequest:
		return r.Serializable
	}
	return false
}

// Unary checks each unary RPC, and tells the log of slow ones.
func (s *Services) Unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if s.learns.Load() && !learnersServe(request) {
		return nil, rpctypes.ErrGRPCNotSupportedForLearner
	}
	if _, err := s.admit(ctx); err != nil {
		return nil, err
	}
	if strings.HasPrefix(info.FullMethod, "/v3") { // locks and elections wait for others; the end does not wait for them
		bound, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(s.Stopping, cancel)()
		ctx = bound
	}
	began := time.Now()
	response, err := next(ctx, request)
	if status.Code(err) == codes.Unimplemented && strings.HasPrefix(info.FullMethod, "/etcdserverpb.Auth/") {
		err = status.Error(codes.Unimplemented, "millrace: this version has no users and roles; every client may do everything")
	}
	if took := time.Since(began); s.Config.WarnDuration > 0 && took > s.Config.WarnDuration {
		remote := "this process"
		if p, ok := peer.FromContext(ctx); ok {
			remote = p.Addr.String()
		}
		s.Logger.Warn("a request was slow", "rpc", info.FullMethod, "took", took, "client", remote, "error", err)
	}
	return response, err
}

// Stream checks each stream, and ends it when the service stops, or when there is no leader and the
// client wants that.
func (s *Services) Stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if s.learns.Load() && info.FullMethod != pb.Maintenance_Snapshot_FullMethodName {
		return rpctypes.ErrGRPCNotSupportedForLearner
	}
	requireLeader, err := s.admit(stream.Context())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	defer context.AfterFunc(s.Stopping, func() { cancel(stopped()) })()
	if requireLeader {
		defer s.leaderless.add(cancel)()
	}
	err = next(srv, &boundStream{stream, ctx})
	if ctx.Err() != nil && stream.Context().Err() == nil {
		return ended(ctx)
	}
	return err
}

// boundStream is a stream with a context that ends earlier.
type boundStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *boundStream) Context() context.Context { return s.ctx }

// leaderlessTimeouts is how many election timeouts without a leader end the streams that want one, as
// in etcd.
const leaderlessTimeouts = 3

// leaderless ends streams when this member has had no leader for a while.
type leaderless struct {
	*Backend
	mu      sync.Mutex
	streams map[*context.CancelCauseFunc]bool
}

func newLeaderless(b *Backend) *leaderless {
	return &leaderless{Backend: b, streams: map[*context.CancelCauseFunc]bool{}}
}

func (l *leaderless) add(cancel context.CancelCauseFunc) (remove func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.streams[&cancel] = true
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.streams, &cancel)
	}
}

func (l *leaderless) run() {
	tick := time.NewTicker(l.Config.ElectionTimeout)
	defer tick.Stop()
	for without := 0; ; {
		l.learns.Store(l.Learner())
		select {
		case <-tick.C:
		case <-l.Stopping.Done():
			return
		}
		if without++; l.Node.Status().Leader != 0 {
			without = 0
		}
		if without < leaderlessTimeouts {
			continue
		}
		l.mu.Lock()
		for cancel := range l.streams {
			(*cancel)(rpctypes.ErrGRPCNoLeader)
		}
		l.mu.Unlock()
	}
}
