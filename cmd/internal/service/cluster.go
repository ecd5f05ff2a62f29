package service

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

// System is a service to measure.
type System struct {
	Name    string
	Command []string // its program; the flags of etcd follow
}

// cluster is a system that runs.
type cluster struct {
	System
	endpoints []string
	members   []*process
}

// startCluster starts a system with empty directories, which takes quota bytes of keys, and returns when it
// serves. It serves profiles if they are wanted.
func startCluster(ctx context.Context, s System, members int, dir string, quota int64, profiles bool) (_ *cluster, err error) {
	c := &cluster{System: s}
	defer func() {
		if err != nil {
			c.stop()
		}
	}()
	ports, err := freePorts(2 * members)
	if err != nil {
		return nil, err
	}
	var initial []string
	for i := range members {
		initial = append(initial, fmt.Sprintf("m%d=http://127.0.0.1:%d", i+1, ports[2*i+1]))
	}
	for i := range members {
		name := fmt.Sprintf("m%d", i+1)
		client, peer := fmt.Sprintf("http://127.0.0.1:%d", ports[2*i]), fmt.Sprintf("http://127.0.0.1:%d", ports[2*i+1])
		home := filepath.Join(dir, s.Name+"-"+name)
		if err := os.MkdirAll(home, 0o700); err != nil {
			return nil, err
		}
		p, err := startProcess(append(append([]string{}, s.Command...), "--name", name, "--data-dir", filepath.Join(home, "data"),
			"--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
			"--initial-cluster", strings.Join(initial, ","), "--initial-cluster-token", "bench", "--initial-cluster-state", "new",
			"--log-level", "error", "--quota-backend-bytes", fmt.Sprint(quota), fmt.Sprintf("--enable-pprof=%v", profiles)),
			filepath.Join(home, "log"))
		if err != nil {
			return nil, err
		}
		c.members = append(c.members, p)
		c.endpoints = append(c.endpoints, strings.TrimPrefix(client, "http://"))
	}
	return c, c.awaitReady(ctx)
}

// startTime bounds the start of a cluster.
const startTime = time.Minute

func (c *cluster) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	client, err := c.connect(c.endpoints)
	if err != nil {
		return err
	}
	defer client.Close()
	for {
		attempt, cancel := context.WithTimeout(ctx, time.Second)
		_, err := client.Put(attempt, "ready", c.Name)
		cancel()
		switch ended := c.err(); {
		case err == nil:
			return nil
		case ended != nil:
			return ended
		case ctx.Err() != nil:
			return fmt.Errorf("%s does not take a put within %v: %w", c.Name, startTime, err)
		}
	}
}

// err returns how the first member ended that does not run any more.
func (c *cluster) err() error {
	for _, p := range c.members {
		if err := p.err(); err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
	}
	return nil
}

// connect returns a client of some of the endpoints.
func (c *cluster) connect(endpoints []string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints: endpoints, DialTimeout: 5 * time.Second, Logger: zap.NewNop(), MaxCallSendMsgSize: 8 << 20, MaxCallRecvMsgSize: 256 << 20,
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.5, MaxDelay: time.Second}, MinConnectTimeout: time.Second})},
	})
}

// leader returns the endpoint of the member that leads.
func (c *cluster) leader(ctx context.Context) (string, error) {
	client, err := c.connect(c.endpoints)
	if err != nil {
		return "", err
	}
	defer client.Close()
	for _, e := range c.endpoints {
		s, err := client.Status(ctx, e)
		if err != nil {
			return "", fmt.Errorf("%s: status of %s: %w", c.Name, e, err)
		}
		if s.Leader == s.Header.MemberId {
			return e, nil
		}
	}
	return "", fmt.Errorf("%s has no leader", c.Name)
}

// use is what the members of a cluster have used.
type use struct {
	cpu    time.Duration // of all
	memory int64         // of the largest
}

func (c *cluster) use() (u use, err error) {
	for _, p := range c.members {
		cpu, err := p.cpu()
		if err != nil {
			return u, err
		}
		bytes, err := p.memory()
		if err != nil {
			return u, err
		}
		u.cpu += cpu
		u.memory = max(u.memory, bytes)
	}
	return u, nil
}

func (c *cluster) stop() {
	for _, p := range c.members {
		p.stop()
	}
}

// freePorts returns ports of loopback that are free at the moment.
func freePorts(n int) (ports []int, err error) {
	var open []net.Listener
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		open = append(open, l)
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	for _, l := range open {
		err = errors.Join(err, l.Close())
	}
	return ports, err
}
