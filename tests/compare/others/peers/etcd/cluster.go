package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/millrace/millrace/cmd/lab/peer"
)

// The settings are etcd's defaults, except an election timeout that a busy disk does not reach, and a
// quota that a run does not.
const (
	electionMillis = 3000
	quotaBytes     = 8 << 30
	maxConnections = 16 // of all clients, to the server that leads
)

// cluster is a cluster of servers in this process with the connections of its clients, as a peer.Target.
type cluster struct {
	servers []*embed.Etcd
	clients []*clientv3.Client
}

func open(ctx context.Context, s peer.Setup) (peer.Target, error) {
	c := &cluster{}
	if err := c.start(ctx, s); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *cluster) start(ctx context.Context, s peer.Setup) error {
	var configs []*embed.Config
	var members []string
	for i := range s.Hosts {
		config, err := configOf(i, s.Dir)
		if err != nil {
			return err
		}
		configs = append(configs, config)
		members = append(members, fmt.Sprintf("%s=%s", config.Name, config.AdvertisePeerUrls[0].String()))
	}
	for _, config := range configs {
		config.InitialCluster = strings.Join(members, ",")
		server, err := embed.StartEtcd(config)
		if err != nil {
			return err
		}
		c.servers = append(c.servers, server)
	}
	for _, server := range c.servers {
		select {
		case <-server.Server.ReadyNotify():
		case err := <-server.Err():
			return err
		case <-ctx.Done():
			return fmt.Errorf("waiting for the servers: %w", ctx.Err())
		}
	}
	return c.connect(min(s.InFlight, maxConnections))
}

func configOf(i int, dir string) (*embed.Config, error) {
	config := embed.NewConfig()
	config.Name = fmt.Sprintf("member-%d", i+1)
	config.Dir = filepath.Join(dir, config.Name)
	config.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	config.ElectionMs = electionMillis
	config.QuotaBackendBytes = quotaBytes
	for _, urls := range []*[]url.URL{&config.ListenPeerUrls, &config.ListenClientUrls} {
		free, err := freeURL()
		if err != nil {
			return nil, err
		}
		*urls = []url.URL{free}
	}
	config.AdvertisePeerUrls, config.AdvertiseClientUrls = config.ListenPeerUrls, config.ListenClientUrls
	return config, nil
}

// freeURL returns an address that was free a moment ago: all members have to know it before one listens.
func freeURL() (url.URL, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return url.URL{}, err
	}
	return url.URL{Scheme: "http", Host: listener.Addr().String()}, listener.Close()
}

// connect opens the clients' connections to the server that leads.
func (c *cluster) connect(connections int) error {
	leads := slices.IndexFunc(c.servers, func(s *embed.Etcd) bool { return s.Server.MemberID() == s.Server.Leader() })
	if leads < 0 {
		return errors.New("the servers are ready and none of them leads")
	}
	for range connections {
		client, err := clientOf(c.servers[leads])
		if err != nil {
			return err
		}
		c.clients = append(c.clients, client)
	}
	return nil
}

func clientOf(server *embed.Etcd) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints: []string{server.Config().ListenClientUrls[0].String()}, DialTimeout: 5 * time.Second, Logger: zap.NewNop(),
	})
}

// Propose implements peer.Target.
func (c *cluster) Propose(ctx context.Context, value []byte) error {
	id := peer.IDOf(value)
	_, err := c.clients[int(id.Client)%len(c.clients)].Put(ctx, keyOf(id), string(value))
	return err
}

// keyOf is the key of a value: no two values have the same.
func keyOf(id peer.ValueID) string { return fmt.Sprintf("%08x/%016x", id.Client, id.Seq) }

// Counters implements peer.Target. fsyncs are those of the logs, which etcd counts, and two for each commit
// of the databases.
func (c *cluster) Counters() peer.Counters {
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		return peer.Counters{}
	}
	samples := func(name string) uint64 {
		at := slices.IndexFunc(families, func(f *dto.MetricFamily) bool { return f.GetName() == name })
		if at < 0 {
			return 0
		}
		return families[at].GetMetric()[0].GetHistogram().GetSampleCount()
	}
	const fsyncsOfCommit = 2
	return peer.Counters{Fsyncs: samples("etcd_disk_wal_fsync_duration_seconds") + fsyncsOfCommit*samples("etcd_disk_backend_commit_duration_seconds")}
}

// Close implements peer.Target.
func (c *cluster) Close() error {
	var errs []error
	for _, client := range c.clients {
		errs = append(errs, client.Close())
	}
	for _, server := range c.servers {
		server.Close()
	}
	return errors.Join(errs...)
}
