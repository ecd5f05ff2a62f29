package api

import (
	"context"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/api/v3/version"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/millrace/millrace/server/command"
)

// Version is the version of etcd whose API is served, as clients are told.
var Version = version.Version

// StorageVersion is the version of etcd's storage that clients are told: its minor version.
const StorageVersion = "3.7.0"

// maintenance is the Maintenance service.
type maintenance struct {
	pb.UnimplementedMaintenanceServer
	*Backend
}

func (s maintenance) Status(context.Context, *pb.StatusRequest) (*pb.StatusResponse, error) {
	st := s.Node.Status()
	disk, inUse := s.Store.Sizes()
	resp := &pb.StatusResponse{
		Header: s.fill(nil), Version: Version, StorageVersion: StorageVersion,
		Leader: st.Leader, RaftIndex: st.Committed, RaftAppliedIndex: st.Applied, RaftTerm: st.Term,
		DbSize: disk, DbSizeInUse: inUse, DbSizeQuota: s.Store.Quota(), IsLearner: s.Learner(), DowngradeInfo: &pb.DowngradeInfo{},
	}
	if st.Leader == 0 {
		resp.Errors = append(resp.Errors, "etcdserver: no leader")
	}
	for _, a := range s.Store.Alarms() {
		resp.Errors = append(resp.Errors, a.String())
	}
	return resp, nil
}

// Learner reports whether this member has no vote.
func (b *Backend) Learner() bool { return slices.Contains(b.Node.Members().Learners, b.ID) }

func (s maintenance) Hash(ctx context.Context, _ *pb.HashRequest) (*pb.HashResponse, error) {
	h, err := s.Store.Hash(ctx)
	if err != nil {
		return nil, rpcError(ctx, err)
	}
	return &pb.HashResponse{Header: s.fill(nil), Hash: h}, nil
}

func (s maintenance) HashKV(ctx context.Context, r *pb.HashKVRequest) (*pb.HashKVResponse, error) {
	h, compacted, at, err := s.Store.HashKV(ctx, r.Revision)
	if err != nil {
		return nil, rpcError(ctx, err)
	}
	return &pb.HashKVResponse{Header: s.fill(nil), Hash: h, CompactRevision: compacted, HashRevision: at}, nil
}

func (s maintenance) Defragment(ctx context.Context, _ *pb.DefragmentRequest) (*pb.DefragmentResponse, error) {
	if err := s.Store.Defragment(ctx); err != nil {
		return nil, rpcError(ctx, err)
	}
	return &pb.DefragmentResponse{}, nil
}

func (s maintenance) Alarm(ctx context.Context, r *pb.AlarmRequest) (*pb.AlarmResponse, error) {
	resp := &pb.AlarmResponse{}
	if _, known := pb.AlarmRequest_AlarmAction_name[int32(r.Action)]; !known {
		return nil, status.Errorf(codes.InvalidArgument, "millrace: an alarm has no action %d: GET, ACTIVATE or DEACTIVATE", r.Action)
	}
	if r.Action != pb.AlarmRequest_GET {
		if err := s.answer(ctx, command.Alarm(r), resp); err != nil {
			return nil, err
		}
	} else if err := s.view(ctx, false, func() error {
		resp.Alarms = nil // it may be called again
		for _, a := range s.Store.Alarms() {
			if r.Alarm == pb.AlarmType_NONE || r.Alarm == a.Alarm {
				resp.Alarms = append(resp.Alarms, a)
			}
		}
		return nil
	}); err != nil {
		return nil, err
	}
	resp.Header = s.fill(resp.Header)
	return resp, nil
}

func (s maintenance) MoveLeader(ctx context.Context, r *pb.MoveLeaderRequest) (*pb.MoveLeaderResponse, error) {
	if s.Node.Status().Leader != s.ID {
		return nil, rpctypes.ErrGRPCNotLeader
	}
	if !slices.Contains(s.Node.Members().Voters, r.TargetID) {
		return nil, rpctypes.ErrGRPCBadLeaderTransferee
	}
	if r.TargetID != s.ID {
		bounded, cancel := context.WithTimeout(ctx, s.RequestTimeout())
		defer cancel()
		if err := s.Node.TransferLeadership(bounded, r.TargetID); err != nil {
			return nil, rpcError(ctx, err)
		}
	}
	return &pb.MoveLeaderResponse{}, nil
}

func (maintenance) Snapshot(*pb.SnapshotRequest, pb.Maintenance_SnapshotServer) error {
	return status.Error(codes.Unimplemented, "millrace: this version writes no snapshot in etcd's format; \"millrace snapshot save\" makes a backup at the admin socket")
}

func (maintenance) Downgrade(context.Context, *pb.DowngradeRequest) (*pb.DowngradeResponse, error) {
	return nil, status.Error(codes.Unimplemented, "millrace: old and new members run side by side, so there is no mode for downgrades")
}

// auth is the Auth service of a cluster without users: authentication is off.
type auth struct {
	pb.UnimplementedAuthServer
	*Backend
}

func (s auth) AuthStatus(context.Context, *pb.AuthStatusRequest) (*pb.AuthStatusResponse, error) {
	return &pb.AuthStatusResponse{Header: s.fill(nil), AuthRevision: 1}, nil // etcd begins so
}

func (auth) Authenticate(context.Context, *pb.AuthenticateRequest) (*pb.AuthenticateResponse, error) {
	return nil, rpctypes.ErrGRPCAuthNotEnabled
}

func (s auth) UserList(context.Context, *pb.AuthUserListRequest) (*pb.AuthUserListResponse, error) {
	return &pb.AuthUserListResponse{Header: s.fill(nil)}, nil
}

func (s auth) RoleList(context.Context, *pb.AuthRoleListRequest) (*pb.AuthRoleListResponse, error) {
	return &pb.AuthRoleListResponse{Header: s.fill(nil)}, nil
}
