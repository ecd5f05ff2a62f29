package api

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/pkg/v3/adt"
)

// Requests are checked in etcd's order: a client sees the first error only.

func checkRange(r *pb.RangeRequest) error {
	_, order := pb.RangeRequest_SortOrder_name[int32(r.GetSortOrder())]
	_, target := pb.RangeRequest_SortTarget_name[int32(r.GetSortTarget())]
	switch {
	case len(r.GetKey()) == 0:
		return rpctypes.ErrGRPCEmptyKey
	case !order || !target:
		return rpctypes.ErrGRPCInvalidSortOption
	}
	return nil
}

func checkPut(r *pb.PutRequest) error {
	switch {
	case len(r.GetKey()) == 0:
		return rpctypes.ErrGRPCEmptyKey
	case r.IgnoreValue && len(r.Value) != 0:
		return rpctypes.ErrGRPCValueProvided
	case r.IgnoreLease && r.Lease != 0:
		return rpctypes.ErrGRPCLeaseProvided
	}
	return nil
}

func checkDelete(r *pb.DeleteRangeRequest) error {
	if len(r.GetKey()) == 0 {
		return rpctypes.ErrGRPCEmptyKey
	}
	return nil
}

// checkTxn checks a transaction. Nested ones share what is left of the bound.
func checkTxn(r *pb.TxnRequest, bound int) error {
	n := max(len(r.GetCompare()), len(r.GetSuccess()), len(r.GetFailure()))
	if n > bound {
		return rpctypes.ErrGRPCTooManyOps
	}
	for _, c := range r.GetCompare() {
		if len(c.GetKey()) == 0 {
			return rpctypes.ErrGRPCEmptyKey
		}
	}
	for _, branch := range [][]*pb.RequestOp{r.GetSuccess(), r.GetFailure()} {
		for _, op := range branch {
			if err := checkOp(op, bound-n); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkOp(op *pb.RequestOp, bound int) error {
	switch o := op.GetRequest().(type) {
	case *pb.RequestOp_RequestRange:
		return checkRange(o.RequestRange)
	case *pb.RequestOp_RequestPut:
		return checkPut(o.RequestPut)
	case *pb.RequestOp_RequestDeleteRange:
		return checkDelete(o.RequestDeleteRange)
	case *pb.RequestOp_RequestTxn:
		return checkTxn(o.RequestTxn, bound)
	}
	return rpctypes.ErrGRPCKeyNotFound // an empty operation; the text is etcd's
}

// changes are the keys that a list of operations may put, and the ranges that it may delete.
type changes struct {
	puts map[string]bool
	dels adt.IntervalTree
}

// put adds a key, unless another operation of the same path puts or deletes it.
func (c changes) put(key string, exclusive map[string]bool) error {
	if c.puts[key] && !exclusive[key] || c.dels.Intersects(adt.NewStringAffinePoint(key)) {
		return rpctypes.ErrGRPCDuplicateKey
	}
	c.puts[key] = true
	return nil
}

// checkDuplicates refuses operations that put a key twice, or put and delete it. The two branches of a nested
// transaction exclude each other, so both may put a key.
func checkDuplicates(ops []*pb.RequestOp) (changes, error) {
	c := changes{map[string]bool{}, adt.NewIntervalTree()}
	for _, op := range ops {
		if d := op.GetRequestDeleteRange(); d != nil {
			c.dels.Insert(interval(d.Key, d.RangeEnd), struct{}{})
		}
	}
	for _, op := range ops {
		t := op.GetRequestTxn()
		if t == nil {
			continue
		}
		then, err := checkDuplicates(t.Success)
		if err != nil {
			return c, err
		}
		otherwise, err := checkDuplicates(t.Failure)
		if err != nil {
			return c, err
		}
		for key := range then.puts {
			if err := c.put(key, nil); err != nil {
				return c, err
			}
		}
		for key := range otherwise.puts {
			if err := c.put(key, then.puts); err != nil {
				return c, err
			}
		}
		everything := adt.NewStringAffineInterval("\x00", "")
		c.dels.Union(then.dels, everything)
		c.dels.Union(otherwise.dels, everything)
	}
	for _, op := range ops {
		if p := op.GetRequestPut(); p != nil {
			if err := c.put(string(p.Key), nil); err != nil {
				return c, err
			}
		}
	}
	return c, nil
}

func interval(key, end []byte) adt.Interval {
	if len(end) == 0 {
		return adt.NewStringAffinePoint(string(key))
	}
	return adt.NewStringAffineInterval(string(key), string(end))
}

// readOnly reports whether a transaction changes nothing, and whether all that it reads may be old.
func readOnly(r *pb.TxnRequest) (yes, serializable bool) {
	serializable = true
	for _, branch := range [][]*pb.RequestOp{r.Success, r.Failure} {
		for _, op := range branch {
			of := op.GetRequestRange()
			if of == nil {
				return false, false // a nested transaction as well: Apply knows what it does
			}
			serializable = serializable && of.Serializable
		}
	}
	return true, serializable
}
