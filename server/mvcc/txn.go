package mvcc

import (
	"bytes"
	"cmp"
	"context"
	"errors"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/millrace/millrace/server/command"
)

// maxDepth bounds the nesting of transactions in the log. The front allows no more than its bound of
// operations; what another program has proposed is refused here.
const maxDepth = 512

// A transaction is decided before it changes anything: decide evaluates all comparisons on the path that they
// choose, those of nested transactions too, in the state before the transaction. Then checkPlan looks for
// every reason to refuse an operation of that path, in their order. Then execute carries them out.

// plan is a transaction with its decision.
type plan struct {
	succeeded bool
	ops       []*pb.RequestOp
	nested    []*plan // of the transactions among ops, in their order
}

// decide evaluates the comparisons of a transaction.
func (v *view) decide(ctx context.Context, r *pb.TxnRequest, depth int) (*plan, error) {
	if depth > maxDepth {
		return nil, command.Refuse(command.TooDeep)
	}
	p := &plan{succeeded: true, ops: r.Success}
	for _, c := range r.Compare {
		holds, err := v.holds(ctx, c)
		if err != nil {
			return nil, err
		}
		if !holds {
			p.succeeded, p.ops = false, r.Failure
			break
		}
	}
	for _, op := range p.ops {
		if n := op.GetRequestTxn(); n != nil {
			nested, err := v.decide(ctx, n, depth+1)
			if err != nil {
				return nil, err
			}
			p.nested = append(p.nested, nested)
		}
	}
	return p, nil
}

// holds reports whether a comparison holds for all keys of its range. For a key that does not live its value
// compares with nothing, and its numbers are 0.
func (v *view) holds(ctx context.Context, c *pb.Compare) (bool, error) {
	if len(c.Key) == 0 {
		return false, command.Refuse(command.EmptyKey)
	}
	found, holds := false, true
	err := v.scan(ctx, c.Key, c.RangeEnd, v.meta.Revision, func(i item) (bool, error) {
		found, holds = true, compareItem(c, i)
		return holds, nil
	})
	if err != nil || found {
		return holds, err
	}
	return c.Target != pb.Compare_VALUE && compareItem(c, item{}), nil
}

func compareItem(c *pb.Compare, i item) bool {
	order := 0
	switch c.Target {
	case pb.Compare_VALUE:
		order = bytes.Compare(i.value, c.GetValue())
	case pb.Compare_CREATE:
		order = cmp.Compare(i.Create, c.GetCreateRevision())
	case pb.Compare_MOD:
		order = cmp.Compare(i.Main, c.GetModRevision())
	case pb.Compare_VERSION:
		order = cmp.Compare(i.Version, c.GetVersion())
	case pb.Compare_LEASE:
		order = cmp.Compare(i.Lease, c.GetLease())
	}
	switch c.Result {
	case pb.Compare_EQUAL:
		return order == 0
	case pb.Compare_NOT_EQUAL:
		return order != 0
	case pb.Compare_GREATER:
		return order > 0
	case pb.Compare_LESS:
		return order < 0
	}
	return true
}

// checkPlan returns the first reason to refuse an operation of a plan.
func (v *view) checkPlan(p *plan, leases func(int64) bool) error {
	nested := p.nested
	for _, op := range p.ops {
		var err error
		switch r := op.GetRequest().(type) {
		case *pb.RequestOp_RequestRange:
			err = v.checkRange(r.RequestRange)
		case *pb.RequestOp_RequestPut:
			err = v.checkPut(r.RequestPut, leases)
		case *pb.RequestOp_RequestDeleteRange:
			if len(r.RequestDeleteRange.GetKey()) == 0 {
				err = command.Refuse(command.EmptyKey)
			}
		case *pb.RequestOp_RequestTxn:
			if r.RequestTxn == nil {
				err = command.Refuse(command.KeyNotFound)
				break
			}
			err = v.checkPlan(nested[0], leases)
			nested = nested[1:]
		default: // an empty operation: so etcd calls it
			err = command.Refuse(command.KeyNotFound)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (v *view) checkRange(r *pb.RangeRequest) error {
	switch {
	case len(r.GetKey()) == 0:
		return command.Refuse(command.EmptyKey)
	case !validSort(r):
		return command.Refuse(command.InvalidSort)
	case r.Revision == 0:
		return nil
	case r.Revision > v.meta.Revision:
		return command.Refuse(command.FutureRevision)
	case r.Revision < v.meta.Compacted: // a negative one too, as in etcd
		return command.Refuse(command.Compacted)
	}
	return nil
}

// checkPut looks at a put. In a transaction the key may be deleted before it: put looks again.
func (v *view) checkPut(r *pb.PutRequest, leases func(int64) bool) error {
	switch {
	case len(r.GetKey()) == 0:
		return command.Refuse(command.EmptyKey)
	case r.IgnoreValue && len(r.Value) > 0:
		return command.Refuse(command.ValueProvided)
	case r.IgnoreLease && r.Lease != 0:
		return command.Refuse(command.LeaseProvided)
	case r.Lease != 0 && (leases == nil || !leases(r.Lease)):
		return command.Refuse(command.LeaseNotFound)
	case !r.IgnoreValue && !r.IgnoreLease:
		return nil
	}
	_, ok, err := v.get(r.Key, v.meta.Revision)
	if err == nil && !ok {
		err = command.Refuse(command.KeyNotFound)
	}
	return err
}

// Put applies a put. The request's bytes are kept. want says that the answer is of use.
func (p *Pass) Put(r *pb.PutRequest, want bool) (*pb.PutResponse, error) {
	t := p.begin()
	if err := t.view().checkPut(r, p.leases); err != nil {
		return nil, err
	}
	resp, err := t.putRequest(r, want)
	if err != nil {
		t.refuse()
		return nil, err
	}
	t.finish()
	return resp, nil
}

func (t tx) putRequest(r *pb.PutRequest, want bool) (*pb.PutResponse, error) {
	value, lease := r.Value, r.Lease
	var resp *pb.PutResponse
	if want {
		resp = &pb.PutResponse{}
	}
	if r.IgnoreValue || r.IgnoreLease || r.PrevKv && want {
		i, ok, err := t.current(r.Key)
		switch {
		case err != nil:
			return nil, err
		case !ok && (r.IgnoreValue || r.IgnoreLease):
			return nil, command.Refuse(command.KeyNotFound)
		case ok && r.PrevKv && want:
			resp.PrevKv = i.keyValue()
		}
		if r.IgnoreValue {
			value = i.value
		}
		if r.IgnoreLease {
			lease = i.Lease
		}
	}
	if err := t.put(r.Key, value, lease); err != nil {
		return nil, err
	}
	if want {
		resp.Header = &pb.ResponseHeader{Revision: t.revision()}
	}
	return resp, nil
}

// DeleteRange applies a deletion.
func (p *Pass) DeleteRange(r *pb.DeleteRangeRequest, want bool) (*pb.DeleteRangeResponse, error) {
	if len(r.Key) == 0 {
		return nil, command.Refuse(command.EmptyKey)
	}
	t := p.begin()
	resp, err := t.deleteRequest(r, want)
	if err != nil {
		t.refuse()
		return nil, err
	}
	t.finish()
	return resp, nil
}

func (t tx) deleteRequest(r *pb.DeleteRangeRequest, want bool) (*pb.DeleteRangeResponse, error) {
	n, were, err := t.removeRange(r.Key, r.RangeEnd, r.PrevKv && want)
	if err != nil {
		return nil, err
	}
	return &pb.DeleteRangeResponse{Header: &pb.ResponseHeader{Revision: t.revision()}, Deleted: n, PrevKvs: were}, nil
}

// Txn applies a transaction.
func (p *Pass) Txn(r *pb.TxnRequest, want bool) (*pb.TxnResponse, error) {
	ctx, t := context.Background(), p.begin()
	v := t.view()
	decision, err := v.decide(ctx, r, 1)
	if err == nil {
		err = v.checkPlan(decision, p.leases)
	}
	var resp *pb.TxnResponse
	if err == nil {
		resp, err = t.execute(ctx, decision, want)
	}
	if err != nil {
		t.refuse()
		return nil, err
	}
	resp.Header.Revision = t.revision()
	t.finish()
	return resp, nil
}

// execute carries out a plan. The header of a nested answer is empty, as in etcd.
func (t tx) execute(ctx context.Context, p *plan, want bool) (*pb.TxnResponse, error) {
	resp := &pb.TxnResponse{Header: &pb.ResponseHeader{}, Succeeded: p.succeeded}
	nested := p.nested
	for _, op := range p.ops {
		answer := &pb.ResponseOp{}
		switch r := op.GetRequest().(type) {
		case *pb.RequestOp_RequestRange:
			if !want { // it changes nothing
				continue
			}
			a, err := t.view().rangeOf(ctx, r.RequestRange)
			if err != nil {
				return nil, refusalOf(err)
			}
			answer.Response = &pb.ResponseOp_ResponseRange{ResponseRange: a}
		case *pb.RequestOp_RequestPut:
			a, err := t.putRequest(r.RequestPut, want)
			if err != nil {
				return nil, err
			}
			answer.Response = &pb.ResponseOp_ResponsePut{ResponsePut: a}
		case *pb.RequestOp_RequestDeleteRange:
			a, err := t.deleteRequest(r.RequestDeleteRange, want)
			if err != nil {
				return nil, err
			}
			answer.Response = &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: a}
		case *pb.RequestOp_RequestTxn:
			a, err := t.execute(ctx, nested[0], want)
			if err != nil {
				return nil, err
			}
			nested = nested[1:]
			answer.Response = &pb.ResponseOp_ResponseTxn{ResponseTxn: a}
		}
		if want {
			resp.Responses = append(resp.Responses, answer)
		}
	}
	return resp, nil
}

// refusalOf turns an error of a read into a refusal. A disk's stays an error.
func refusalOf(err error) error {
	switch {
	case errors.Is(err, ErrCompacted):
		return command.Refuse(command.Compacted)
	case errors.Is(err, ErrFuture):
		return command.Refuse(command.FutureRevision)
	}
	return err
}

// IsReadOnly reports whether a transaction has ranges only.
func IsReadOnly(r *pb.TxnRequest) bool {
	for _, ops := range [][]*pb.RequestOp{r.Success, r.Failure} {
		for _, op := range ops {
			if op.GetRequestRange() == nil {
				return false
			}
		}
	}
	return true
}

// Txn answers a transaction of ranges at the visible state.
func (s *Store) Txn(ctx context.Context, r *pb.TxnRequest) (resp *pb.TxnResponse, err error) {
	err = s.read(true, func(v *view) error {
		decision, err := v.decide(ctx, r, 1)
		if err == nil {
			err = v.checkPlan(decision, nil)
		}
		if err != nil {
			return err
		}
		resp = &pb.TxnResponse{Header: &pb.ResponseHeader{Revision: v.meta.Revision}, Succeeded: decision.succeeded}
		for _, op := range decision.ops {
			a, err := v.rangeOf(ctx, op.GetRequestRange())
			if err != nil {
				return err
			}
			resp.Responses = append(resp.Responses, &pb.ResponseOp{Response: &pb.ResponseOp_ResponseRange{ResponseRange: a}})
		}
		return nil
	})
	return resp, err
}

// PreviousOf returns a key as it was before a revision; nil if it was not, or is compacted.
func (s *Store) PreviousOf(key []byte, rev int64) (kv *mvccpb.KeyValue, err error) {
	err = s.read(false, func(v *view) error {
		kv = nil
		if rev-1 < v.meta.Compacted || rev < 2 {
			return nil
		}
		i, ok, err := v.get(key, rev-1)
		if err == nil && ok {
			kv = i.keyValue()
		}
		return err
	})
	return kv, err
}
