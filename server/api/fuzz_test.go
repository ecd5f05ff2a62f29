package api

import (
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/server/command"
)

// FuzzRequest decodes bytes as each request that is checked, as grpc does. A check never panics, and answers
// with a code of etcd's. What passes becomes a command that the state machine decodes to the same request.
func FuzzRequest(f *testing.F) {
	put := &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte("k"), Value: []byte("v"), Lease: 7}}}
	for _, m := range []proto.Message{
		&pb.RangeRequest{Key: []byte("k"), RangeEnd: []byte{0}, SortOrder: 7},
		&pb.PutRequest{Key: []byte("k"), IgnoreValue: true, Value: []byte("v")},
		&pb.DeleteRangeRequest{Key: []byte("k"), RangeEnd: []byte("a")},
		&pb.TxnRequest{Compare: []*pb.Compare{{Key: []byte("k"), Target: 9}}, Success: []*pb.RequestOp{put, {}}},
		&pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestTxn{RequestTxn: &pb.TxnRequest{Failure: []*pb.RequestOp{put}}}}, put}},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		refused := func(err error) bool {
			if err != nil && (status.Code(err) == codes.OK || status.Code(err) == codes.Internal) {
				t.Errorf("refused with %v", err)
			}
			return err != nil
		}
		if r := (&pb.RangeRequest{}); proto.Unmarshal(b, r) == nil {
			refused(checkRange(r))
		}
		if r := (&pb.PutRequest{}); proto.Unmarshal(b, r) == nil && !refused(checkPut(r)) {
			cmd, err := command.Put(r)
			same(t, r, cmd, err, func(b []byte) (proto.Message, command.Code) { m, c := command.DecodePut(b); return m, c })
		}
		if r := (&pb.DeleteRangeRequest{}); proto.Unmarshal(b, r) == nil && !refused(checkDelete(r)) {
			cmd, err := command.DeleteRange(r)
			same(t, r, cmd, err, func(b []byte) (proto.Message, command.Code) { m, c := command.DecodeDeleteRange(b); return m, c })
		}
		r := &pb.TxnRequest{}
		if proto.Unmarshal(b, r) != nil || refused(checkTxn(r, 128)) {
			return
		}
		for _, branch := range [][]*pb.RequestOp{r.Success, r.Failure} {
			if _, err := checkDuplicates(branch); refused(err) {
				return
			}
		}
		cmd, err := command.Txn(r)
		same(t, r, cmd, err, func(b []byte) (proto.Message, command.Code) { m, c := command.DecodeTxn(b); return m, c })
	})
}

// same demands that a command is the request that was checked.
func same(t *testing.T, want proto.Message, cmd []byte, err error, decode func([]byte) (proto.Message, command.Code)) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	_, body, refused := command.Split(cmd)
	if refused != 0 {
		t.Fatalf("the command is refused with code %d", refused)
	}
	have, refused := decode(body)
	if refused != 0 || !proto.Equal(known(t, have), known(t, want)) {
		t.Errorf("decoded %v (code %d), want %v", have, refused, want)
	}
}

// known returns a message without the fields that this program does not know: a command may drop them.
func known(t *testing.T, m proto.Message) proto.Message {
	t.Helper()
	b, err := proto.Marshal(m)
	out := m.ProtoReflect().New().Interface()
	if err == nil {
		err = proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(b, out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}
