package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"

	"github.com/millrace/millrace/server/api"
	"github.com/millrace/millrace/server/config"
)

// Dev is a cluster for a first look: three members in one process, on loopback addresses.
type Dev struct{ Members []*Server }

// DevOptions are those of StartDev.
type DevOptions struct {
	Dir string // of all members; it is made if missing
	// Clients and Peers are the ports of the members on 127.0.0.1.
	Clients, Peers []int
	// Flags are more flags for all members.
	Flags  []string
	Logger *slog.Logger
	Fatal  func(error) // that of Config
}

// DevClients and DevPeers are the ports of "millrace serve --dev". Clients of etcd look at the first one.
var (
	DevClients = []int{2379, 22379, 32379}
	DevPeers   = []int{2380, 22380, 32380}
)

// StartDev starts as many members as there are ports.
func StartDev(ctx context.Context, o DevOptions) (*Dev, error) {
	d := &Dev{}
	if len(o.Clients) == 0 || len(o.Clients) != len(o.Peers) {
		return nil, fmt.Errorf("there are %d ports for clients and %d for members: each member needs one of both", len(o.Clients), len(o.Peers))
	}
	var initial []string
	for k, port := range o.Peers {
		initial = append(initial, fmt.Sprintf("dev%d=http://127.0.0.1:%d", k+1, port))
	}
	for k := range o.Clients {
		name := fmt.Sprintf("dev%d", k+1)
		l, err := config.Load(append([]string{
			"--name=" + name, "--data-dir=" + filepath.Join(o.Dir, name), "--initial-cluster=" + strings.Join(initial, ","),
			fmt.Sprintf("--listen-peer-urls=http://127.0.0.1:%d", o.Peers[k]),
			fmt.Sprintf("--listen-client-urls=http://127.0.0.1:%d", o.Clients[k]), fmt.Sprintf("--advertise-client-urls=http://127.0.0.1:%d", o.Clients[k]),
		}, o.Flags...), nil, nil)
		if err == nil {
			var m *Server
			if m, err = Start(ctx, Config{Config: l.Config, Logger: o.Logger.With("member", name), Fatal: o.Fatal}); err == nil {
				d.Members = append(d.Members, m)
				continue
			}
		}
		_ = d.Close(ctx)
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return d, nil
}

// Failed returns a channel that gets the reason if a member fails.
func (d *Dev) Failed(ctx context.Context) <-chan error {
	failed := make(chan error, len(d.Members))
	for _, m := range d.Members {
		go func() {
			select {
			case err := <-m.Failed():
				failed <- err
			case <-ctx.Done():
			}
		}()
	}
	return failed
}

// Close closes all members, one after the other.
func (d *Dev) Close(ctx context.Context) (err error) {
	for _, m := range d.Members {
		err = errors.Join(err, m.Close(ctx))
	}
	return err
}

// EtcdVersion is the version of etcd whose API is served.
var EtcdVersion = api.Version
