package command

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/encoding/protowire"
)

// DecodePut returns the request of a put. It takes and refuses what proto.Unmarshal does, and borrows the key
// and the value from body: puts are most of a log, and their bytes stay where they are.
func DecodePut(body []byte) (*pb.PutRequest, Code) {
	r := &pb.PutRequest{}
	for len(body) > 0 {
		field, kind, n := protowire.ConsumeTag(body)
		if n < 0 || field > protowire.MaxValidNumber {
			return r, Malformed
		}
		body = body[n:]
		if n = putField(r, field, kind, body); n < 0 {
			return r, Malformed
		}
		body = body[n:]
	}
	return r, 0
}

// putField reads the value of a field, and returns its length; below 0: it is malformed. A field that is not
// known, or has another kind of value, is skipped.
func putField(r *pb.PutRequest, field protowire.Number, kind protowire.Type, b []byte) (n int) {
	switch {
	case kind == protowire.BytesType && (field == 1 || field == 2):
		v, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return n
		}
		v = v[:len(v):len(v)]
		if field == 1 {
			r.Key = v
		} else {
			r.Value = v
		}
		return n
	case kind == protowire.VarintType && field >= 3 && field <= 6:
		v, n := protowire.ConsumeVarint(b)
		if n < 0 {
			return n
		}
		switch field {
		case 3:
			r.Lease = int64(v)
		case 4:
			r.PrevKv = protowire.DecodeBool(v)
		case 5:
			r.IgnoreValue = protowire.DecodeBool(v)
		case 6:
			r.IgnoreLease = protowire.DecodeBool(v)
		}
		return n
	}
	return protowire.ConsumeFieldValue(field, kind, b)
}
