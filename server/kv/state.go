package kv

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/server/engine"
	"github.com/millrace/millrace/server/lease"
	"github.com/millrace/millrace/server/mvcc"
)

// The spaces of this package.
const (
	spaceLeases  = 'l'
	spaceMembers = 'm'
	spaceAlarms  = 'y'
	spaceState   = 'z'
)

// state is what a machine knows beside its keys.
type state struct {
	applied uint64
	time    time.Duration // log time of the last command
	quota   int64
}

// stateVersion is the first byte of the record, and changes with the form of what is stored.
const stateVersion = 1

func (s state) append(b []byte, m mvcc.Meta) []byte {
	b = binary.AppendUvarint(append(b, stateVersion), s.applied)
	for _, v := range []int64{int64(s.time), s.quota, m.Revision, m.Compacted, m.Live, m.Dead, m.Swept} {
		b = binary.AppendVarint(b, v)
	}
	return binary.BigEndian.AppendUint64(b, m.Digest)
}

func parseState(b []byte) (s state, m mvcc.Meta, err error) {
	if len(b) == 0 || b[0] != stateVersion {
		return s, m, fmt.Errorf("kv: the state begins with %.1x, want version %d; did another version of this program write it?", b, stateVersion)
	}
	rest, short := b[1:], false
	applied, n := binary.Uvarint(rest)
	short, rest = n <= 0, rest[max(n, 0):]
	for _, v := range []*int64{(*int64)(&s.time), &s.quota, &m.Revision, &m.Compacted, &m.Live, &m.Dead, &m.Swept} {
		if *v, n = binary.Varint(rest); n <= 0 {
			short = true
			break
		}
		rest = rest[n:]
	}
	if short || len(rest) != 8 {
		return s, m, fmt.Errorf("kv: the state has %d bytes, which are not a whole one", len(b))
	}
	s.applied, m.Digest = applied, binary.BigEndian.Uint64(rest)
	return s, m, nil
}

func leaseKey(id int64) engine.Key {
	return engine.Key{Prefix: binary.BigEndian.AppendUint64([]byte{spaceLeases}, uint64(id))}
}

func appendLease(b []byte, i lease.Info) []byte {
	b = binary.AppendVarint(binary.AppendVarint(b, i.TTL), int64(i.Deadline))
	return binary.AppendUvarint(b, i.Number)
}

func parseLease(k engine.Key, b []byte) (i lease.Info, err error) {
	ttl, n := binary.Varint(b)
	b = b[max(n, 0):]
	deadline, k2 := binary.Varint(b)
	b = b[max(k2, 0):]
	number, k3 := binary.Uvarint(b)
	if len(k.Prefix) != 9 || n <= 0 || k2 <= 0 || k3 != len(b) {
		return i, fmt.Errorf("kv: the record of lease %x is damaged", k.Prefix)
	}
	return lease.Info{ID: int64(binary.BigEndian.Uint64(k.Prefix[1:])), TTL: ttl, Deadline: time.Duration(deadline), Number: number}, nil
}

func (a alarm) key() engine.Key {
	b := binary.BigEndian.AppendUint32([]byte{spaceAlarms}, uint32(a.of))
	return engine.Key{Prefix: binary.BigEndian.AppendUint64(b, a.member)}
}

func parseAlarm(k engine.Key) (alarm, error) {
	if len(k.Prefix) != 13 {
		return alarm{}, fmt.Errorf("kv: the record of alarm %x is damaged", k.Prefix)
	}
	return alarm{of: pb.AlarmType(binary.BigEndian.Uint32(k.Prefix[1:])), member: binary.BigEndian.Uint64(k.Prefix[5:])}, nil
}

// contents is what is loaded from an engine. That takes as long as there are leases, whatever keys there are.
type contents struct {
	store   *mvcc.Store
	state   state
	leases  *lease.Set
	members map[uint64]member
	alarms  map[alarm]bool

	configured []uint64 // nil: not known
}

// load reads the state in an engine, which may be empty.
func load(e engine.Engine, o Options) (*contents, error) {
	c := &contents{leases: lease.NewSet(), members: map[uint64]member{}, alarms: map[alarm]bool{}}
	r := e.Pin()
	defer r.Close()
	_, b, ok, err := r.Newest(engine.Key{Prefix: []byte{spaceState}})
	if err != nil {
		return nil, err
	}
	meta := mvcc.Empty
	if ok {
		if c.state, meta, err = parseState(b); err != nil {
			return nil, err
		}
	}
	err = each(r, spaceLeases, func(k engine.Key, v []byte) error {
		i, err := parseLease(k, v)
		c.leases.Put(i)
		return err
	})
	if err == nil {
		err = each(r, spaceMembers, func(_ engine.Key, v []byte) error {
			m, err := parseMember(v)
			c.members[m.ID] = m
			return err
		})
	}
	if err == nil {
		c.configured, err = readConfigured(r)
	}
	if err == nil {
		err = each(r, spaceAlarms, func(k engine.Key, _ []byte) error {
			a, err := parseAlarm(k)
			c.alarms[a] = true
			return err
		})
	}
	if err == nil {
		c.store, err = mvcc.Open(e, meta, o.HeadCacheBytes, o.ValueCacheBytes, o.Answers)
	}
	return c, err
}

// each calls f with the keys of a space.
func each(r engine.Reader, space byte, f func(k engine.Key, value []byte) error) (err error) {
	it := r.Iterate([]byte{space}, []byte{space + 1})
	for err == nil && it.Next() {
		var v []byte
		if v, err = it.Value(); err == nil {
			err = f(it.Key(), v)
		}
	}
	if cerr := it.Close(); err == nil {
		err = cerr
	}
	return err
}

// Members returns what the members have told of themselves, in the order of their ids.
func (m *Machine) Members() []*pb.Member {
	m.mu.RLock()
	defer m.mu.RUnlock()
	all := make([]*pb.Member, 0, len(m.members))
	for _, of := range m.members {
		all = append(all, proto.CloneOf(of.Member))
	}
	slices.SortFunc(all, func(a, b *pb.Member) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// KnownVersion returns the highest command version that all members have told; 0: one has not told yet.
func (m *Machine) KnownVersion(members []uint64) uint64 {
	m.mu.RLock()
	defer m.mu.RUnlock()
	known := uint64(1<<63 - 1)
	for _, id := range members {
		known = min(known, m.members[id].highest)
	}
	return known
}

// Alarms returns the alarms that are raised.
func (m *Machine) Alarms() []*pb.AlarmMember {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.alarmsOf(pb.AlarmType_NONE)
}

// alarmsOf returns the alarms of a type, NONE: all. The caller holds mu.
func (m *Machine) alarmsOf(of pb.AlarmType) []*pb.AlarmMember {
	var all []*pb.AlarmMember
	for a := range m.alarms {
		if of == pb.AlarmType_NONE || a.of == of {
			all = append(all, &pb.AlarmMember{MemberID: a.member, Alarm: a.of})
		}
	}
	slices.SortFunc(all, func(a, b *pb.AlarmMember) int {
		return cmp.Or(cmp.Compare(a.Alarm, b.Alarm), cmp.Compare(a.MemberID, b.MemberID))
	})
	return all
}

// raised reports whether there is an alarm of a type. Apply calls it.
func (m *Machine) raised(of pb.AlarmType) bool {
	for a := range m.alarms {
		if a.of == of {
			return true
		}
	}
	return false
}
