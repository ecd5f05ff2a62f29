package host

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/transport"
)

// The entries that found a group (raftpb.EntryHost), and what hosts tell each other about it in bodies of
// kind transport.Control. Integers are little-endian, groups are uvarints.
//
//	entry found:   1 │ n u16 │ n × (id u64, incarnation 16 B), ids ascending
//	               17 │ like 1, of a group with leases, and then the promise of a member (lease.go), in
//	               nanoseconds, u64
//	entry founded: 2
//	greeting:      1 │ flags u8: 1 every other host is met, 2 answer this
//	refusal:       2 │ group │ incarnation 16 B, to which the group has bound the host that reads this
//	stranger:      4 │ group: the host that reads this is none of its members
//	removed:       5 │ group │ version of the roster, which is without the directory of the reader
//	               │ incarnation 16 B, that directory
const (
	foundKind     byte = 1
	foundedKind   byte = 2
	foundPromises byte = 16 // added to the kind of found

	greetsAll byte = 1
	greetsAsk byte = 2
)

// binding is what the entry found says: with which directory each founding member counts. It names every
// member of GroupConfig.Members. Ids ascend.
type binding []boundMember

// boundMember is a member, and the incarnation that it is bound to.
type boundMember struct {
	id          uint64
	incarnation transport.Incarnation
}

var errBadFounding = errors.New("millrace: the founding entry cannot be read")

// encodeFound and encodeFounded return the data of the two entries.
func encodeFound(b binding) []byte {
	data := binary.LittleEndian.AppendUint16([]byte{foundKind}, uint16(len(b)))
	for _, m := range b {
		data = binary.LittleEndian.AppendUint64(data, m.id)
		data = append(data, m.incarnation[:]...)
	}
	return data
}

func encodeFounded() []byte { return []byte{foundedKind} }

// maxGroupMembers bounds the members of a group, so that a founding entry is small.
const maxGroupMembers = 1 << 10

// decodeFounding decodes the data of either entry: founded has no binding.
func decodeFounding(data []byte) (b binding, err error) {
	const memberBytes = 8 + 16
	switch {
	case len(data) == 1 && data[0] == foundedKind:
		return nil, nil
	case len(data) < 3 || data[0]&foundPromises != 0 && len(data) < 3+promiseBytes || data[0]&^foundPromises != foundKind:
		return nil, fmt.Errorf("%w: %d bytes do not begin like one that this program knows; use a newer program", errBadFounding, len(data))
	}
	n, rest := int(binary.LittleEndian.Uint16(data[1:])), data[3:]
	if data[0]&foundPromises != 0 {
		if p := promiseOf(data); p <= 0 || p > maxPromise {
			return nil, fmt.Errorf("%w: its members promise %v, want more than 0 and at most %v", errBadFounding, p, maxPromise)
		}
		rest = rest[:len(rest)-promiseBytes]
	}
	if n == 0 || n > maxGroupMembers || len(rest) != n*memberBytes {
		return nil, fmt.Errorf("%w: %d bytes for %d members, want %d bytes each and 1 to %d members", errBadFounding, len(rest), n, memberBytes, maxGroupMembers)
	}
	for ; len(rest) > 0; rest = rest[memberBytes:] {
		m := boundMember{binary.LittleEndian.Uint64(rest), transport.Incarnation(rest[8:memberBytes])}
		switch {
		case len(b) > 0 && m.id <= b[len(b)-1].id:
			return nil, fmt.Errorf("%w: host %d follows host %d", errBadFounding, m.id, b[len(b)-1].id)
		case m.incarnation == transport.Incarnation{}:
			return nil, fmt.Errorf("%w: host %d is bound to no directory", errBadFounding, m.id)
		}
		b = append(b, m)
	}
	return b, nil
}

const (
	promiseBytes = 8
	maxPromise   = maxElection + maxElection/ticksPerHeartbeat // the longest timeout, rounded up
)

// promiseOf returns how long each promise lasts under an entry found; 0: the members make none.
func promiseOf(found []byte) time.Duration {
	if found[0]&foundPromises == 0 {
		return 0
	}
	return time.Duration(binary.LittleEndian.Uint64(found[len(found)-promiseBytes:]))
}

// withPromises makes an entry found say how long the members' promises last: as long as this member's.
func (g *Group) withPromises(found []byte) []byte {
	if !g.config.Leases {
		return found
	}
	return withPromise(found, g.host.config.promiseTime())
}

// withPromise makes an entry found say how long the promises of members last.
func withPromise(found []byte, promise time.Duration) []byte {
	found[0] |= foundPromises
	return binary.LittleEndian.AppendUint64(found, uint64(promise))
}

// rejectPromises says why this member cannot be one under an entry found: its setting of leases differs, or
// its promises are too short. One such member would make the leases of all unsound. Longer promises do no
// harm.
func (g *Group) rejectPromises(found []byte) error {
	switch want, have := promiseOf(found), g.host.config.promiseTime(); {
	case want > 0 != g.config.Leases:
		return fmt.Errorf("millrace: group %d was founded with Leases %t, and host %d opens it with %t; all members need the setting with which it was founded",
			g.id, want > 0, g.self, g.config.Leases)
	case want > have:
		return fmt.Errorf("millrace: group %d was founded with leases, under which members promise to elect no other leader for %v, and Config.ElectionTimeout of host %d makes it %v; set it to %v or more on every host",
			g.id, want, g.self, have, want)
	}
	return nil
}

// ids returns the members.
func (b binding) ids() (ids []uint64) {
	for _, m := range b {
		ids = append(ids, m.id)
	}
	return ids
}

// of returns the incarnation to which a member is bound.
func (b binding) of(id uint64) (i transport.Incarnation, bound bool) {
	at, bound := slices.BinarySearchFunc(b, id, func(m boundMember, id uint64) int {
		switch {
		case m.id < id:
			return -1
		case m.id > id:
			return 1
		}
		return 0
	})
	if !bound {
		return i, false
	}
	return b[at].incarnation, true
}

// refusal is what a member tells a host that it refuses in a group.
type refusal struct {
	group uint64
	bound transport.Incarnation
}

func (r refusal) encode() []byte {
	return append(binary.AppendUvarint([]byte{control.Refusal}, r.group), r.bound[:]...)
}

func decodeRefusal(body []byte) (r refusal, err error) {
	group, n := binary.Uvarint(body[1:])
	if rest := body[1+max(n, 0):]; n <= 0 || len(rest) != len(r.bound) {
		return r, fmt.Errorf("%w: a refusal of %d bytes", control.ErrBad, len(body))
	} else {
		r.group, r.bound = group, transport.Incarnation(rest)
	}
	return r, nil
}

func encodeStranger(group uint64) []byte {
	return binary.AppendUvarint([]byte{control.Stranger}, group)
}

func decodeStranger(body []byte) (group uint64, err error) {
	group, n := binary.Uvarint(body[1:])
	if n <= 0 || 1+n != len(body) {
		return 0, fmt.Errorf("%w: %d bytes say that this host is no member of a group", control.ErrBad, len(body))
	}
	return group, nil
}

// removal tells a host that a group has removed its directory.
type removal struct {
	group, version uint64
	incarnation    transport.Incarnation
}

func (r removal) encode() []byte {
	body := binary.AppendUvarint(binary.AppendUvarint([]byte{control.Removed}, r.group), r.version)
	return append(body, r.incarnation[:]...)
}

func decodeRemoval(body []byte) (r removal, err error) {
	group, n := binary.Uvarint(body[1:])
	version, m := binary.Uvarint(body[1+max(n, 0):])
	if rest := body[min(len(body), 1+max(n, 0)+max(m, 0)):]; n <= 0 || m <= 0 || len(rest) != len(r.incarnation) {
		return r, fmt.Errorf("%w: %d bytes say that a group has removed this host", control.ErrBad, len(body))
	} else {
		r.incarnation = transport.Incarnation(rest)
	}
	r.group, r.version = group, version
	return r, nil
}
