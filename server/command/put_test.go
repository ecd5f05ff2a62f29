package command

import (
	"bytes"
	"math/rand/v2"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
)

// comparePut decodes a put with DecodePut and with the generated code.
func comparePut(t *testing.T, body []byte) {
	t.Helper()
	want := &pb.PutRequest{}
	err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(body, want)
	have, refused := DecodePut(body)
	if (err != nil) != (refused != 0) {
		t.Fatalf("%x: refused with %d, want %v", body, refused, err)
	}
	if err == nil && !proto.Equal(have, want) {
		t.Fatalf("%x: %v, want %v", body, have, want)
	}
}

// TestDecodePutIsItsTwin damages puts, and compares with the generated decoder.
func TestDecodePutIsItsTwin(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 200_000 {
		r := &pb.PutRequest{Key: make([]byte, rng.IntN(4)), Value: make([]byte, rng.IntN(200)), PrevKv: rng.IntN(2) == 0, IgnoreLease: rng.IntN(2) == 0, IgnoreValue: rng.IntN(2) == 0}
		if rng.IntN(2) == 0 {
			r.Lease = rng.Int64() >> rng.IntN(64)
		}
		body := bytes.Clone(must(Put(r))[2:])
		for range rng.IntN(3) {
			if len(body) == 0 {
				break
			}
			switch at := rng.IntN(min(len(body), 8)); rng.IntN(4) {
			case 0:
				body[at] ^= 1 << rng.IntN(8)
			case 1:
				body[at] = byte(rng.IntN(256))
			case 2:
				body = body[:len(body)-1]
			default:
				body = append(body, byte(rng.IntN(256)), byte(rng.IntN(256)))
			}
		}
		comparePut(t, body)
	}
}

func FuzzDecodePut(f *testing.F) {
	f.Add(must(Put(&pb.PutRequest{Key: []byte("k"), Value: []byte("v"), Lease: 3}))[2:])
	f.Fuzz(comparePut)
}
