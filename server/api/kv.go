package api

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/millrace/millrace/server/command"
)

// keys is the KV service.
type keys struct {
	pb.UnsafeKVServer
	*Backend
}

func (s keys) Range(ctx context.Context, r *pb.RangeRequest) (resp *pb.RangeResponse, err error) {
	if err := checkRange(r); err != nil {
		return nil, err
	}
	err = s.view(ctx, r.Serializable, func() (err error) {
		resp, err = s.Store.Range(ctx, r)
		return err
	})
	if err != nil {
		return nil, err
	}
	resp.Header = s.fill(resp.Header)
	return resp, nil
}

func (s keys) RangeStream(r *pb.RangeRequest, stream pb.KV_RangeStreamServer) error {
	if err := checkRange(r); err != nil {
		return err
	}
	switch {
	case r.SortOrder != pb.RangeRequest_NONE && (r.SortOrder != pb.RangeRequest_ASCEND || r.SortTarget != pb.RangeRequest_KEY):
		return status.Error(codes.Unimplemented, "RangeStream does not support custom sort orders")
	case r.MinModRevision != 0 || r.MaxModRevision != 0 || r.MinCreateRevision != 0 || r.MaxCreateRevision != 0:
		return status.Error(codes.Unimplemented, "RangeStream does not support revision filters")
	}
	ctx := stream.Context()
	if err := s.view(ctx, r.Serializable, func() error { return nil }); err != nil {
		return err
	}
	// The read has no deadline of its own: a client takes the parts at its own pace.
	return rpcError(ctx, s.Store.RangeStream(ctx, r, func(part *pb.RangeStreamResponse) error {
		if h := part.GetRangeResponse().GetHeader(); h != nil {
			s.identify(h)
		}
		return stream.Send(part)
	}))
}

func (s keys) Put(ctx context.Context, r *pb.PutRequest) (*pb.PutResponse, error) {
	if err := checkPut(r); err != nil {
		return nil, err
	}
	cmd, err := command.Put(r)
	if err != nil {
		return nil, malformed(err)
	}
	resp := &pb.PutResponse{}
	if err := s.answer(ctx, cmd, resp); err != nil {
		return nil, err
	}
	resp.Header = s.fill(resp.Header)
	return resp, nil
}

func (s keys) DeleteRange(ctx context.Context, r *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
	if err := checkDelete(r); err != nil {
		return nil, err
	}
	cmd, err := command.DeleteRange(r)
	if err != nil {
		return nil, malformed(err)
	}
	resp := &pb.DeleteRangeResponse{}
	if err := s.answer(ctx, cmd, resp); err != nil {
		return nil, err
	}
	resp.Header = s.fill(resp.Header)
	return resp, nil
}

func (s keys) Txn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	if err := checkTxn(r, s.Config.MaxTxnOps); err != nil {
		return nil, err
	}
	for _, branch := range [][]*pb.RequestOp{r.Success, r.Failure} {
		if _, err := checkDuplicates(branch); err != nil {
			return nil, err
		}
	}
	resp := &pb.TxnResponse{}
	if yes, serializable := readOnly(r); yes {
		err := s.view(ctx, serializable, func() (err error) {
			resp, err = s.Store.Txn(ctx, r)
			return err
		})
		if err != nil {
			return nil, err
		}
	} else {
		cmd, err := command.Txn(r)
		if err != nil {
			return nil, malformed(err)
		}
		if err := s.answer(ctx, cmd, resp); err != nil {
			return nil, err
		}
	}
	resp.Header = s.fill(resp.Header)
	return resp, nil
}

func (s keys) Compact(ctx context.Context, r *pb.CompactionRequest) (*pb.CompactionResponse, error) {
	cmd, err := command.Compact(r)
	if err != nil {
		return nil, malformed(err)
	}
	resp := &pb.CompactionResponse{}
	if err := s.answer(ctx, cmd, resp); err != nil {
		return nil, err
	}
	if r.Physical {
		if err := s.swept(ctx, r.Revision); err != nil {
			return nil, err
		}
	}
	resp.Header = s.fill(resp.Header)
	return resp, nil
}

// swept returns when this member has removed what a compaction made useless. As in etcd, only the client's
// deadline bounds that.
func (b *Backend) swept(ctx context.Context, revision int64) error {
	for {
		through, wait := b.Store.Swept()
		if through >= revision {
			return nil
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		case <-b.Stopping.Done():
			return stopped()
		}
	}
}

func malformed(err error) error { return status.Error(codes.InvalidArgument, err.Error()) }
