package kv

import (
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/server/command"
	"github.com/millrace/millrace/server/engine"
	"github.com/millrace/millrace/server/lease"
	"github.com/millrace/millrace/server/mvcc"
)

// Apply implements millrace.StateMachine. A command that is refused changes nothing: everything that can
// refuse it is looked at before its first change, or its changes are taken back.
func (m *Machine) Apply(batch []millrace.Command[[]byte], results []command.Result) error {
	s := m.store.Load()
	a := &applier{m: m, state: m.state}
	a.p = s.Begin(a.hasLease, m.feed.IsWatched())
	defer a.p.Close()
	requests, err := a.decode(batch)
	if err != nil {
		return err
	}
	for i := range batch {
		c := &batch[i]
		a.state.applied, a.state.time = c.Index, max(a.state.time, c.Time)
		r, err := a.apply(requests[i], c.Awaited)
		if err != nil {
			code, refused := command.CodeOf(err)
			if !refused {
				return err
			}
			r = command.Result{Err: code}
		}
		a.relax()
		r.Revision = a.p.Meta().Revision
		results[i] = r
	}
	return a.end()
}

// applier is one call of Apply.
type applier struct {
	m     *Machine
	p     *mvcc.Pass
	state state
}

// end writes what has changed, with the state, and publishes its events.
func (a *applier) end() error {
	m, before := a.m, a.m.store.Load().Visible().Revision
	a.p.Batch().Set(engine.Key{Prefix: []byte{spaceState}}, a.state.append(nil, a.p.Meta()))
	events, err := a.p.Commit()
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.state = a.state
	m.mu.Unlock()
	if revision := a.p.Meta().Revision; revision > before {
		m.feed.Publish(events, revision)
	}
	return nil
}

func (a *applier) hasLease(id int64) bool {
	_, ok := a.m.leases.Get(id)
	return ok
}

// apply applies one command. An error that is no refusal halts the machine.
func (a *applier) apply(q request, want bool) (r command.Result, err error) {
	if q.refused != 0 {
		return r, command.Refuse(q.refused)
	}
	switch q.kind {
	case command.KindPut, command.KindDeleteRange, command.KindTxn:
		return a.change(q, want)
	case command.KindCompact:
		return a.compact(q.body, want)
	case command.KindLeaseGrant, command.KindLeaseRevoke:
		return a.lease(q.kind, q.body, want)
	case command.KindLeaseRenew:
		return a.renew(q.body)
	case command.KindLeaseExpire:
		return a.expire(q.body)
	case command.KindAttributes:
		return r, a.attributes(q.body)
	case command.KindAlarm:
		return a.alarm(q.body, want)
	case command.KindSettings:
		quota, refused := command.DecodeSettings(q.body)
		if refused != 0 {
			return r, command.Refuse(refused)
		}
		a.state.quota = max(quota, 0)
		a.p.Mix('q', uint64(a.state.quota))
		return r, nil
	}
	return r, command.Refuse(command.Unsupported)
}

// answer encodes a response if a caller waits for it.
func answer(want bool, m proto.Message) (r command.Result, err error) {
	if want {
		r.Response, err = proto.Marshal(m)
	}
	return r, err
}

// change applies a put, a deletion or a transaction.
func (a *applier) change(q request, want bool) (r command.Result, err error) {
	var resp proto.Message
	switch {
	case q.put != nil:
		if err = a.admit(0, func() int64 { return mvcc.Cost(q.put) }); err == nil {
			resp, err = a.p.Put(q.put, want)
		}
	case q.remove != nil:
		if err = a.admit(0, nil); err == nil {
			resp, err = a.p.DeleteRange(q.remove, want)
		}
	default:
		if err = a.admit(0, func() int64 { return mvcc.TxnCost(q.txn) }); err == nil {
			resp, err = a.p.Txn(q.txn, want)
		}
	}
	if err != nil {
		return r, err
	}
	return answer(want, resp)
}

// admit refuses what alarms and the quota forbid. cost is what a command may add; nil: nothing.
func (a *applier) admit(refused command.Code, cost func() int64) error {
	switch {
	case refused != 0:
		return command.Refuse(refused)
	case len(a.m.alarms) > 0 && a.m.raised(pb.AlarmType_CORRUPT):
		return command.Refuse(command.Corrupt)
	case cost == nil:
		return nil
	case len(a.m.alarms) > 0 && a.m.raised(pb.AlarmType_NOSPACE):
		if cost() > 0 {
			return command.Refuse(command.NoSpace)
		}
	case a.state.quota > 0:
		if n := cost(); n > 0 && a.p.Meta().InUse() > a.state.quota-n {
			a.setAlarm(alarm{of: pb.AlarmType_NOSPACE}, true)
			return command.Refuse(command.NoSpace)
		}
	}
	return nil
}

// relaxPercent is the share of the quota at which the machine's own alarm clears itself.
const relaxPercent = 90

// relax clears the alarm that the quota has raised when there is space again.
func (a *applier) relax() {
	if len(a.m.alarms) == 0 || !a.m.alarms[alarm{of: pb.AlarmType_NOSPACE}] {
		return
	}
	if q := a.state.quota; q == 0 || a.p.Meta().InUse() <= q/100*relaxPercent {
		a.setAlarm(alarm{of: pb.AlarmType_NOSPACE}, false)
	}
}

func (a *applier) compact(body []byte, want bool) (r command.Result, err error) {
	req, refused := command.DecodeCompact(body)
	if err := a.admit(refused, nil); err != nil {
		return r, err
	}
	if err := a.p.Compact(req.Revision); err != nil {
		return r, err
	}
	return answer(want, &pb.CompactionResponse{Header: a.header()})
}

func (a *applier) header() *pb.ResponseHeader {
	return &pb.ResponseHeader{Revision: a.p.Meta().Revision}
}

// lease grants or revokes a lease.
func (a *applier) lease(kind command.Kind, body []byte, want bool) (r command.Result, err error) {
	if kind == command.KindLeaseRevoke {
		id, refused := command.DecodeLeaseRevoke(body)
		if err := a.admit(refused, nil); err != nil {
			return r, err
		}
		if !a.hasLease(id) {
			return r, command.Refuse(command.LeaseNotFound)
		}
		if err := a.endLease(id); err != nil {
			return r, err
		}
		return answer(want, &pb.LeaseRevokeResponse{Header: a.header()})
	}
	id, ttl, refused := command.DecodeLeaseGrant(body)
	if err := a.admit(refused, func() int64 { return 1 }); err != nil {
		return r, err
	}
	switch {
	case id == 0:
		return r, command.Refuse(command.LeaseNotFound)
	case ttl > lease.MaxTTL:
		return r, command.Refuse(command.LeaseTTLTooLarge)
	case a.hasLease(id):
		return r, command.Refuse(command.LeaseExists)
	}
	ttl = max(ttl, 1)
	a.m.mu.Lock()
	i := a.m.leases.Grant(id, ttl, a.state.time)
	a.m.mu.Unlock()
	a.writeLease('g', i)
	return answer(want, &pb.LeaseGrantResponse{Header: a.header(), ID: id, TTL: ttl})
}

func (a *applier) writeLease(kind uint64, i lease.Info) {
	a.p.Batch().Set(leaseKey(i.ID), appendLease(nil, i))
	a.p.Mix(kind, uint64(i.ID), uint64(i.TTL), uint64(i.Deadline), i.Number)
}

// endLease removes a lease and its keys.
func (a *applier) endLease(id int64) error {
	if err := a.p.RemoveLease(id); err != nil {
		return err
	}
	a.m.mu.Lock()
	a.m.leases.Remove(id)
	a.m.mu.Unlock()
	a.p.Batch().Delete(leaseKey(id))
	a.p.Mix('e', uint64(id))
	return nil
}

func (a *applier) renew(body []byte) (r command.Result, err error) {
	ids, refused := command.DecodeLeaseRenew(body)
	if refused != 0 {
		return r, command.Refuse(refused)
	}
	r.TTLs = make([]int64, len(ids))
	for k, id := range ids {
		a.m.mu.Lock()
		i, ok := a.m.leases.Renew(id, a.state.time)
		a.m.mu.Unlock()
		if ok {
			r.TTLs[k] = i.TTL
			a.writeLease('n', i)
		}
	}
	return r, nil
}

// expire ends the leases that were not renewed since the leader has proposed it, and are over now.
func (a *applier) expire(body []byte) (r command.Result, err error) {
	of, refused := command.DecodeLeaseExpire(body)
	if refused != 0 {
		return r, command.Refuse(refused)
	}
	for _, renewal := range of {
		if !a.m.leases.Expired(renewal, a.state.time) {
			continue
		}
		if err := a.endLease(renewal.ID); err != nil {
			return r, err
		}
		r.Expired++
	}
	return r, nil
}

// alarm raises, clears or lists alarms. As in etcd an unknown action does nothing.
func (a *applier) alarm(body []byte, want bool) (r command.Result, err error) {
	req, refused := command.DecodeAlarm(body)
	if refused != 0 {
		return r, command.Refuse(refused)
	}
	of := alarm{of: req.Alarm, member: req.MemberID}
	resp := &pb.AlarmResponse{Header: a.header()}
	switch req.Action {
	case pb.AlarmRequest_GET:
		resp.Alarms = a.m.alarmsOf(req.Alarm)
	case pb.AlarmRequest_ACTIVATE:
		if !slices.Contains([]pb.AlarmType{pb.AlarmType_NOSPACE, pb.AlarmType_CORRUPT}, req.Alarm) {
			break
		}
		a.setAlarm(of, true)
		resp.Alarms = []*pb.AlarmMember{{MemberID: of.member, Alarm: of.of}}
	case pb.AlarmRequest_DEACTIVATE:
		if a.m.alarms[of] {
			a.setAlarm(of, false)
			resp.Alarms = []*pb.AlarmMember{{MemberID: of.member, Alarm: of.of}}
		}
	}
	return answer(want, resp)
}

func (a *applier) setAlarm(of alarm, on bool) {
	a.m.mu.Lock()
	defer a.m.mu.Unlock()
	if a.m.alarms[of] == on {
		return
	}
	if on {
		a.m.alarms[of] = true
		a.p.Batch().Set(of.key(), nil)
		a.p.Mix('a', uint64(of.of), of.member, 1)
		return
	}
	delete(a.m.alarms, of)
	a.p.Batch().Delete(of.key())
	a.p.Mix('a', uint64(of.of), of.member, 0)
}
