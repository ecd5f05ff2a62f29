package command

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/millrace/millrace/server/lease"
)

var update = flag.Bool("update", false, "write testdata/commands.txt again, after a new kind or version: what is there never changes")

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

// examples has commands of each kind. New ones come at the end.
func examples() []struct {
	name  string
	bytes []byte
} {
	txn := &pb.TxnRequest{
		Compare: []*pb.Compare{{Key: []byte("a"), Target: pb.Compare_MOD, Result: pb.Compare_GREATER, TargetUnion: &pb.Compare_ModRevision{ModRevision: 3}}},
		Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte("a"), Value: []byte("1")}}}},
	}
	return []struct {
		name  string
		bytes []byte
	}{
		{"put", must(Put(&pb.PutRequest{Key: []byte("key"), Value: []byte("value"), Lease: 7, PrevKv: true}))},
		{"delete range", must(DeleteRange(&pb.DeleteRangeRequest{Key: []byte("a"), RangeEnd: []byte("b")}))},
		{"txn", must(Txn(txn))},
		{"compact", must(Compact(&pb.CompactionRequest{Revision: 300, Physical: true}))},
		{"lease grant", LeaseGrant(1<<62, 60)},
		{"lease grant of negative numbers", LeaseGrant(-1, -60)},
		{"lease revoke", LeaseRevoke(7)},
		{"lease renew", LeaseRenew([]int64{1, 2, 1 << 40})},
		{"lease renew none", LeaseRenew(nil)},
		{"lease expire", LeaseExpire([]lease.Renewal{{ID: 7, Number: 300}})},
		{"attributes", Attributes(1<<63, "one", []string{"http://peer"}, []string{"http://client"})},
		{"alarm", Alarm(&pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, MemberID: 5, Alarm: pb.AlarmType_NOSPACE})},
		{"settings", Settings(1 << 31)},
	}
}

// TestGolden: the log keeps commands for years, so their bytes never change.
func TestGolden(t *testing.T) {
	const name = "testdata/commands.txt"
	var b strings.Builder
	for _, e := range examples() {
		fmt.Fprintf(&b, "%s: %x\n", e.name, e.bytes)
	}
	if *update {
		if err := os.WriteFile(name, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("the commands are\n%s\nwant those of %s\n%s", b.String(), name, want)
	}
}

// decode decodes a command of any kind and encodes it again. It returns nil for one that is refused.
func decode(b []byte) []byte {
	k, body, c := Split(b)
	if c != 0 {
		return nil
	}
	var again []byte
	switch k {
	case KindPut:
		var r *pb.PutRequest
		if r, c = DecodePut(body); c == 0 {
			again = must(Put(r))
		}
	case KindDeleteRange:
		var r *pb.DeleteRangeRequest
		if r, c = DecodeDeleteRange(body); c == 0 {
			again = must(DeleteRange(r))
		}
	case KindTxn:
		var r *pb.TxnRequest
		if r, c = DecodeTxn(body); c == 0 {
			again = must(Txn(r))
		}
	case KindCompact:
		var r *pb.CompactionRequest
		if r, c = DecodeCompact(body); c == 0 {
			again = must(Compact(r))
		}
	case KindAlarm:
		var r *pb.AlarmRequest
		if r, c = DecodeAlarm(body); c == 0 {
			again = Alarm(r)
		}
	case KindLeaseGrant:
		var id, ttl int64
		if id, ttl, c = DecodeLeaseGrant(body); c == 0 {
			again = LeaseGrant(id, ttl)
		}
	case KindLeaseRevoke:
		var id int64
		if id, c = DecodeLeaseRevoke(body); c == 0 {
			again = LeaseRevoke(id)
		}
	case KindLeaseRenew:
		var ids []int64
		if ids, c = DecodeLeaseRenew(body); c == 0 {
			again = LeaseRenew(ids)
		}
	case KindLeaseExpire:
		var of []lease.Renewal
		if of, c = DecodeLeaseExpire(body); c == 0 {
			again = LeaseExpire(of)
		}
	case KindAttributes:
		var m *pb.Member
		if m, _, c = DecodeAttributes(body); c == 0 {
			again = Attributes(m.ID, m.Name, m.PeerURLs, m.ClientURLs)
		}
	case KindSettings:
		var quota int64
		if quota, c = DecodeSettings(body); c == 0 {
			again = Settings(quota)
		}
	}
	return again
}

func TestDecode(t *testing.T) {
	for _, e := range examples() {
		if again := decode(e.bytes); !bytes.Equal(again, e.bytes) {
			t.Errorf("%s: %x became %x", e.name, e.bytes, again)
		}
		for n := range e.bytes { // a part of a list or of numbers is refused; a part of a message may be one
			_ = decode(e.bytes[:n])
			if k := Kind(e.bytes[1]); n > 2 && (k == KindLeaseRenew || k == KindLeaseExpire || k == KindLeaseGrant || k == KindSettings) && decode(e.bytes[:n]) != nil {
				t.Errorf("%s: the first %d bytes are decoded", e.name, n)
			}
		}
	}
	for _, b := range [][]byte{nil, {1}, {0, 1}, {2, 1}, {1, 0}, {1, byte(KindSettings) + 1}, {1, byte(KindLeaseRenew), 0xff, 0xff, 0x7f}} {
		if decode(b) != nil {
			t.Errorf("%x is decoded", b)
		}
	}
}

// FuzzDecode: no bytes make a decoder panic, and what it takes has one meaning.
func FuzzDecode(f *testing.F) {
	for _, e := range examples() {
		f.Add(e.bytes)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if first := decode(b); first != nil {
			if second := decode(first); !bytes.Equal(first, second) {
				t.Errorf("%x became %x, and then %x", b, first, second)
			}
		}
	})
}

// TestErrors: each code has an error of etcd's, or one that says what to do.
func TestErrors(t *testing.T) {
	for c := Malformed; c <= LeaseProvided; c++ {
		err := Error(c)
		if status.Code(err) == codes.Unknown || err.Error() == "" {
			t.Errorf("code %d has error %v", c, err)
		}
		if have, ok := CodeOf(Refuse(c)); have != c || !ok {
			t.Errorf("refusal %d has code %d", c, have)
		}
	}
	if Error(0) != nil || Error(200) == nil || !errors.Is(Error(Compacted), rpctypes.ErrGRPCCompacted) {
		t.Errorf("errors %v, %v, %v", Error(0), Error(200), Error(Compacted))
	}
	if _, ok := CodeOf(errors.New("a disk's")); ok {
		t.Error("an error of a disk is a refusal")
	}
}
