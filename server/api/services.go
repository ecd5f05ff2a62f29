package api

import (
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3election"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3election/v3electionpb"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"
	"google.golang.org/grpc"
)

// Services are all services of a member.
type Services struct {
	*Backend
	watch      pb.WatchServer
	renewals   *renewals
	leaderless *leaderless
	client     *clientv3.Client
	running    sync.WaitGroup
}

// New returns the services. client reaches them in this process: the lock and election services are clients.
func New(b *Backend, watch pb.WatchServer, client *clientv3.Client) *Services {
	return &Services{Backend: b, watch: watch, renewals: newRenewals(b), leaderless: newLeaderless(b), client: client}
}

// Register registers all services.
func (s *Services) Register(r grpc.ServiceRegistrar) {
	pb.RegisterKVServer(r, keys{Backend: s.Backend})
	pb.RegisterWatchServer(r, s.watch)
	pb.RegisterLeaseServer(r, leases{Backend: s.Backend, renewals: s.renewals})
	pb.RegisterClusterServer(r, cluster{Backend: s.Backend})
	pb.RegisterMaintenanceServer(r, maintenance{Backend: s.Backend})
	pb.RegisterAuthServer(r, auth{Backend: s.Backend})
	v3lockpb.RegisterLockServer(r, v3lock.NewLockServer(s.client))
	v3electionpb.RegisterElectionServer(r, v3election.NewElectionServer(s.client))
}

// Run runs what works beside requests, until Backend.Stopping ends.
func (s *Services) Run() {
	s.running.Go(s.renewals.run)
	s.running.Go(s.leaderless.run)
	s.running.Go(func() { s.expireLeases(s.Stopping) })
	s.running.Go(func() { s.compactAlone(s.Stopping) })
}

// Wait returns when all of that has ended.
func (s *Services) Wait() { s.running.Wait() }
