package mvcc

import pb "go.etcd.io/etcd/api/v3/etcdserverpb"

// Cost returns the bytes that a put may add.
func Cost(r *pb.PutRequest) int64 { return versionBytes(r.Key, r.Value) }

// TxnCost returns the bytes that a transaction may add: by the branch that adds more.
func TxnCost(r *pb.TxnRequest) int64 { return max(opsCost(r.Success, 0), opsCost(r.Failure, 0)) }

func opsCost(ops []*pb.RequestOp, depth int) (n int64) {
	if depth > maxDepth { // it will be refused
		return 0
	}
	for _, op := range ops {
		if r := op.GetRequestPut(); r != nil {
			n += Cost(r)
		} else if t := op.GetRequestTxn(); t != nil {
			n += max(opsCost(t.Success, depth+1), opsCost(t.Failure, depth+1))
		}
	}
	return n
}
