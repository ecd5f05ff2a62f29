// Package command is the form of the service's commands in the log. A command is a version, a kind and a
// body:
//
//	1 byte   version of the form, 1
//	1 byte   kind
//	the rest body
//
//	kind                     body
//	1  put                   etcdserverpb.PutRequest, as the client has sent it
//	2  delete range          etcdserverpb.DeleteRangeRequest
//	3  transaction           etcdserverpb.TxnRequest
//	4  compaction            etcdserverpb.CompactionRequest
//	5  grant of a lease      varint id, varint TTL in seconds
//	6  revocation            varint id
//	7  renewals              a list of: varint id
//	8  expiries              a list of: varint id, uvarint number of the renewal
//	9  attributes            uvarint highest version that the member knows, etcdserverpb.Member
//	10 alarm                 etcdserverpb.AlarmRequest
//	11 settings              varint quota in bytes
//
// A list is a uvarint count and its elements. Varints are those of package encoding/binary. The log keeps
// commands for years, and any member may have proposed anything: what cannot be decoded is refused, alike on
// all members, and never an error of a machine.
package command

import (
	"encoding/binary"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/server/lease"
)

// Version is the highest version of the form that this program knows.
const Version = 1

// Kind is what a command does.
type Kind byte

// The kinds.
const (
	KindPut Kind = iota + 1
	KindDeleteRange
	KindTxn
	KindCompact
	KindLeaseGrant
	KindLeaseRevoke
	KindLeaseRenew
	KindLeaseExpire
	KindAttributes
	KindAlarm
	KindSettings
)

// The bounds of lists.
const (
	MaxRenewals = 1 << 16
	MaxExpiries = 1 << 16
)

func begin(k Kind, capacity int) []byte {
	return append(make([]byte, 0, 2+capacity), Version, byte(k))
}

func message(k Kind, m proto.Message) ([]byte, error) {
	o := proto.MarshalOptions{}
	return o.MarshalAppend(begin(k, o.Size(m)), m)
}

// Put returns the command of a put.
func Put(r *pb.PutRequest) ([]byte, error) { return message(KindPut, r) }

// DeleteRange returns the command of a deletion.
func DeleteRange(r *pb.DeleteRangeRequest) ([]byte, error) { return message(KindDeleteRange, r) }

// Txn returns the command of a transaction.
func Txn(r *pb.TxnRequest) ([]byte, error) { return message(KindTxn, r) }

// Compact returns the command of a compaction. Whether it is physical is for the caller: see
// kv.Machine.Swept.
func Compact(r *pb.CompactionRequest) ([]byte, error) { return message(KindCompact, r) }

// Raw returns the command of a message that the client has encoded: of a put, a deletion or a transaction.
func Raw(k Kind, body []byte) []byte { return append(begin(k, len(body)), body...) }

// LeaseGrant returns the command that grants a lease.
func LeaseGrant(id, ttl int64) []byte {
	return binary.AppendVarint(binary.AppendVarint(begin(KindLeaseGrant, 20), id), ttl)
}

// LeaseRevoke returns the command that revokes a lease.
func LeaseRevoke(id int64) []byte { return binary.AppendVarint(begin(KindLeaseRevoke, 10), id) }

// LeaseRenew returns the command that renews leases: at most MaxRenewals.
func LeaseRenew(ids []int64) []byte {
	b := binary.AppendUvarint(begin(KindLeaseRenew, 3+10*len(ids)), uint64(len(ids)))
	for _, id := range ids {
		b = binary.AppendVarint(b, id)
	}
	return b
}

// LeaseExpire returns the command that ends leases which were not renewed since: at most MaxExpiries.
func LeaseExpire(of []lease.Renewal) []byte {
	b := binary.AppendUvarint(begin(KindLeaseExpire, 3+14*len(of)), uint64(len(of)))
	for _, r := range of {
		b = binary.AppendUvarint(binary.AppendVarint(b, r.ID), r.Number)
	}
	return b
}

// Attributes returns the command with which a member tells its name and addresses.
func Attributes(member uint64, name string, peerURLs, clientURLs []string) []byte {
	m := &pb.Member{ID: member, Name: name, PeerURLs: peerURLs, ClientURLs: clientURLs}
	b, err := proto.Marshal(m)
	if err != nil { // a text that is no UTF-8
		b = nil
	}
	return append(binary.AppendUvarint(begin(KindAttributes, len(b)+1), Version), b...)
}

// Alarm returns the command that raises or clears an alarm.
func Alarm(r *pb.AlarmRequest) []byte {
	b, err := message(KindAlarm, r)
	if err != nil {
		return begin(KindAlarm, 0)
	}
	return b
}

// Settings returns the command that sets the quota of the cluster; 0: none.
func Settings(quota int64) []byte { return binary.AppendVarint(begin(KindSettings, 10), quota) }
