package compat

import (
	"math/rand/v2"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
)

// draw draws requests.
type draw struct {
	*rand.Rand
	revision  int64 // of the latest answer
	compacted int64
	kept      map[int64]bool // all revisions that were compacted
	start     int64          // the latest start of a watch
}

func (d *draw) one(of ...string) []byte { return []byte(of[d.IntN(len(of))]) }

func (d *draw) key() []byte {
	if d.IntN(60) == 0 {
		return nil
	}
	return d.one(keys...)
}

var keys = []string{"a", "b", "c", "d", "a\x00", "ab", "b\xff", "\x00", "\xff", "z"}

// end draws the end of a range.
func (d *draw) end() []byte {
	switch d.IntN(8) {
	case 0, 1, 2:
		return nil
	case 3, 4:
		return []byte{0}
	}
	return d.one("a", "b", "c", "e", "a\x00", "\xff", "zz", "\x00\x00")
}

func (d *draw) value() []byte { return d.one("", "1", "2", "2", "3", "vv") }

func (d *draw) yes(in int) bool { return d.IntN(in) == 0 }

// at draws a revision.
func (d *draw) at() int64 {
	switch d.IntN(10) {
	case 0:
		return d.revision + int64(d.IntN(3))
	case 1:
		return d.compacted + int64(d.IntN(3)) - 1
	case 2:
		return int64(d.IntN(3)) - 1
	}
	return d.compacted + d.Int64N(d.revision-d.compacted+1)
}

func (d *draw) lease() int64 { return int64(d.IntN(5)) }

func (d *draw) put() *pb.PutRequest {
	r := &pb.PutRequest{Key: d.key(), Value: d.value(), PrevKv: d.yes(3)}
	if d.yes(4) {
		r.Lease = d.lease()
	}
	if d.yes(10) {
		r.IgnoreValue = true
		if !d.yes(10) {
			r.Value = nil
		}
	}
	if d.yes(10) {
		r.IgnoreLease = true
		if !d.yes(10) {
			r.Lease = 0
		}
	}
	return r
}

func (d *draw) remove() *pb.DeleteRangeRequest {
	r := &pb.DeleteRangeRequest{Key: d.key(), PrevKv: d.yes(2)}
	if d.yes(3) {
		r.RangeEnd = d.end()
	}
	return r
}

func (d *draw) rangeOf(inTxn bool) *pb.RangeRequest {
	r := &pb.RangeRequest{Key: d.key(), RangeEnd: d.end(), KeysOnly: d.yes(6), CountOnly: d.yes(10), Serializable: d.yes(4)}
	if d.yes(3) {
		r.Limit = int64(d.IntN(5)) - 1
	}
	if d.yes(2) && (!inTxn || d.yes(4)) {
		r.Revision = d.at()
	}
	if d.yes(2) {
		r.SortOrder = pb.RangeRequest_SortOrder(d.IntN(3))
		r.SortTarget = pb.RangeRequest_SortTarget(d.IntN(5))
	}
	for _, at := range []*int64{&r.MinModRevision, &r.MaxModRevision, &r.MinCreateRevision, &r.MaxCreateRevision} {
		if d.yes(8) {
			*at = d.at()
		}
	}
	if d.yes(200) {
		r.SortOrder = 7
	}
	if d.yes(200) {
		r.SortTarget = -1
	}
	return r
}

func (d *draw) compare() *pb.Compare {
	c := &pb.Compare{Key: d.key(), Result: pb.Compare_CompareResult(d.IntN(4)), Target: pb.Compare_CompareTarget(d.IntN(5))}
	if d.yes(4) {
		c.RangeEnd = d.end()
	}
	switch c.Target {
	case pb.Compare_VERSION:
		c.TargetUnion = &pb.Compare_Version{Version: int64(d.IntN(4))}
	case pb.Compare_CREATE:
		c.TargetUnion = &pb.Compare_CreateRevision{CreateRevision: d.at()}
	case pb.Compare_MOD:
		c.TargetUnion = &pb.Compare_ModRevision{ModRevision: d.at()}
	case pb.Compare_VALUE:
		c.TargetUnion = &pb.Compare_Value{Value: d.value()}
	case pb.Compare_LEASE:
		c.TargetUnion = &pb.Compare_Lease{Lease: d.lease()}
	}
	if d.yes(40) {
		c.TargetUnion = nil
	}
	if d.yes(100) {
		c.Target = pb.Compare_CompareTarget(d.IntN(7))
	}
	if d.yes(100) {
		c.Result = 9
	}
	return c
}

func (d *draw) txn(depth int) *pb.TxnRequest {
	r := &pb.TxnRequest{}
	for range d.IntN(3) {
		r.Compare = append(r.Compare, d.compare())
	}
	for range d.IntN(4) {
		r.Success = append(r.Success, d.op(depth))
	}
	for range d.IntN(4) {
		r.Failure = append(r.Failure, d.op(depth))
	}
	return r
}

func (d *draw) op(depth int) *pb.RequestOp {
	switch n := d.IntN(10); {
	case n < 4:
		return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: d.put()}}
	case n < 7:
		return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: d.rangeOf(true)}}
	case n < 8:
		return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: d.remove()}}
	case depth > 0:
		return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: d.txn(depth - 1)}}
	case d.yes(20):
		return &pb.RequestOp{}
	}
	return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: d.put()}}
}

func (d *draw) request() (method string, r, into proto.Message) {
	switch n := d.IntN(100); {
	case n < 25:
		return pb.KV_Put_FullMethodName, d.put(), &pb.PutResponse{}
	case n < 45:
		return pb.KV_Range_FullMethodName, d.rangeOf(false), &pb.RangeResponse{}
	case n < 50:
		r := d.rangeOf(false)
		if r.SortTarget != pb.RangeRequest_KEY {
			r.Limit = 0 // etcd counts the keys that it sends and those behind the last of them, in their order
		}
		return pb.KV_RangeStream_FullMethodName, r, &pb.RangeResponse{}
	case n < 58:
		return pb.KV_DeleteRange_FullMethodName, d.remove(), &pb.DeleteRangeResponse{}
	case n < 80:
		return pb.KV_Txn_FullMethodName, d.txn(2), &pb.TxnResponse{}
	case n < 82:
		r := &pb.CompactionRequest{Revision: d.at(), Physical: d.yes(2)}
		if r.Revision <= d.revision {
			d.compacted, d.kept[r.Revision] = max(d.compacted, r.Revision), true
		}
		return pb.KV_Compact_FullMethodName, r, &pb.CompactionResponse{}
	case n < 86:
		return pb.Lease_LeaseGrant_FullMethodName, &pb.LeaseGrantRequest{ID: 1 + int64(d.IntN(4)), TTL: 10_000 + int64(d.IntN(5))}, &pb.LeaseGrantResponse{}
	case n < 89:
		return pb.Lease_LeaseRevoke_FullMethodName, &pb.LeaseRevokeRequest{ID: d.lease()}, &pb.LeaseRevokeResponse{}
	case n < 92:
		return pb.Lease_LeaseTimeToLive_FullMethodName, &pb.LeaseTimeToLiveRequest{ID: d.lease(), Keys: true}, &pb.LeaseTimeToLiveResponse{}
	case n < 94:
		return pb.Lease_LeaseLeases_FullMethodName, &pb.LeaseLeasesRequest{}, &pb.LeaseLeasesResponse{}
	}
	// etcd keeps the last ten hashes of revisions that were compacted, of before that; even of revision 0.
	at := d.at()
	if d.kept[at] {
		return d.request()
	}
	return pb.Maintenance_HashKV_FullMethodName, &pb.HashKVRequest{Revision: at}, &pb.HashKVResponse{}
}

// watch draws a watch.
func (d *draw) watch() *pb.WatchCreateRequest {
	r := &pb.WatchCreateRequest{Key: d.key(), RangeEnd: d.end(), PrevKv: d.yes(2), Fragment: d.yes(3)}
	if d.yes(2) {
		r.StartRevision = d.at()
		d.start = max(d.start, r.StartRevision)
	}
	if d.yes(3) {
		r.WatchId = d.Int64N(50)
	}
	if d.yes(4) {
		r.Filters = append(r.Filters, pb.WatchCreateRequest_FilterType(d.IntN(2)))
	}
	return r
}
