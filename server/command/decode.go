package command

import (
	"encoding/binary"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/server/lease"
)

// Split returns the kind and the body of a command, or why it is refused.
func Split(b []byte) (k Kind, body []byte, refused Code) {
	switch {
	case len(b) < 2:
		return 0, nil, Malformed
	case b[0] != Version, b[1] == 0, b[1] > byte(KindSettings):
		return 0, nil, Unsupported
	}
	return Kind(b[1]), b[2:], 0
}

// unmarshal decodes a message.
func unmarshal(body []byte, m proto.Message) Code {
	if err := proto.Unmarshal(body, m); err != nil {
		return Malformed
	}
	return 0
}

// DecodeTxn returns the request of a transaction.
func DecodeTxn(body []byte) (*pb.TxnRequest, Code) {
	r := &pb.TxnRequest{}
	return r, unmarshal(body, r)
}

// DecodeDeleteRange returns the request of a deletion.
func DecodeDeleteRange(body []byte) (*pb.DeleteRangeRequest, Code) {
	r := &pb.DeleteRangeRequest{}
	return r, unmarshal(body, r)
}

// DecodeCompact returns the request of a compaction.
func DecodeCompact(body []byte) (*pb.CompactionRequest, Code) {
	r := &pb.CompactionRequest{}
	return r, unmarshal(body, r)
}

// DecodeAlarm returns the request of an alarm.
func DecodeAlarm(body []byte) (*pb.AlarmRequest, Code) {
	r := &pb.AlarmRequest{}
	return r, unmarshal(body, r)
}

// DecodeAttributes returns a member, and the highest version that it knows.
func DecodeAttributes(body []byte) (m *pb.Member, highest uint64, c Code) {
	d := decoder{rest: body}
	highest = d.uvarint()
	if d.bad {
		return nil, 0, Malformed
	}
	m = &pb.Member{}
	if c := unmarshal(d.rest, m); c != 0 || m.ID == 0 {
		return nil, 0, Malformed
	}
	return m, highest, 0
}

// DecodeLeaseGrant returns the id and the TTL of a lease.
func DecodeLeaseGrant(body []byte) (id, ttl int64, c Code) {
	d := decoder{rest: body}
	id, ttl = d.varint(), d.varint()
	return id, ttl, d.end()
}

// DecodeLeaseRevoke returns the id of a lease.
func DecodeLeaseRevoke(body []byte) (id int64, c Code) {
	d := decoder{rest: body}
	id = d.varint()
	return id, d.end()
}

// DecodeLeaseRenew returns the ids of leases.
func DecodeLeaseRenew(body []byte) (ids []int64, c Code) {
	d := decoder{rest: body}
	n := d.count(MaxRenewals)
	for range n {
		ids = append(ids, d.varint())
	}
	return ids, d.end()
}

// DecodeLeaseExpire returns renewals.
func DecodeLeaseExpire(body []byte) (of []lease.Renewal, c Code) {
	d := decoder{rest: body}
	n := d.count(MaxExpiries)
	for range n {
		of = append(of, lease.Renewal{ID: d.varint(), Number: d.uvarint()})
	}
	return of, d.end()
}

// DecodeSettings returns the quota.
func DecodeSettings(body []byte) (quota int64, c Code) {
	d := decoder{rest: body}
	quota = d.varint()
	return quota, d.end()
}

// decoder reads numbers. bad says that something was missing; then the numbers are zero.
type decoder struct {
	rest []byte
	bad  bool
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.rest)
	if n <= 0 {
		d.bad, d.rest = true, nil
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.rest)
	if n <= 0 {
		d.bad, d.rest = true, nil
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

// count returns how many elements a list has. Each takes a byte at least.
func (d *decoder) count(most int) int {
	n := d.uvarint()
	if n > uint64(most) || n > uint64(len(d.rest)) {
		d.bad, d.rest = true, nil
		return 0
	}
	return int(n)
}

func (d *decoder) end() Code {
	if d.bad || len(d.rest) > 0 {
		return Malformed
	}
	return 0
}
