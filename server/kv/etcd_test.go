package kv

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/server/command"
)

var (
	etcdBinary   = flag.String("etcd", os.Getenv("MILLRACE_TEST_ETCD"), "etcd 3.7 to compare with")
	etcdPort     = flag.Int("etcd.port", 24790, "its client port; the next one is its peer port")
	etcdCommands = flag.Int("etcd.commands", 3000, "requests to compare")
	etcdSeed     = flag.Uint64("etcd.seed", 1, "seed")
)

// startEtcd starts an etcd server, which ends with the test.
func startEtcd(t *testing.T) *grpc.ClientConn {
	if *etcdBinary == "" {
		t.Skip("no etcd to compare with: set -etcd or MILLRACE_TEST_ETCD to the path of etcd 3.7")
	}
	client, peer := fmt.Sprintf("http://127.0.0.1:%d", *etcdPort), fmt.Sprintf("http://127.0.0.1:%d", *etcdPort+1)
	cmd := exec.Command(*etcdBinary, "--data-dir", t.TempDir(), "--name", "one", "--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "one="+peer, "--unsafe-no-fsync", "--log-level", "error")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	conn, err := grpc.NewClient(fmt.Sprintf("127.0.0.1:%d", *etcdPort), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, err := pb.NewKVClient(conn).Range(ctx, &pb.RangeRequest{Key: []byte("a")}, grpc.WaitForReady(true)); err != nil {
		t.Fatalf("etcd does not come up: %v", err)
	}
	return conn
}

// TestLikeEtcd sends random requests to etcd and to machines on both engines. Answers must be equal, apart
// from the ids in headers: of changes, ranges with all options, transactions, compactions, and etcd's hash at
// random revisions.
func TestLikeEtcd(t *testing.T) {
	conn := startEtcd(t)
	c := &likeness{T: t, draw: draw{rand.New(rand.NewPCG(*etcdSeed, 37))}, kv: pb.NewKVClient(conn), leases: pb.NewLeaseClient(conn), maintenance: pb.NewMaintenanceClient(conn), twin: newModel(), hashed: map[int64]bool{}}
	c.machines = []*Machine{must(Open(Options{Engine: "memory"})), must(Open(Options{Engine: "pebble", Dir: t.TempDir(), HeadCacheBytes: forgetful, BlockCacheBytes: 1 << 20}))}
	for _, m := range c.machines {
		defer m.Close()
	}
	for n := range *etcdCommands {
		c.request(n)
	}
}

type likeness struct {
	*testing.T
	draw
	kv          pb.KVClient
	leases      pb.LeaseClient
	maintenance pb.MaintenanceClient
	machines    []*Machine
	twin        *model // its revisions only
	hashed      map[int64]bool
}

// request draws a request, and compares.
func (c *likeness) request(n int) {
	ctx := c.Context()
	switch k := c.IntN(100); {
	case k < 30:
		req := c.put()
		want, err := c.kv.Put(ctx, req)
		c.apply(n, req, must(command.Put(req)), want, err, &pb.PutResponse{})
	case k < 38:
		req := c.delete()
		want, err := c.kv.DeleteRange(ctx, req)
		c.apply(n, req, must(command.DeleteRange(req)), want, err, &pb.DeleteRangeResponse{})
	case k < 60:
		req := c.txn(c.twin, 1, allFree())
		want, err := c.kv.Txn(ctx, req)
		c.apply(n, req, must(command.Txn(req)), want, err, &pb.TxnResponse{})
	case k < 63:
		req := &pb.CompactionRequest{Revision: c.revision(c.twin), Physical: true}
		want, err := c.kv.Compact(ctx, req)
		if err == nil {
			c.hashed[req.Revision] = true
		}
		c.apply(n, req, must(command.Compact(req)), want, err, &pb.CompactionResponse{})
	case k < 67:
		req := &pb.LeaseGrantRequest{ID: 1 + c.Int64N(4), TTL: 100_000}
		want, err := c.leases.LeaseGrant(ctx, req)
		c.apply(n, req, command.LeaseGrant(req.ID, req.TTL), want, err, &pb.LeaseGrantResponse{})
	case k < 69:
		req := &pb.LeaseRevokeRequest{ID: 1 + c.Int64N(4)}
		want, err := c.leases.LeaseRevoke(ctx, req)
		c.apply(n, req, command.LeaseRevoke(req.ID), want, err, &pb.LeaseRevokeResponse{})
	case k < 75:
		req := &pb.HashKVRequest{Revision: c.revision(c.twin)}
		if c.hashed[req.Revision] || req.Revision < 0 { // etcd keeps the hashes that it has made while it compacted
			return
		}
		want, err := c.maintenance.HashKV(ctx, req)
		for _, m := range c.machines {
			hash, compacted, rev, have := m.HashKV(ctx, req.Revision)
			if sameError(have, err) && (err != nil || hash == want.Hash && compacted == want.CompactRevision && rev == want.HashRevision) {
				continue
			}
			c.Fatalf("request %d, engine %s, hash at %d:\nhave %d, compacted %d, revision %d, %v\nwant %v, %v", n, m.o.Engine, req.Revision, hash, compacted, rev, have, want, err)
		}
	case k < 80:
		req := &pb.TxnRequest{Compare: []*pb.Compare{c.compare(c.twin)}}
		for _, ops := range []*[]*pb.RequestOp{&req.Success, &req.Failure} {
			for range c.IntN(3) {
				*ops = append(*ops, &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: c.rangeOf(c.twin)}})
			}
		}
		want, err := c.kv.Txn(ctx, req)
		for _, m := range c.machines {
			have, e := m.Txn(ctx, req)
			c.same(n, m, req, have, e, want, err)
		}
	default:
		req := c.rangeOf(c.twin)
		want, err := c.kv.Range(ctx, req)
		for _, m := range c.machines {
			have, e := m.Range(ctx, req)
			c.same(n, m, req, have, e, want, err)
		}
	}
}

// apply applies a command to the machines.
func (c *likeness) apply(n int, req proto.Message, b []byte, want proto.Message, wantErr error, have proto.Message) {
	c.Helper()
	for _, m := range c.machines {
		r := make([]command.Result, 1)
		if err := m.Apply([]millrace.Command[[]byte]{{Index: m.Applied() + 1, Awaited: true, Value: b}}, r); err != nil {
			c.Fatalf("request %d, %v: %v", n, req, err)
		}
		proto.Reset(have)
		if err := proto.Unmarshal(r[0].Response, have); err != nil {
			c.Fatal(err)
		}
		c.same(n, m, req, have, command.Error(r[0].Err), want, wantErr)
		for int64(len(c.twin.states)) <= r[0].Revision {
			c.twin.states = append(c.twin.states, nil)
		}
	}
}

// same compares answers, without the ids in headers.
func (c *likeness) same(n int, m *Machine, req, have proto.Message, haveErr error, want proto.Message, wantErr error) {
	c.Helper()
	if wantErr == nil {
		if h := want.(interface{ GetHeader() *pb.ResponseHeader }).GetHeader(); h != nil {
			h.ClusterId, h.MemberId, h.RaftTerm = 0, 0, 0
		}
	}
	if !sameError(haveErr, wantErr) || wantErr == nil && !proto.Equal(have, want) {
		c.Fatalf("request %d, engine %s, %v:\nhave %v, %v\nwant %v, %v", n, m.o.Engine, req, have, haveErr, want, wantErr)
	}
}

func sameError(a, b error) bool {
	x, y := status.Convert(a), status.Convert(b)
	return x.Code() == y.Code() && x.Message() == y.Message()
}
