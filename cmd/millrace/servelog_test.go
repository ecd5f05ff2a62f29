package main

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/millrace/millrace/internal/scratch"
	"github.com/millrace/millrace/server"
	"github.com/millrace/millrace/server/config"
)

// writeService writes the directory of a member of the service that has stopped. It returns the revisions
// that its client saw: of a put, a transaction that changes nothing, and a lease's put.
func writeService(t *testing.T) (dir string, revisions []int64) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "m1")
	peer, client := scratch.Address(t), scratch.Address(t)
	l, err := config.Load([]string{
		"--name=m1", "--data-dir=" + dir, "--listen-peer-urls=http://" + peer, "--initial-cluster=m1=http://" + peer,
		"--listen-client-urls=http://" + client, "--advertise-client-urls=http://" + client, "--heartbeat-interval=20", "--election-timeout=200",
	}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	m, err := server.Start(t.Context(), server.Config{Config: l.Config, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cl := m.Client()
	put, err := cl.Put(ctx, "a", "1")
	if err != nil {
		t.Fatal(err)
	}
	txn, err := cl.Txn(ctx).If(clientv3.Compare(clientv3.Value("a"), "=", "other")).Then(clientv3.OpPut("a", "2")).Commit()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cl.Put(ctx, "a", "3", clientv3.WithLease(99)); err == nil {
		t.Fatal("a put with a lease that is not there is taken")
	}
	lease, err := cl.Grant(ctx, 600)
	if err != nil {
		t.Fatal(err)
	}
	leased, err := cl.Put(ctx, "b", "1", clientv3.WithLease(lease.ID))
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Close(ctx); err != nil {
		t.Fatal(err)
	}
	return dir, []int64{put.Header.Revision, txn.Header.Revision, leased.Header.Revision}
}
