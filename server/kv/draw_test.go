package kv

import (
	"fmt"
	"math/rand/v2"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// draw draws requests over few keys, so that they meet.
type draw struct{ *rand.Rand }

// forgetful are the bytes of a cache of heads that has space for eight keys, so fewer than are drawn.
const forgetful = 1000

var drawnKeys = []string{"\x00", "a", "a\x00", "aa", "ab", "b", "c", "k", "\xff", "\xff\xff"}

func (d draw) oneIn(n int) bool { return d.IntN(n) == 0 }
func (d draw) key() []byte      { return []byte(drawnKeys[d.IntN(len(drawnKeys))]) }

// end returns the end of a range.
func (d draw) end() []byte {
	switch d.IntN(4) {
	case 0:
		return nil
	case 1:
		return []byte{0}
	}
	return d.key()
}

func (d draw) lease() int64 { return int64(d.IntN(5)) }

// revision draws one about the present one.
func (d draw) revision(m *model) int64 {
	switch d.IntN(12) {
	case 0:
		return m.revision() + 1 + int64(d.IntN(3))
	case 1:
		return -1
	case 2, 3, 4:
		return 0
	}
	return max(m.revision()-int64(d.IntN(60)), 0)
}

func (d draw) value() []byte { return fmt.Appendf(nil, "%d", d.IntN(4)) }

func (d draw) put() *pb.PutRequest {
	r := &pb.PutRequest{Key: d.key(), PrevKv: d.oneIn(2)}
	if d.oneIn(5) {
		r.IgnoreValue = true
	} else {
		r.Value = d.value()
	}
	if d.oneIn(5) {
		r.IgnoreLease = true
	} else if d.oneIn(2) {
		r.Lease = d.lease()
	}
	return r
}

func (d draw) delete() *pb.DeleteRangeRequest {
	r := &pb.DeleteRangeRequest{Key: d.key(), PrevKv: d.oneIn(2)}
	if d.oneIn(3) {
		r.RangeEnd = d.end()
	}
	return r
}

func (d draw) rangeOf(m *model) *pb.RangeRequest {
	r := &pb.RangeRequest{Key: d.key(), RangeEnd: d.end(), Revision: d.revision(m), CountOnly: d.oneIn(10), KeysOnly: d.oneIn(4)}
	if d.oneIn(3) {
		r.Limit = int64(d.IntN(6)) - 1
	}
	if d.oneIn(3) {
		r.SortTarget = pb.RangeRequest_SortTarget(d.IntN(5))
		r.SortOrder = pb.RangeRequest_SortOrder(d.IntN(3))
	}
	if d.oneIn(4) {
		for _, filter := range []*int64{&r.MinModRevision, &r.MaxModRevision, &r.MinCreateRevision, &r.MaxCreateRevision} {
			if d.oneIn(3) {
				*filter = d.revision(m)
			}
		}
	}
	return r
}

func (d draw) compare(m *model) *pb.Compare {
	c := &pb.Compare{Key: d.key(), Target: pb.Compare_CompareTarget(d.IntN(5)), Result: pb.Compare_CompareResult(d.IntN(4))}
	if d.oneIn(3) {
		c.RangeEnd = d.end()
	}
	switch c.Target {
	case pb.Compare_VALUE:
		c.TargetUnion = &pb.Compare_Value{Value: d.value()}
	case pb.Compare_CREATE:
		c.TargetUnion = &pb.Compare_CreateRevision{CreateRevision: d.revision(m)}
	case pb.Compare_MOD:
		c.TargetUnion = &pb.Compare_ModRevision{ModRevision: d.revision(m)}
	case pb.Compare_VERSION:
		c.TargetUnion = &pb.Compare_Version{Version: int64(d.IntN(3))}
	case pb.Compare_LEASE:
		c.TargetUnion = &pb.Compare_Lease{Lease: d.lease()}
	}
	return c
}

// txn draws a transaction. Without duplicates no key is put twice, or put and deleted: as a front allows.
func (d draw) txn(m *model, depth int, free map[string]bool) *pb.TxnRequest {
	r := &pb.TxnRequest{}
	for range d.IntN(3) {
		r.Compare = append(r.Compare, d.compare(m))
	}
	for _, ops := range []*[]*pb.RequestOp{&r.Success, &r.Failure} {
		for range d.IntN(4) {
			if op := d.op(m, depth, free); op != nil {
				*ops = append(*ops, op)
			}
		}
	}
	return r
}

func (d draw) op(m *model, depth int, free map[string]bool) *pb.RequestOp {
	switch k := d.IntN(8); {
	case k < 3:
		p := d.put()
		if free != nil {
			if !free[string(p.Key)] {
				return nil
			}
			delete(free, string(p.Key))
		}
		return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: p}}
	case k < 4:
		r := d.delete()
		if free != nil {
			for _, key := range drawnKeys {
				if inRange(key, r.Key, r.RangeEnd) {
					if !free[key] {
						return nil
					}
				}
			}
			for _, key := range drawnKeys {
				if inRange(key, r.Key, r.RangeEnd) {
					delete(free, key)
				}
			}
		}
		return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: r}}
	case k < 7 || depth == 3:
		return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: d.rangeOf(m)}}
	}
	return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: d.txn(m, depth+1, free)}}
}

// allFree returns the keys that a transaction without duplicates may still use.
func allFree() map[string]bool {
	free := map[string]bool{}
	for _, key := range drawnKeys {
		free[key] = true
	}
	return free
}
