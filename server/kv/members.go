package kv

import (
	"encoding/binary"
	"fmt"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/server/command"
	"github.com/millrace/millrace/server/engine"
)

// The attributes of members, and who the members are.
//
// At version 1 of its behaviour the machine follows the configuration of its group. The attributes of a host
// that has left go with the entry that removes it, on all members, and no command brings them back. The
// configuration is a part of the state, so a command of a removed member that comes late is refused alike on
// each. At version 0 the machine only notes that it has the entry: the program before knows of none.

// The versions of the behaviour (millrace.Machine.Versions).
const (
	withoutMembers = 0 // all attributes stay for ever
	withMembers    = 1

	// HighestVersion is the one to which the leader upgrades its group, when all members can do it.
	HighestVersion = withMembers
)

type member struct {
	*pb.Member
	highest uint64 // command version that it knows
}

// configurationKey has the ids of the members. A state of version 0 has none.
var configurationKey = engine.Key{Prefix: []byte{spaceState, 'm'}}

func appendIDs(b []byte, ids []uint64) []byte {
	for _, id := range ids {
		b = binary.BigEndian.AppendUint64(b, id)
	}
	return b
}

func parseIDs(b []byte) (ids []uint64, err error) {
	if len(b) == 0 || len(b)%8 > 0 {
		return nil, fmt.Errorf("kv: the record of the configuration has %d bytes, want 8 for each member", len(b))
	}
	for ; len(b) > 0; b = b[8:] {
		ids = append(ids, binary.BigEndian.Uint64(b))
	}
	return ids, nil
}

// readConfigured reads the configuration in an engine; nil: it has none.
func readConfigured(r engine.Reader) (ids []uint64, err error) {
	_, b, ok, err := r.Newest(configurationKey)
	if err != nil || !ok {
		return nil, err
	}
	return parseIDs(b)
}

// MembersChanged implements millrace.MembersObserver. Like Apply it changes everything in one batch.
func (m *Machine) MembersChanged(c millrace.Configuration) error {
	a := &applier{m: m, state: m.state}
	a.p = m.store.Load().Begin(a.hasLease, m.feed.IsWatched())
	defer a.p.Close()
	a.state.applied, a.state.time = c.Index, max(a.state.time, c.Time)
	if c.Version >= withMembers {
		a.follow(c.Members())
	}
	return a.end()
}

// follow makes hosts the members of the group, and removes what the others have told.
func (a *applier) follow(ids []uint64) {
	a.m.mu.Lock()
	defer a.m.mu.Unlock()
	for id := range a.m.members {
		if !slices.Contains(ids, id) {
			delete(a.m.members, id)
			a.p.Batch().Delete(memberKey(id))
		}
	}
	a.m.configured = ids
	a.p.Batch().Set(configurationKey, appendIDs(nil, ids))
	a.p.Mix(append([]uint64{'c'}, ids...)...)
}

// attributes keeps the name and the addresses that a member gives, if it is one.
func (a *applier) attributes(body []byte) error {
	of, highest, refused := command.DecodeAttributes(body)
	if refused != 0 {
		return command.Refuse(refused)
	}
	if now := a.m.configured; now != nil && !slices.Contains(now, of.ID) {
		return command.Refuse(command.MemberNotFound)
	}
	m := member{Member: of, highest: highest}
	b, err := m.append(nil)
	if err != nil {
		return command.Refuse(command.Malformed)
	}
	a.m.mu.Lock()
	a.m.members[of.ID] = m
	a.m.mu.Unlock()
	a.p.Batch().Set(memberKey(of.ID), b)
	a.p.Mix('m', of.ID, highest)
	return nil
}

func memberKey(id uint64) engine.Key {
	return engine.Key{Prefix: binary.BigEndian.AppendUint64([]byte{spaceMembers}, id)}
}

func (m member) append(b []byte) ([]byte, error) {
	return proto.MarshalOptions{Deterministic: true}.MarshalAppend(binary.AppendUvarint(b, m.highest), m.Member)
}

func parseMember(b []byte) (member, error) {
	highest, n := binary.Uvarint(b)
	m := member{highest: highest, Member: &pb.Member{}}
	if n <= 0 {
		return m, fmt.Errorf("kv: the record of a member is damaged")
	}
	return m, proto.Unmarshal(b[n:], m.Member)
}
