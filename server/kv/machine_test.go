package kv

import (
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/internal/scratch"
	"github.com/millrace/millrace/server/command"
	"github.com/millrace/millrace/server/lease"
	"github.com/millrace/millrace/smtest"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func put(key, value string) []byte {
	return must(command.Put(&pb.PutRequest{Key: []byte(key), Value: []byte(value), PrevKv: true}))
}

func del(key, end string) []byte {
	return must(command.DeleteRange(&pb.DeleteRangeRequest{Key: []byte(key), RangeEnd: []byte(end), PrevKv: true}))
}

// story is commands that reach every branch of the machine.
func story() [][]byte {
	leased := func(key string, id int64) []byte {
		return must(command.Put(&pb.PutRequest{Key: []byte(key), Value: []byte("leased"), Lease: id}))
	}
	ops := func(r ...*pb.RequestOp) []*pb.RequestOp { return r }
	putOp := func(key, value string) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte(key), Value: []byte(value)}}}
	}
	rangeOp := func(key, end string) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: []byte(key), RangeEnd: []byte(end)}}}
	}
	delOp := func(key, end string) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte(key), RangeEnd: []byte(end)}}}
	}
	txnOp := func(r *pb.TxnRequest) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: r}}
	}
	version := func(key, end string, v int64) *pb.Compare {
		return &pb.Compare{Key: []byte(key), RangeEnd: []byte(end), Target: pb.Compare_VERSION, Result: pb.Compare_EQUAL, TargetUnion: &pb.Compare_Version{Version: v}}
	}
	all := [][]byte{
		nil, {1}, {9, 9}, {1, 99}, {1, byte(command.KindTxn), 0xff}, {1, byte(command.KindLeaseRenew), 0xff},
		put("a", "1"), put("b", "2"), put("a", "3"), put("", "empty"), del("b", ""), del("nothing", ""),
		command.LeaseGrant(7, 10), command.LeaseGrant(7, 10), command.LeaseGrant(0, 1), command.LeaseGrant(8, 1<<40), command.LeaseGrant(9, 100),
		leased("l1", 7), leased("l2", 7), leased("l1", 9), leased("l3", 99), put("l2", "detached"),
		command.LeaseRenew([]int64{7, 8}), command.LeaseExpire([]lease.Renewal{{ID: 7, Number: 0}, {ID: 7, Number: 1}}),
		must(command.Txn(&pb.TxnRequest{Compare: []*pb.Compare{version("x", "", 0)}, Success: ops(putOp("x", "1"), rangeOp("a", "z"), delOp("a", "c"), rangeOp("a", "z"))})),
		must(command.Txn(&pb.TxnRequest{Success: ops(putOp("y", "1"), txnOp(&pb.TxnRequest{Compare: []*pb.Compare{version("y", "", 0)}, Success: ops(putOp("inner", "yes")), Failure: ops(putOp("inner", "no"))}))})),
		must(command.Txn(&pb.TxnRequest{Compare: []*pb.Compare{version("a", "z", 1)}, Failure: ops(rangeOp("a", "z"))})),
		must(command.Txn(&pb.TxnRequest{Success: ops(delOp("x", ""), &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte("x"), IgnoreValue: true}}})})),
		must(command.Txn(&pb.TxnRequest{Success: ops(&pb.RequestOp{})})),
		command.Attributes(3, "three", []string{"http://3"}, nil),
		command.Alarm(&pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, Alarm: pb.AlarmType_NOSPACE, MemberID: 3}),
		put("full", "x"), command.LeaseGrant(77, 5),
		command.Alarm(&pb.AlarmRequest{Action: pb.AlarmRequest_GET}),
		command.Alarm(&pb.AlarmRequest{Action: pb.AlarmRequest_DEACTIVATE, Alarm: pb.AlarmType_NOSPACE, MemberID: 3}),
		command.Settings(3000),
	}
	for i := range 40 {
		all = append(all, put(fmt.Sprintf("k%d", i%5), fmt.Sprint(i)))
	}
	compact := func(rev int64) []byte { return must(command.Compact(&pb.CompactionRequest{Revision: rev})) }
	return append(all, compact(10), compact(10), compact(1000), put("more", "x"), compact(30), command.Settings(0),
		command.LeaseRevoke(9), command.LeaseRevoke(9), del("\x00", "\x00"), put("a", "again"))
}

// engines opens machines on each engine; fs is the disk of the one that has one.
var engines = map[string]func(fs vfs.FS, dir string) (*Machine, error){
	"memory": func(vfs.FS, string) (*Machine, error) { return Open(Options{Engine: "memory"}) },
	"pebble": func(fs vfs.FS, dir string) (*Machine, error) {
		return open(fs, Options{Dir: dir, BlockCacheBytes: 1 << 20, HeadCacheBytes: forgetful, ValueCacheBytes: 256 << 10, separatedBytes: 24, rewriteAge: 1})
	},
}

// onEach runs a test on each engine.
func onEach(t *testing.T, f func(t *testing.T, m *Machine)) {
	for name, open := range engines {
		t.Run(name, func(t *testing.T) {
			m := must(open(vfs.NewMem(), "state"))
			t.Cleanup(func() {
				if err := m.Close(); err != nil {
					t.Error(err)
				}
			})
			f(t, m)
		})
	}
}

// TestStateMachine uses a codec that copies: smtest scribbles over what another one leaves in the memory of
// the log.
func TestStateMachine(t *testing.T) {
	for name, open := range engines {
		t.Run(name, func(t *testing.T) {
			dir, n := scratch.Dir(t), new(atomic.Int64) // the files of snapshots are read there
			smtest.Run(t, func() millrace.Machine[[]byte, command.Result] {
				return must(open(vfs.Default, filepath.Join(dir, fmt.Sprint(n.Add(1))))).machine(millrace.Bytes())
			}, story()...)
		})
	}
}

// apply applies commands to a machine, each in a call of its own.
func (m *Machine) apply(t testing.TB, at time.Duration, commands ...[]byte) (results []command.Result) {
	t.Helper()
	for _, c := range commands {
		r := make([]command.Result, 1)
		if err := m.Apply([]millrace.Command[[]byte]{{Index: m.Applied() + 1, Time: at, Awaited: true, Value: c}}, r); err != nil {
			t.Fatal(err)
		}
		results = append(results, r[0])
	}
	return results
}

func TestFirstRevision(t *testing.T) { onEach(t, testFirstRevision) }

func testFirstRevision(t *testing.T, m *Machine) {
	if rev, compacted := m.Revision(); rev != 1 || compacted != -1 {
		t.Fatalf("an empty store has revision %d, compacted %d, want 1, -1", rev, compacted)
	}
	r := m.apply(t, 0, del("none", ""), put("a", "1"), del("a", ""))
	for i, want := range []int64{1, 2, 3} {
		if r[i].Revision != want || r[i].Err != 0 {
			t.Errorf("command %d: %+v, want revision %d", i, r[i], want)
		}
	}
	resp, err := m.Range(t.Context(), &pb.RangeRequest{Key: []byte("a"), Revision: 2})
	if err != nil || len(resp.Kvs) != 1 || string(resp.Kvs[0].Value) != "1" || resp.Header.Revision != 3 {
		t.Errorf("at revision 2: %v, %v", resp, err)
	}
}
