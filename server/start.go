package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/server/answers"
	"github.com/millrace/millrace/server/api"
	"github.com/millrace/millrace/server/command"
	"github.com/millrace/millrace/server/config"
	"github.com/millrace/millrace/server/front"
	"github.com/millrace/millrace/server/kv"
	"github.com/millrace/millrace/server/ops"
	"github.com/millrace/millrace/server/watch"
)

// Config configures a member. package config says what each field means.
type Config struct {
	*config.Config
	// Logger gets the log lines; default slog.Default().
	Logger *slog.Logger
	// Fatal is called with an error of the disk after which the process must end at once, by any goroutine. It
	// does not return. Default: a panic with the error.
	Fatal func(error)
}

// Server is a running member of the service.
type Server struct {
	c        Config
	logger   *slog.Logger
	store    *kv.Machine
	node     *api.Node
	backend  *api.Backend
	services *api.Services
	watches  *watch.Service
	front    *front.Front
	client   *clientv3.Client
	metrics  *ops.Metrics
	elected  atomic.Uint64 // leaders that were seen

	stop    context.CancelFunc // ends streams and what runs beside them
	ending  atomic.Bool
	ready   chan struct{}
	failed  chan error
	running sync.WaitGroup
	once    sync.Once
	closed  error
}

// Start starts a member in its directory, new or used before, and returns when clients can connect. It
// does not wait for other members: requests do. ctx bounds the start only.
func Start(ctx context.Context, c Config) (*Server, error) {
	s := &Server{c: c, logger: c.Logger, ready: make(chan struct{}), failed: make(chan error, 1)}
	if s.logger == nil {
		s.logger = slog.Default()
	}
	if err := s.open(ctx); err != nil {
		s.abandon()
		if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
			err = fmt.Errorf("the disk is full: make space for %s, then start the member again: %w", c.Dir, err)
		}
		return nil, err
	}
	return s, nil
}

// open opens everything, from the listeners to the services.
func (s *Server) open(ctx context.Context) (err error) {
	c := s.c
	if err := config.CheckDir(c.Dir); err != nil {
		return err
	}
	self, ok := c.Self()
	if !ok {
		return fmt.Errorf("this member, %q, is none of the members of the cluster", c.Name)
	}
	if s.front, err = front.Open(c.Config, s.logger); err != nil {
		return err
	}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return fmt.Errorf("make the data directory: %w", err)
	}
	s.store, err = kv.Open(kv.Options{
		Dir: filepath.Join(c.Dir, "state"), Engine: c.Engine, HeadCacheBytes: c.HeadCacheBytes, ValueCacheBytes: c.ValueCacheBytes, BlockCacheBytes: c.BlockCacheBytes,
		FeedBytes: c.FeedBytes, Answers: answers.New(c.RangeBytes), QuotaBytes: c.QuotaBytes, Logger: s.logger, Fatal: c.Fatal,
	})
	if err != nil {
		return fmt.Errorf("open the state in %s: %w", c.Dir, err)
	}
	node, err := nodeConfig(c, s.logger)
	if err != nil {
		return err
	}
	if s.node, err = millrace.Open(ctx, node, s.store.Millrace()); err != nil {
		return err
	}
	debug.FreeOSMemory() // a log is read in buffers of whole segments, which a collection would find much later
	return s.serve(self)
}

// maxSocketPath is the longest path of a Unix socket that all systems take.
const maxSocketPath = 103

// maxLogBytes bounds the log between two snapshots, and behind one. A snapshot of the engine is links to its
// tables and costs what has changed. So it need not become rare as the store grows. A start reads the log,
// and a store of 20 GiB must not have as much of it.
const maxLogBytes = 128 << 20

// keptIntervals is how much of the log stays behind a snapshot, in intervals between two of them, if
// Config.SnapshotLogBytes sets these.
const keptIntervals = 2

// nodeConfig is the configuration of the node.
func nodeConfig(c Config, logger *slog.Logger) (n millrace.Config, err error) {
	n = millrace.Config{
		Dir: filepath.Join(c.Dir, "raft"), Members: map[uint64]string{}, Listen: c.ListenPeer.Host,
		HeartbeatInterval: c.HeartbeatInterval, ElectionTimeout: c.ElectionTimeout,
		MaxCommandBytes: 8 << 20, AdminSocket: true, Logger: logger,
	}
	n.Snapshots.MaxLogBytes = maxLogBytes
	if c.SnapshotLogBytes > 0 {
		n.Snapshots.LogBytes, n.Snapshots.KeepBytes = c.SnapshotLogBytes, keptIntervals*c.SnapshotLogBytes
	}
	if socket := filepath.Join(n.Dir, "admin.sock"); len(socket) > maxSocketPath {
		n.AdminSocket = false
		logger.Warn("there is no admin socket, because its path would be too long: millrace members and snapshot save need a shorter --data-dir", "path", socket)
	}
	for _, m := range c.Cluster {
		u, err := url.Parse(m.PeerURLs[0])
		if err != nil {
			return n, fmt.Errorf("the peer URL of member %s: %w", m.Name, err)
		}
		id := m.ID(c.Token)
		if other, taken := n.Members[id]; taken {
			return n, fmt.Errorf("two members have the peer URLs of %s (%s)", m.Name, other)
		}
		if n.Members[id] = u.Host; m.Name == c.Name {
			n.ID = id
		}
		n.Insecure = n.Insecure || c.ListenPeer.Scheme == "http" && !loopback(u.Hostname())
	}
	if c.ListenPeer.Scheme == "https" {
		n.TLS = &millrace.TLS{CertFile: c.PeerTLS.CertFile, KeyFile: c.PeerTLS.KeyFile, CAFile: c.PeerTLS.CAFile}
	}
	return n, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// serve begins to serve clients.
func (s *Server) serve(self config.Member) (err error) {
	stopping, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.backend = &api.Backend{Node: s.node, Store: s.store, Config: s.c.Config, ID: self.ID(s.c.Token), Stopping: stopping, Logger: s.logger}
	s.watches = watch.New(watch.Options{
		Store: s.store, Header: s.backend.Header, MemoryBytes: s.c.WatchBytes, ProgressInterval: s.c.ProgressInterval,
		MaxResponse: s.c.MaxRequestBytes + 512<<10,
	})
	s.client, err = clientv3.New(clientv3.Config{
		Endpoints: []string{"http://" + s.c.Name + ".inside"}, DialOptions: s.front.Inside(), Logger: zap.NewNop(),
	})
	if err != nil {
		return fmt.Errorf("the client inside: %w", err)
	}
	s.services = api.New(s.backend, s.watches, s.client)
	clusterVersion := api.StorageVersion
	s.metrics = ops.NewMetrics(s.backend.ID, api.Version, clusterVersion, s.c.ExtensiveMetrics, s.sample)
	member := ops.Member{
		Version: api.Version, ClusterVersion: clusterVersion, Timeout: s.backend.RequestTimeout(),
		Leader: func() uint64 { return s.node.Status().Leader }, Learner: s.backend.Learner, Alarms: s.store.Alarms,
		Read: s.backend.Read, Ending: s.ending.Load,
	}
	o := front.Options{
		Answers:  s.store.Answers(),
		Register: s.services.Register, Pages: ops.Pages(member, s.metrics.Handler(), s.c.Pprof), Metrics: ops.Pages(member, s.metrics.Handler(), false),
		Unary:  []grpc.UnaryServerInterceptor{s.metrics.GRPC.UnaryServerInterceptor(), s.services.Unary},
		Stream: []grpc.StreamServerInterceptor{s.metrics.GRPC.StreamServerInterceptor(), s.services.Stream},
	}
	if err := s.front.Serve(o, s.fail); err != nil {
		return err
	}
	s.running.Go(func() { s.watches.Run(stopping) })
	s.running.Go(func() { s.introduce(stopping, self) })
	s.running.Go(func() { s.upgrade(stopping) })
	s.running.Go(func() { s.countLeaders(stopping) })
	s.running.Go(func() { s.sayWhoIsMissing(stopping) })
	s.running.Go(func() {
		select {
		case <-s.node.Failed():
			s.fail(fmt.Errorf("the node has stopped: %w", s.node.Err()))
		case <-stopping.Done():
		}
	})
	s.services.Run()
	return nil
}

// fail reports what ends the service.
func (s *Server) fail(err error) {
	select {
	case s.failed <- err:
	default:
	}
}

// introduceInterval is how long the member waits before it tells its name once more, after a failure.
const introduceInterval = time.Second

// introduce waits until the member can serve, and tells the others its name and where clients reach it.
func (s *Server) introduce(ctx context.Context, self config.Member) {
	if s.node.WaitReady(ctx) != nil {
		return
	}
	close(s.ready)
	s.front.SetServing(true)
	s.logger.Info("ready to serve client requests", "member", fmt.Sprintf("%x", s.backend.ID), "name", s.c.Name, "cluster", fmt.Sprintf("%x", s.node.Host().Cluster()))
	told := [][]byte{command.Attributes(s.backend.ID, s.c.Name, self.PeerURLs, s.c.AdvertiseClient)}
	if s.store.Quota() != s.c.QuotaBytes {
		told = append(told, command.Settings(s.c.QuotaBytes))
	}
	for len(told) > 0 {
		bounded, cancel := context.WithTimeout(ctx, s.backend.RequestTimeout())
		_, err := s.node.Propose(bounded, told[0])
		cancel()
		if err == nil {
			told = told[1:]
			continue
		}
		select {
		case <-time.After(introduceInterval):
		case <-ctx.Done():
			return
		}
	}
}

// countLeaders counts the leaders that this member sees come.
func (s *Server) countLeaders(ctx context.Context) {
	tick := time.NewTicker(s.c.HeartbeatInterval)
	defer tick.Stop()
	for last := uint64(0); ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if now := s.node.Status().Leader; now != 0 && now != last {
			s.elected.Add(1)
			last = now
		}
	}
}

// Ready returns a channel that is closed when the member can serve: it has a leader and has caught up once.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Failed returns a channel that gets the reason if the service fails. Close it then.
func (s *Server) Failed() <-chan error { return s.failed }

// Client returns a client of this member in this process. Do not close it.
func (s *Server) Client() *clientv3.Client { return s.client }

// Addrs returns where clients are served, in the order of the URLs of the configuration.
func (s *Server) Addrs() []net.Addr { return s.front.Addrs() }

// ID returns the id of the member.
func (s *Server) ID() uint64 { return s.backend.ID }

// Node returns the node, for what is not in this package.
func (s *Server) Node() *api.Node { return s.node }

// abandon closes what a start that failed has opened.
func (s *Server) abandon() {
	if s.stop != nil {
		s.stop()
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if s.front != nil {
		s.front.Close(ctx)
	}
	if s.client != nil {
		_ = s.client.Close()
	}
	s.running.Wait()
	if s.node != nil {
		_ = s.node.Close(ctx)
	}
	if s.store != nil {
		_ = s.store.Close()
	}
}

// cutClient is how long locks and elections may use the client of this process once the member stops.
const cutClient = time.Second

// Close ends the member in order. It says that it stops, and hands its leadership over. Watches end with an
// error after which clients go to another member. What is under way is answered, and the log is synced and
// closed. ctx bounds all of that; requests have StopTimeout.
func (s *Server) Close(ctx context.Context) error {
	s.once.Do(func() { s.closed = s.close(ctx) })
	return s.closed
}

func (s *Server) close(ctx context.Context) error {
	s.ending.Store(true)
	s.front.SetServing(false)
	s.node.Host().HandOver()
	s.stop()
	drain, cancel := context.WithTimeout(ctx, s.c.StopTimeout)
	// A lock that waited gives its place up through the client of this process. If that finds no connection any
	// more, it waits without a bound, and front waits for it. Its lease ends the place then.
	cut := time.AfterFunc(min(cutClient, s.c.StopTimeout), func() { _ = s.client.Close() })
	s.front.Close(drain)
	cut.Stop()
	cancel()
	s.running.Wait()
	s.services.Wait()
	_ = s.client.Close()
	err := s.node.Close(ctx)
	return errors.Join(err, s.store.Close())
}
