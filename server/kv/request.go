package kv

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/server/command"
)

// request is a command as it was decoded. One of put, remove and txn is set if it is of that kind.
type request struct {
	kind    command.Kind
	body    []byte
	refused command.Code // of the decoder; 0: none
	put     *pb.PutRequest
	remove  *pb.DeleteRangeRequest
	txn     *pb.TxnRequest
}

// decode decodes a batch, and looks up the keys that it will change. A look-up may be a read of the disk. So
// those of a batch are made at once, and not one behind the other.
func (a *applier) decode(batch []millrace.Command[[]byte]) ([]request, error) {
	all := make([]request, len(batch))
	for i := range batch {
		q := &all[i]
		if q.kind, q.body, q.refused = command.Split(batch[i].Value); q.refused != 0 {
			continue
		}
		switch q.kind {
		case command.KindPut:
			q.put, q.refused = command.DecodePut(q.body)
		case command.KindDeleteRange:
			q.remove, q.refused = command.DecodeDeleteRange(q.body)
		case command.KindTxn:
			q.txn, q.refused = command.DecodeTxn(q.body)
		}
	}
	if len(batch) == 1 || !a.p.MayMiss() {
		return all, nil
	}
	var keys [][]byte
	for i := range all {
		keys = all[i].appendKeys(keys)
	}
	return all, a.p.LookUp(keys)
}

// appendKeys appends the single keys that a request compares or may change. Those of nested transactions are
// looked up when they are needed.
func (q *request) appendKeys(keys [][]byte) [][]byte {
	switch {
	case q.put != nil:
		return append(keys, q.put.Key)
	case q.remove != nil && len(q.remove.RangeEnd) == 0:
		return append(keys, q.remove.Key)
	case q.txn == nil:
		return keys
	}
	r := q.txn
	for _, c := range r.Compare {
		if len(c.GetRangeEnd()) == 0 {
			keys = append(keys, c.GetKey())
		}
	}
	for _, ops := range [][]*pb.RequestOp{r.Success, r.Failure} {
		for _, op := range ops {
			if p := op.GetRequestPut(); p != nil {
				keys = append(keys, p.Key)
			}
			if d := op.GetRequestDeleteRange(); d != nil && len(d.RangeEnd) == 0 {
				keys = append(keys, d.Key)
			}
		}
	}
	return keys
}
