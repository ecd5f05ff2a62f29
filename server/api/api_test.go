package api

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/server/config"
)

// TestOutcomes holds what a client is told for each outcome of the node. An outcome that is not known
// must be a timeout with the code Unavailable, and nothing else may be one of that text.
func TestOutcomes(t *testing.T) {
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	for _, row := range []struct {
		ctx  context.Context
		err  error
		want error
	}{
		{context.Background(), nil, nil},
		{context.Background(), fmt.Errorf("x: %w", millrace.ErrIndeterminate), rpctypes.ErrGRPCTimeout},
		{context.Background(), millrace.ErrNoResult, rpctypes.ErrGRPCTimeout},
		{context.Background(), fmt.Errorf("%w: %w", millrace.ErrNoResult, millrace.ErrMachineHalted), rpctypes.ErrGRPCTimeout},
		{context.Background(), errors.Join(millrace.ErrNoQuorum, context.DeadlineExceeded), rpctypes.ErrGRPCTimeout},
		{context.Background(), millrace.ErrOverloaded, rpctypes.ErrTooManyRequests},
		{context.Background(), millrace.ErrTooLarge, rpctypes.ErrGRPCRequestTooLarge},
		{context.Background(), millrace.ErrStopped, rpctypes.ErrGRPCStopped},
		{context.Background(), rpctypes.ErrGRPCCompacted, rpctypes.ErrGRPCCompacted},
		{gone, millrace.ErrIndeterminate, status.Error(codes.Canceled, "context canceled")},
	} {
		have := rpcError(row.ctx, row.err)
		if status.Code(have) != status.Code(row.want) || status.Convert(have).Message() != status.Convert(row.want).Message() {
			t.Errorf("%v: %v, want %v", row.err, have, row.want)
		}
	}
	if have := rpcError(context.Background(), millrace.ErrMachineHalted); status.Code(have) != codes.Unavailable {
		t.Errorf("a halted machine: %v", have)
	}
}

func put(key string) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte(key)}}}
}

func del(key, end string) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte(key), RangeEnd: []byte(end)}}}
}

func txn(then, otherwise []*pb.RequestOp) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: &pb.TxnRequest{Success: then, Failure: otherwise}}}
}

func ops(o ...*pb.RequestOp) []*pb.RequestOp { return o }

// TestChecks holds the order of checks and what counts as a duplicate. package compat asks etcd the same.
func TestChecks(t *testing.T) {
	get := &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: []byte("k")}}}
	for k, row := range []struct {
		then, otherwise []*pb.RequestOp
		want            error
	}{
		{ops(put("a"), put("b")), ops(put("a")), nil},
		{ops(put("a"), put("a")), nil, rpctypes.ErrGRPCDuplicateKey},
		{ops(put("a"), del("a", "b")), nil, rpctypes.ErrGRPCDuplicateKey},
		{ops(del("a", "b"), put("b")), nil, nil},
		{ops(del("a", "\x00"), put("b")), nil, nil}, // etcd takes a range to the zero byte as an empty one here
		{ops(txn(ops(put("a")), ops(put("a")))), nil, nil},
		{ops(txn(ops(put("a")), nil), put("a")), nil, rpctypes.ErrGRPCDuplicateKey},
		{ops(txn(ops(put("a")), nil), txn(nil, ops(put("a")))), nil, rpctypes.ErrGRPCDuplicateKey},
		{ops(txn(ops(del("a", "")), nil), put("a")), nil, rpctypes.ErrGRPCDuplicateKey},
		{ops(&pb.RequestOp{}), nil, rpctypes.ErrGRPCKeyNotFound},
		{ops(put("")), nil, rpctypes.ErrGRPCEmptyKey},
		{ops(get, get, get, get, get), nil, rpctypes.ErrGRPCTooManyOps},
		{ops(get, get, txn(ops(get, get), nil)), nil, rpctypes.ErrGRPCTooManyOps},
		{ops(get, get, txn(ops(get), nil)), nil, nil},
	} {
		r := &pb.TxnRequest{Success: row.then, Failure: row.otherwise}
		err := checkTxn(r, 4)
		for _, branch := range [][]*pb.RequestOp{r.Success, r.Failure} {
			if err == nil {
				_, err = checkDuplicates(branch)
			}
		}
		if err != row.want {
			t.Errorf("row %d: %v, want %v", k, err, row.want)
		}
	}
}

func TestReadOnly(t *testing.T) {
	get := func(serializable bool) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: []byte("k"), Serializable: serializable}}}
	}
	for k, row := range []struct {
		then, otherwise   []*pb.RequestOp
		yes, serializable bool
	}{
		{nil, nil, true, true},
		{ops(get(true)), ops(get(true)), true, true},
		{ops(get(true)), ops(get(false)), true, false},
		{ops(get(true)), ops(put("a")), false, false},
		{ops(txn(nil, nil)), nil, false, false},
	} {
		yes, serializable := readOnly(&pb.TxnRequest{Success: row.then, Failure: row.otherwise})
		if yes != row.yes || serializable != row.serializable {
			t.Errorf("row %d: %v, %v", k, yes, serializable)
		}
	}
}

func TestTTLs(t *testing.T) {
	for election, want := range map[time.Duration]int64{100 * time.Millisecond: 1, time.Second: 2, 1001 * time.Millisecond: 2, 2 * time.Second: 3, 50 * time.Second: 75} {
		if have := (&Backend{Config: &config.Config{ElectionTimeout: election}}).minTTL(); have != want {
			t.Errorf("election timeout %v: %d s, want %d", election, have, want)
		}
	}
	for range 100 {
		if drawID() < 0 {
			t.Fatal("a negative id")
		}
	}
}

func TestSamples(t *testing.T) {
	now := time.Unix(1000, 0)
	samples := []sample{{now, 5}, {now.Add(time.Second), 9}, {now.Add(2 * time.Second), 12}}
	for after, want := range map[time.Duration]int64{-1: 0, 0: 5, 1500 * time.Millisecond: 9, time.Hour: 12} {
		if have, _ := before(samples, now.Add(after)); have != want {
			t.Errorf("after %v: revision %d, want %d", after, have, want)
		}
	}
}
