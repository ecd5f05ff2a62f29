package kv

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/server/command"
)

// twice applies commands to two machines, in one batch and one by one, and demands the same results.
func twice(t *testing.T, commands ...[]byte) []command.Result {
	t.Helper()
	one, other := must(build(vfs.NewMem(), Options{Engine: "memory"})), must(build(vfs.NewMem(), Options{Engine: "memory", HeadCacheBytes: -1}))
	batch, together := make([]millrace.Command[[]byte], len(commands)), make([]command.Result, len(commands))
	for i, c := range commands {
		batch[i] = millrace.Command[[]byte]{Index: uint64(i + 1), Time: time.Duration(i) * time.Second, Awaited: true, Value: c}
	}
	if err := one.Apply(batch, together); err != nil {
		t.Fatal(err)
	}
	for i := range batch {
		batch[i].Awaited = false
		alone := make([]command.Result, 1)
		if err := other.Apply(batch[i:i+1], alone); err != nil {
			t.Fatal(err)
		}
		if have, want := alone[0], together[i]; have.Err != want.Err || have.Revision != want.Revision || have.Expired != want.Expired {
			t.Fatalf("command %d, %.60x: %+v and %+v", i, commands[i], have, want)
		}
	}
	if one.digest() != other.digest() {
		t.Fatalf("the digests are %x and %x", one.digest(), other.digest())
	}
	return together
}

// FuzzApply: no bytes in the log make the machine panic or halt, and all machines do the same with them.
func FuzzApply(f *testing.F) {
	for _, c := range story() {
		f.Add(c)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		prepare := [][]byte{command.LeaseGrant(7, 10), put("a", "1"), put("b", "2")}
		r := twice(t, append(prepare, b, b, put("behind", "it"))...)
		if last := r[len(r)-1]; last.Err != 0 && last.Err != command.NoSpace && last.Err != command.Corrupt {
			t.Fatalf("the command behind it: %+v", last)
		}
	})
}

// TestDamagedCommands damages good commands: a bit, a byte, the length.
func TestDamagedCommands(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 400 {
		var commands [][]byte
		for _, c := range story() {
			c = bytes.Clone(c)
			for range rng.IntN(3) {
				if len(c) == 0 {
					continue
				}
				switch at := rng.IntN(len(c)); rng.IntN(4) {
				case 0:
					c[at] ^= 1 << rng.IntN(8)
				case 1:
					c[at] = byte(rng.IntN(256))
				case 2:
					c = c[:at]
				default:
					c = append(c, byte(rng.IntN(256)))
				}
			}
			commands = append(commands, c)
		}
		twice(t, commands...)
	}
}

// TestDeepTransaction: a transaction in a transaction, and so on, is refused where it is too deep.
func TestDeepTransaction(t *testing.T) {
	nest := func(depth int) []byte {
		r := &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte("deep")}}}}}
		for range depth - 1 {
			r = &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestTxn{RequestTxn: r}}}}
		}
		return must(command.Txn(r))
	}
	r := twice(t, nest(100), nest(3000), nest(4900))
	if r[0].Err != 0 || r[0].Revision != 2 || r[1].Err != command.TooDeep || r[2].Err == 0 {
		t.Errorf("%+v", r)
	}
}
