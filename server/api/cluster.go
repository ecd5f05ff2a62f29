package api

import (
	"context"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// cluster is the Cluster service.
type cluster struct {
	pb.UnimplementedClusterServer
	*Backend
}

func (s cluster) MemberList(ctx context.Context, r *pb.MemberListRequest) (*pb.MemberListResponse, error) {
	resp := &pb.MemberListResponse{}
	err := s.view(ctx, !r.Linearizable, func() error {
		resp.Members = s.Members()
		return nil
	})
	if err != nil {
		return nil, err
	}
	resp.Header = s.identify(&pb.ResponseHeader{}) // etcd tells no revision here
	return resp, nil
}

// Members returns the members in the order of their ids: what they have told of themselves, or what the
// configuration says of those that have not been up yet.
func (b *Backend) Members() []*pb.Member {
	known := map[uint64]*pb.Member{}
	for _, m := range b.Config.Cluster {
		id := m.ID(b.Config.Token)
		known[id] = &pb.Member{ID: id, PeerURLs: m.PeerURLs}
	}
	for _, m := range b.Store.Members() {
		known[m.ID] = &pb.Member{ID: m.ID, Name: m.Name, PeerURLs: m.PeerURLs, ClientURLs: m.ClientURLs}
	}
	now := b.Node.Members()
	var all []*pb.Member
	for _, id := range slices.Concat(now.Voters, now.Learners) {
		m := known[id]
		if m == nil {
			m = &pb.Member{ID: id}
		}
		m.IsLearner = slices.Contains(now.Learners, id)
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b *pb.Member) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	})
	return all
}

// unchanged says that members do not change by this API yet.
func unchanged() error {
	return status.Error(codes.Unimplemented, "millrace: this version does not change members by etcd's API; \"millrace members\" does it at the admin socket")
}

func (cluster) MemberAdd(context.Context, *pb.MemberAddRequest) (*pb.MemberAddResponse, error) {
	return nil, unchanged()
}

func (cluster) MemberRemove(context.Context, *pb.MemberRemoveRequest) (*pb.MemberRemoveResponse, error) {
	return nil, unchanged()
}

func (cluster) MemberUpdate(context.Context, *pb.MemberUpdateRequest) (*pb.MemberUpdateResponse, error) {
	return nil, unchanged()
}

func (cluster) MemberPromote(context.Context, *pb.MemberPromoteRequest) (*pb.MemberPromoteResponse, error) {
	return nil, unchanged()
}
