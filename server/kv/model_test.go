package kv

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/millrace/millrace/server/command"
	"github.com/millrace/millrace/server/lease"
)

// model is the naive twin of the machine: all states that ever were, each a map.
type model struct {
	states    []map[string]*mvccpb.KeyValue // by revision; [1] is the empty one
	events    map[int64][]*mvccpb.Event     // by revision
	compacted int64
	leases    map[int64]*modelLease
}

type modelLease struct {
	ttl      int64
	deadline time.Duration
	number   uint64
}

func newModel() *model {
	return &model{states: []map[string]*mvccpb.KeyValue{nil, {}}, events: map[int64][]*mvccpb.Event{}, compacted: -1, leases: map[int64]*modelLease{}}
}

func (m *model) revision() int64 { return int64(len(m.states)) - 1 }

// modelChange is a command under way: it works on a copy.
type modelChange struct {
	m      *model
	now    map[string]*mvccpb.KeyValue
	events []*mvccpb.Event
}

// compact forgets what cannot be read any more.
func (m *model) compact(rev int64) {
	for old := max(m.compacted, 1); old < rev; old++ {
		m.states[old] = nil
		delete(m.events, old-1000) // the feed is read a little later
	}
	m.compacted = rev
}

func (m *model) begin() *modelChange {
	return &modelChange{m: m, now: maps.Clone(m.states[m.revision()])}
}

func (c *modelChange) revision() int64 {
	if len(c.events) > 0 {
		return c.m.revision() + 1
	}
	return c.m.revision()
}

func (c *modelChange) end() {
	if len(c.events) > 0 {
		c.m.states = append(c.m.states, c.now)
		c.m.events[c.m.revision()] = c.events
	}
}

func inRange(key string, lo, hi []byte) bool {
	switch {
	case len(hi) == 0:
		return key == string(lo)
	case bytes.Equal(hi, []byte{0}):
		return key >= string(lo)
	}
	return key >= string(lo) && key < string(hi)
}

// keysIn returns the keys of a range in their order.
func keysIn(state map[string]*mvccpb.KeyValue, lo, hi []byte) (kvs []*mvccpb.KeyValue) {
	for _, key := range slices.Sorted(maps.Keys(state)) {
		if inRange(key, lo, hi) {
			kvs = append(kvs, state[key])
		}
	}
	return kvs
}

func (c *modelChange) put(r *pb.PutRequest) (*pb.PutResponse, command.Code) {
	rev := c.m.revision() + 1
	old := c.now[string(r.Key)]
	if (r.IgnoreValue || r.IgnoreLease) && old == nil {
		return nil, command.KeyNotFound
	}
	kv := &mvccpb.KeyValue{Key: r.Key, Value: r.Value, CreateRevision: rev, ModRevision: rev, Version: 1, Lease: r.Lease}
	if old != nil {
		kv.CreateRevision, kv.Version = old.CreateRevision, old.Version+1
		if r.IgnoreValue {
			kv.Value = old.Value
		}
		if r.IgnoreLease {
			kv.Lease = old.Lease
		}
	}
	c.now[string(r.Key)] = kv
	c.events = append(c.events, &mvccpb.Event{Type: mvccpb.Event_PUT, Kv: kv})
	resp := &pb.PutResponse{Header: &pb.ResponseHeader{Revision: rev}}
	if r.PrevKv {
		resp.PrevKv = old
	}
	return resp, 0
}

func (c *modelChange) delete(r *pb.DeleteRangeRequest) *pb.DeleteRangeResponse {
	resp := &pb.DeleteRangeResponse{}
	for _, kv := range keysIn(c.now, r.Key, r.RangeEnd) {
		delete(c.now, string(kv.Key))
		c.events = append(c.events, &mvccpb.Event{Type: mvccpb.Event_DELETE, Kv: &mvccpb.KeyValue{Key: kv.Key, ModRevision: c.m.revision() + 1}})
		resp.Deleted++
		if r.PrevKv {
			resp.PrevKvs = append(resp.PrevKvs, kv)
		}
	}
	resp.Header = &pb.ResponseHeader{Revision: c.revision()}
	return resp
}

// rangeAt answers a range; now is the state at revision rev.
func (m *model) rangeAt(r *pb.RangeRequest, now map[string]*mvccpb.KeyValue, rev int64) (*pb.RangeResponse, command.Code) {
	switch {
	case r.Revision > rev:
		return nil, command.FutureRevision
	case r.Revision > 0 && r.Revision < m.compacted:
		return nil, command.Compacted
	case r.Revision > 0 && r.Revision < rev:
		now = m.states[r.Revision]
	}
	all := keysIn(now, r.Key, r.RangeEnd)
	resp := &pb.RangeResponse{Header: &pb.ResponseHeader{Revision: rev}, Count: int64(len(all))}
	if r.CountOnly {
		return resp, 0
	}
	ordered := r.SortOrder == pb.RangeRequest_NONE || r.SortTarget == pb.RangeRequest_KEY && r.SortOrder == pb.RangeRequest_ASCEND
	filtered := r.MinModRevision != 0 || r.MaxModRevision != 0 || r.MinCreateRevision != 0 || r.MaxCreateRevision != 0
	if ordered && !filtered && r.Limit > 0 && int64(len(all)) > r.Limit+1 {
		all = all[:r.Limit+1]
	}
	for _, kv := range all {
		if r.MinModRevision != 0 && kv.ModRevision < r.MinModRevision || r.MaxModRevision != 0 && kv.ModRevision > r.MaxModRevision ||
			r.MinCreateRevision != 0 && kv.CreateRevision < r.MinCreateRevision || r.MaxCreateRevision != 0 && kv.CreateRevision > r.MaxCreateRevision {
			continue
		}
		kv = &mvccpb.KeyValue{Key: kv.Key, Value: kv.Value, CreateRevision: kv.CreateRevision, ModRevision: kv.ModRevision, Version: kv.Version, Lease: kv.Lease}
		if r.KeysOnly && r.SortTarget != pb.RangeRequest_VALUE {
			kv.Lease = 0
		}
		resp.Kvs = append(resp.Kvs, kv)
	}
	if r.SortOrder == pb.RangeRequest_DESCEND || r.SortTarget != pb.RangeRequest_KEY {
		slices.SortStableFunc(resp.Kvs, func(a, b *mvccpb.KeyValue) int {
			c := compareBy(r.SortTarget, a, b)
			if r.SortOrder == pb.RangeRequest_DESCEND {
				return -c
			}
			return c
		})
	}
	if r.Limit > 0 && int64(len(resp.Kvs)) > r.Limit {
		resp.Kvs, resp.More = resp.Kvs[:r.Limit], true
	}
	for _, kv := range resp.Kvs {
		if r.KeysOnly {
			kv.Value = nil
		}
	}
	return resp, 0
}

func compareBy(target pb.RangeRequest_SortTarget, a, b *mvccpb.KeyValue) int {
	switch target {
	case pb.RangeRequest_VERSION:
		return cmp.Compare(a.Version, b.Version)
	case pb.RangeRequest_CREATE:
		return cmp.Compare(a.CreateRevision, b.CreateRevision)
	case pb.RangeRequest_MOD:
		return cmp.Compare(a.ModRevision, b.ModRevision)
	case pb.RangeRequest_VALUE:
		return bytes.Compare(a.Value, b.Value)
	}
	return bytes.Compare(a.Key, b.Key)
}

func (m *model) compare(c *pb.Compare) bool {
	kvs := keysIn(m.states[m.revision()], c.Key, c.RangeEnd)
	if len(kvs) == 0 {
		if c.Target == pb.Compare_VALUE {
			return false
		}
		kvs = []*mvccpb.KeyValue{{}}
	}
	for _, kv := range kvs {
		var order int
		switch c.Target {
		case pb.Compare_VALUE:
			order = bytes.Compare(kv.Value, c.GetValue())
		case pb.Compare_CREATE:
			order = cmp.Compare(kv.CreateRevision, c.GetCreateRevision())
		case pb.Compare_MOD:
			order = cmp.Compare(kv.ModRevision, c.GetModRevision())
		case pb.Compare_VERSION:
			order = cmp.Compare(kv.Version, c.GetVersion())
		case pb.Compare_LEASE:
			order = cmp.Compare(kv.Lease, c.GetLease())
		}
		holds := map[pb.Compare_CompareResult]bool{pb.Compare_EQUAL: order == 0, pb.Compare_NOT_EQUAL: order != 0, pb.Compare_GREATER: order > 0, pb.Compare_LESS: order < 0}
		if !holds[c.Result] {
			return false
		}
	}
	return true
}

// choose replaces each transaction by its branch, in the state before all of it.
func (m *model) choose(r *pb.TxnRequest) (ops []*pb.RequestOp, succeeded bool, nested []*modelTxn) {
	succeeded = true
	for _, c := range r.Compare {
		succeeded = succeeded && m.compare(c)
	}
	if ops = r.Success; !succeeded {
		ops = r.Failure
	}
	for _, op := range ops {
		var n *modelTxn
		if t := op.GetRequestTxn(); t != nil {
			n = &modelTxn{}
			n.ops, n.succeeded, n.nested = m.choose(t)
		}
		nested = append(nested, n)
	}
	return ops, succeeded, nested
}

type modelTxn struct {
	ops       []*pb.RequestOp
	succeeded bool
	nested    []*modelTxn // by op
}

// refuse returns the first reason against an operation.
func (t *modelTxn) refuse(m *model) command.Code {
	now := m.states[m.revision()]
	for i, op := range t.ops {
		switch r := op.Request.(type) {
		case *pb.RequestOp_RequestRange:
			if rev := r.RequestRange.Revision; rev > m.revision() {
				return command.FutureRevision
			} else if rev != 0 && rev < m.compacted {
				return command.Compacted
			}
		case *pb.RequestOp_RequestPut:
			p := r.RequestPut
			if p.Lease != 0 && m.leases[p.Lease] == nil {
				return command.LeaseNotFound
			}
			if (p.IgnoreValue || p.IgnoreLease) && now[string(p.Key)] == nil {
				return command.KeyNotFound
			}
		case *pb.RequestOp_RequestTxn:
			if c := t.nested[i].refuse(m); c != 0 {
				return c
			}
		}
	}
	return 0
}

func (t *modelTxn) execute(c *modelChange) (*pb.TxnResponse, command.Code) {
	resp := &pb.TxnResponse{Header: &pb.ResponseHeader{}, Succeeded: t.succeeded}
	for i, op := range t.ops {
		a := &pb.ResponseOp{}
		switch r := op.Request.(type) {
		case *pb.RequestOp_RequestRange:
			got, code := c.m.rangeAt(r.RequestRange, c.now, c.revision())
			if code != 0 {
				return nil, code
			}
			a.Response = &pb.ResponseOp_ResponseRange{ResponseRange: got}
		case *pb.RequestOp_RequestPut:
			got, code := c.put(r.RequestPut)
			if code != 0 {
				return nil, code
			}
			a.Response = &pb.ResponseOp_ResponsePut{ResponsePut: got}
		case *pb.RequestOp_RequestDeleteRange:
			a.Response = &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: c.delete(r.RequestDeleteRange)}
		case *pb.RequestOp_RequestTxn:
			got, code := t.nested[i].execute(c)
			if code != 0 {
				return nil, code
			}
			a.Response = &pb.ResponseOp_ResponseTxn{ResponseTxn: got}
		}
		resp.Responses = append(resp.Responses, a)
	}
	return resp, 0
}

func (m *model) txn(r *pb.TxnRequest) (*pb.TxnResponse, command.Code) {
	t := &modelTxn{}
	t.ops, t.succeeded, t.nested = m.choose(r)
	if c := t.refuse(m); c != 0 {
		return nil, c
	}
	c := m.begin()
	resp, code := t.execute(c)
	if code != 0 {
		return nil, code
	}
	resp.Header.Revision = c.revision()
	c.end()
	return resp, 0
}

// endLease removes a lease and its keys.
func (m *model) endLease(id int64) {
	delete(m.leases, id)
	c := m.begin()
	for _, kv := range keysIn(c.now, []byte{0}, []byte{0}) {
		if kv.Lease == id {
			c.delete(&pb.DeleteRangeRequest{Key: kv.Key})
		}
	}
	c.end()
}

func (m *model) expire(of []lease.Renewal, now time.Duration) (n int64) {
	for _, r := range of {
		if l := m.leases[r.ID]; l != nil && l.number == r.Number && l.deadline <= now {
			m.endLease(r.ID)
			n++
		}
	}
	return n
}
