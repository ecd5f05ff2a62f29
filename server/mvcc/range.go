package mvcc

import (
	"bytes"
	"cmp"
	"context"
	"math"
	"sort"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// IsPlain reports whether a range is in the order of the keys, so that its limit bounds what is read.
func IsPlain(r *pb.RangeRequest) bool {
	return r.SortOrder == pb.RangeRequest_NONE || r.SortTarget == pb.RangeRequest_KEY && r.SortOrder == pb.RangeRequest_ASCEND
}

// IsFiltered reports whether a range asks for revisions of its keys.
func IsFiltered(r *pb.RangeRequest) bool {
	return r.MinModRevision != 0 || r.MaxModRevision != 0 || r.MinCreateRevision != 0 || r.MaxCreateRevision != 0
}

// validSort reports whether the order is one that etcd knows.
func validSort(r *pb.RangeRequest) bool {
	_, order := pb.RangeRequest_SortOrder_name[int32(r.SortOrder)]
	_, target := pb.RangeRequest_SortTarget_name[int32(r.SortTarget)]
	return order && target
}

// Range answers a range at the visible state.
func (s *Store) Range(ctx context.Context, r *pb.RangeRequest) (resp *pb.RangeResponse, err error) {
	err = s.read(false, func(v *view) error {
		resp, err = v.rangeOf(ctx, r)
		return v.of(r.Revision, err)
	})
	return resp, err
}

// of turns a read that came too late into its error: if the caller has named the revision it is compacted
// now.
func (v *view) of(asked int64, err error) error {
	if err == errStale && asked > 0 {
		return ErrCompacted
	}
	return err
}

// rangeOf answers a range. The rules are etcd's, also the odd ones. The count is that of the range, whatever
// filters say. A limit bounds what is read, before an order without a direction is put on it. An answer of
// keys only has no leases, unless it is sorted by values.
func (v *view) rangeOf(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	rev, err := v.check(r.Revision)
	if err != nil {
		return nil, err
	}
	limit := int64(0) // of what is kept; one more than asked for, to know if there is more
	if IsPlain(r) && !IsFiltered(r) && r.Limit > 0 {
		limit = r.Limit
		if limit < math.MaxInt64 {
			limit++
		}
	}
	keysOnly := r.KeysOnly && r.SortTarget != pb.RangeRequest_VALUE
	resp := &pb.RangeResponse{Header: &pb.ResponseHeader{Revision: v.meta.Revision}, Kvs: []*mvccpb.KeyValue{}}
	err = v.scan(ctx, r.Key, r.RangeEnd, rev, func(i item) (bool, error) {
		resp.Count++
		if r.CountOnly || limit > 0 && resp.Count > limit || !passes(r, i) {
			return true, nil
		}
		if keysOnly {
			i.value, i.Lease = nil, 0
		}
		resp.Kvs = append(resp.Kvs, i.keyValue())
		return true, v.answer.Grow(ctx, sizeOf(i.key, i.value))
	})
	if err != nil {
		return nil, err
	}
	sortKeys(resp.Kvs, r)
	if r.Limit > 0 && int64(len(resp.Kvs)) > r.Limit {
		resp.Kvs, resp.More = resp.Kvs[:r.Limit], true
	}
	if r.KeysOnly {
		for _, kv := range resp.Kvs {
			kv.Value = nil
		}
	}
	return resp, nil
}

// passes reports whether a key passes the filters of a range.
func passes(r *pb.RangeRequest, i item) bool {
	switch {
	case r.MaxModRevision != 0 && i.Main > r.MaxModRevision, r.MinModRevision != 0 && i.Main < r.MinModRevision:
		return false
	case r.MaxCreateRevision != 0 && i.Create > r.MaxCreateRevision, r.MinCreateRevision != 0 && i.Create < r.MinCreateRevision:
		return false
	}
	return true
}

// sortKeys puts keys into the order of a range. It is package sort's algorithm, as in etcd: so keys that are
// equal come in the same order, too.
func sortKeys(kvs []*mvccpb.KeyValue, r *pb.RangeRequest) {
	order := r.SortOrder
	if r.SortTarget != pb.RangeRequest_KEY && order == pb.RangeRequest_NONE {
		order = pb.RangeRequest_ASCEND
	}
	if order == pb.RangeRequest_NONE || r.SortTarget == pb.RangeRequest_KEY && order == pb.RangeRequest_ASCEND {
		return
	}
	var by sort.Interface = byTarget{kvs, r.SortTarget}
	if order == pb.RangeRequest_DESCEND {
		by = sort.Reverse(by)
	}
	sort.Sort(by)
}

type byTarget struct {
	kvs    []*mvccpb.KeyValue
	target pb.RangeRequest_SortTarget
}

func (b byTarget) Len() int      { return len(b.kvs) }
func (b byTarget) Swap(i, j int) { b.kvs[i], b.kvs[j] = b.kvs[j], b.kvs[i] }
func (b byTarget) Less(i, j int) bool {
	x, y := b.kvs[i], b.kvs[j]
	switch b.target {
	case pb.RangeRequest_VERSION:
		return cmp.Less(x.Version, y.Version)
	case pb.RangeRequest_CREATE:
		return cmp.Less(x.CreateRevision, y.CreateRevision)
	case pb.RangeRequest_MOD:
		return cmp.Less(x.ModRevision, y.ModRevision)
	case pb.RangeRequest_VALUE:
		return bytes.Compare(x.Value, y.Value) < 0
	}
	return bytes.Compare(x.Key, y.Key) < 0
}

// The sizes of the parts of a streamed range.
const (
	chunkBytes = 1 << 20
	chunkKeys  = 10_000
)

// RangeStream answers a range in parts of about chunkBytes. The last one has the header, the count and more.
// The caller has refused orders and filters, but a target without an order: that is ascending.
func (s *Store) RangeStream(ctx context.Context, r *pb.RangeRequest, send func(*pb.RangeResponse) error) error {
	if r.CountOnly || r.SortTarget != pb.RangeRequest_KEY { // what is sorted must be there as a whole
		resp, err := s.Range(ctx, r)
		if err != nil {
			return err
		}
		return sendParts(resp, send)
	}
	sent := false
	return s.read(false, func(v *view) error {
		rev, err := v.check(r.Revision)
		if err != nil {
			return err
		}
		part, bytes := &pb.RangeResponse{}, 0
		last := &pb.ResponseHeader{Revision: v.meta.Revision}
		var count int64
		more := false
		err = v.scan(ctx, r.Key, r.RangeEnd, rev, func(i item) (bool, error) {
			if count++; r.Limit > 0 && count > r.Limit {
				more = true
				return true, nil
			}
			if r.KeysOnly {
				i.value, i.Lease = nil, 0
			}
			if bytes > 0 && (bytes+len(i.key)+len(i.value) > chunkBytes || len(part.Kvs) == chunkKeys) {
				sent = true
				if err := send(part); err != nil {
					return false, err
				}
				part, bytes = &pb.RangeResponse{}, 0
			}
			part.Kvs = append(part.Kvs, i.keyValue())
			bytes += len(i.key) + len(i.value) + versionOverhead
			return true, nil
		})
		if err != nil {
			if sent && err == errStale {
				return ErrCompacted
			}
			return v.of(r.Revision, err)
		}
		part.Header, part.Count, part.More = last, count, more
		return send(part)
	})
}

// sendParts sends an answer in parts.
func sendParts(resp *pb.RangeResponse, send func(*pb.RangeResponse) error) error {
	for {
		n, bytes := 0, 0
		for ; n < min(len(resp.Kvs), chunkKeys) && bytes < chunkBytes; n++ {
			bytes += len(resp.Kvs[n].Key) + len(resp.Kvs[n].Value) + versionOverhead
		}
		if n == len(resp.Kvs) {
			return send(resp)
		}
		if err := send(&pb.RangeResponse{Kvs: resp.Kvs[:n]}); err != nil {
			return err
		}
		resp.Kvs = resp.Kvs[n:]
	}
}
