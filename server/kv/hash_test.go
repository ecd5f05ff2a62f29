package kv

import (
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/server/command"
)

// A revision removes a key and puts it again. A transaction may do so if it removes all keys from that one
// onwards. The hashes are those of etcd 3.7.3.
func TestHashOfAKeyThatIsPutAgain(t *testing.T) {
	put := func(key string) *pb.PutRequest { return &pb.PutRequest{Key: []byte(key), Value: []byte("1")} }
	again := &pb.TxnRequest{Success: []*pb.RequestOp{
		{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte("a"), RangeEnd: []byte{0}}}},
		{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte("a"), Value: []byte("2")}}},
	}}
	for _, engine := range []string{"memory", "pebble"} {
		m := must(Open(Options{Engine: engine, Dir: t.TempDir(), HeadCacheBytes: forgetful, BlockCacheBytes: 1 << 20}))
		defer m.Close()
		for i, b := range [][]byte{
			must(command.Put(put("a"))), must(command.Txn(again)), must(command.Put(put("b"))), // revisions 2, 3 and 4
			must(command.Compact(&pb.CompactionRequest{Revision: 2})),
		} {
			r := make([]command.Result, 1)
			if err := m.Apply([]millrace.Command[[]byte]{{Index: uint64(i) + 1, Value: b}}, r); err != nil || r[0].Err != 0 {
				t.Fatalf("engine %s, command %d: %v, refused %v", engine, i+1, err, r[0].Err)
			}
		}
		for _, row := range []struct {
			at   int64
			want uint32
		}{{3, 3830745096}, {4, 927977541}} {
			if have, _, _, err := m.HashKV(t.Context(), row.at); have != row.want || err != nil {
				t.Errorf("engine %s: the hash at revision %d is %d, %v, want %d", engine, row.at, have, err, row.want)
			}
		}
	}
}
