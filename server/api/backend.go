package api

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/internal/timelimit"
	"github.com/millrace/millrace/server/command"
	"github.com/millrace/millrace/server/config"
	"github.com/millrace/millrace/server/kv"
)

// Node is the node of the service.
type Node = millrace.Node[[]byte, command.Result]

// Backend is what the services stand on.
type Backend struct {
	Node   *Node
	Store  *kv.Machine
	Config *config.Config
	ID     uint64 // of this member
	// Stopping ends when the service stops. Streams end with it.
	Stopping context.Context
	Logger   *slog.Logger
	// Pending counts commands that wait for their outcome.
	Pending atomic.Int64
	// learns is what Learner said last: each request asks.
	learns atomic.Bool
	// limit bounds requests without a timer for each.
	limit timelimit.Limit
}

// RequestTimeout is how long a request may wait for its outcome, as in etcd.
func (b *Backend) RequestTimeout() time.Duration { return 5*time.Second + 2*b.Config.ElectionTimeout }

// Header returns the header of an answer at a revision.
func (b *Backend) Header(revision int64) *pb.ResponseHeader {
	return b.fill(&pb.ResponseHeader{Revision: revision})
}

// fill fills in a header whose revision is known.
func (b *Backend) fill(h *pb.ResponseHeader) *pb.ResponseHeader {
	if h == nil {
		h = &pb.ResponseHeader{}
	}
	if h.Revision == 0 {
		h.Revision, _ = b.Store.Revision()
	}
	return b.identify(h)
}

// identify fills in a header except its revision.
func (b *Backend) identify(h *pb.ResponseHeader) *pb.ResponseHeader {
	h.ClusterId, h.MemberId, h.RaftTerm = b.Node.Host().Cluster(), b.ID, b.Node.Status().Term
	return h
}

// propose proposes a command and returns its result. A refusal of the state machine is an error of etcd's.
func (b *Backend) propose(ctx context.Context, cmd []byte) (command.Result, error) {
	bounded := b.limit.With(ctx, b.RequestTimeout())
	defer bounded.Release()
	b.Pending.Add(1)
	defer b.Pending.Add(-1)
	r, err := b.Node.Propose(bounded, cmd)
	if err != nil {
		return r, rpcError(ctx, err)
	}
	return r, command.Error(r.Err)
}

// answer proposes a command and decodes the answer that the state machine has built for it.
func (b *Backend) answer(ctx context.Context, cmd []byte, into proto.Message) error {
	if len(cmd) > b.Config.MaxRequestBytes { // the service's own commands may be larger: they gather
		return rpctypes.ErrGRPCRequestTooLarge
	}
	r, err := b.propose(ctx, cmd)
	if err != nil {
		return err
	}
	if err := proto.Unmarshal(r.Response, into); err != nil {
		return status.Errorf(codes.Internal, "millrace: the answer of the state machine cannot be decoded: %v", err)
	}
	return nil
}

// view calls f when the state may be read: linearizably, or as this member has it.
func (b *Backend) view(ctx context.Context, serializable bool, f func() error) error {
	read := func(millrace.ReadAt) error { return f() }
	if serializable { // waits for nothing
		return rpcError(ctx, b.Node.View(ctx, millrace.Local, read))
	}
	bounded := b.limit.With(ctx, b.RequestTimeout())
	defer bounded.Release()
	return rpcError(ctx, b.Node.View(bounded, millrace.Linearizable, read))
}

// Read makes a read of nothing: it returns nil when the state may be read.
func (b *Backend) Read(ctx context.Context, serializable bool) error {
	return b.view(ctx, serializable, func() error { return nil })
}

// rpcError returns the error of etcd for an error of the node. ctx is that of the client.
func rpcError(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	switch {
	case ctx.Err() != nil:
		return status.FromContextError(ctx.Err()).Err()
	case errors.Is(err, millrace.ErrOverloaded):
		return rpctypes.ErrTooManyRequests
	case errors.Is(err, millrace.ErrTooLarge):
		return rpctypes.ErrGRPCRequestTooLarge
	case errors.Is(err, millrace.ErrSkipped):
		return status.Error(codes.Aborted, "millrace: "+err.Error())
	case millrace.MayHaveCommitted(err): // of a machine that halts at it, too
		return rpctypes.ErrGRPCTimeout
	case errors.Is(err, millrace.ErrMachineHalted):
		return status.Error(codes.Unavailable, "millrace: the state machine of this member is halted; ask another member. "+err.Error())
	case errors.Is(err, context.DeadlineExceeded):
		return rpctypes.ErrGRPCTimeout
	case errors.Is(err, millrace.ErrStopped), errors.Is(err, millrace.ErrRemoved):
		return rpctypes.ErrGRPCStopped
	}
	return status.Error(codes.Unknown, err.Error())
}
