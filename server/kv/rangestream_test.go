package kv

import (
	"bytes"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/server/command"
)

// A stream with a target and without an order is sorted as a whole, and comes in parts that any client takes.
func TestSortedStreamComesInParts(t *testing.T) {
	const values, each, most = 40, 100 << 10, 2 << 20
	m := must(Open(Options{Engine: "memory"}))
	defer m.Close()
	for i := range values {
		put := &pb.PutRequest{Key: []byte{'k', byte(i)}, Value: bytes.Repeat([]byte{byte(i * 7 % values)}, each)}
		r := make([]command.Result, 1)
		if err := m.Apply([]millrace.Command[[]byte]{{Index: uint64(i) + 1, Value: must(command.Put(put))}}, r); err != nil || r[0].Err != 0 {
			t.Fatalf("put %d: %v, refused %v", i, err, r[0].Err)
		}
	}
	req := &pb.RangeRequest{Key: []byte("k"), RangeEnd: []byte("l"), SortTarget: pb.RangeRequest_VALUE}
	want := must(m.Range(t.Context(), req))
	have, parts := &pb.RangeResponse{}, 0
	err := m.RangeStream(t.Context(), req, func(part *pb.RangeStreamResponse) error {
		if n := proto.Size(part); n > most {
			t.Errorf("part %d has %d bytes, want at most %d", parts, n, most)
		}
		proto.Merge(have, part.RangeResponse)
		parts++
		return nil
	})
	if err != nil || !proto.Equal(have, want) || len(have.Kvs) != values {
		t.Errorf("%v; %d keys of the stream, %d of the range, are they equal: %t", err, len(have.Kvs), len(want.Kvs), proto.Equal(have, want))
	}
	if least := values * each / most; parts < least {
		t.Errorf("%d parts, want %d at least", parts, least)
	}
}
