package host

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/millrace/millrace/transport"
)

// The entries that found a group (raftpb.EntryHost), and what hosts tell each other about it in bodies of
// kind transport.Control. Integers are little-endian, groups are uvarints.
//
//	entry found:   1 │ n u16 │ n × (id u64, incarnation 16 B), ids ascending
//	entry founded: 2
//	greeting:      1 │ flags u8: 1 every other host is met, 2 answer this
//	refusal:       2 │ group │ incarnation 16 B, to which the group has bound the host that reads this
const (
	foundKind   byte = 1
	foundedKind byte = 2

	greetingKind byte = 1
	refusalKind  byte = 2

	greetsAll byte = 1
	greetsAsk byte = 2
)

// binding is what the entry found says: with which directory each founding member counts. Ids ascend.
type binding []boundMember

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
	case len(data) < 3 || data[0] != foundKind:
		return nil, fmt.Errorf("%w: %d bytes do not begin like one that this program knows; use a newer program", errBadFounding, len(data))
	}
	n, rest := int(binary.LittleEndian.Uint16(data[1:])), data[3:]
	if n == 0 || n > maxGroupMembers || len(rest) != n*memberBytes {
		return nil, fmt.Errorf("%w: %d bytes for %d members, want %d bytes each and 1 to %d members", errBadFounding, len(rest), n, memberBytes, maxGroupMembers)
	}
	for ; len(rest) > 0; rest = rest[memberBytes:] {
		m := boundMember{binary.LittleEndian.Uint64(rest), transport.Incarnation(rest[8:memberBytes])}
		if len(b) > 0 && m.id <= b[len(b)-1].id {
			return nil, fmt.Errorf("%w: host %d follows host %d", errBadFounding, m.id, b[len(b)-1].id)
		}
		b = append(b, m)
	}
	return b, nil
}

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
	return append(binary.AppendUvarint([]byte{refusalKind}, r.group), r.bound[:]...)
}

var errBadControl = errors.New("a control record cannot be read")

func decodeRefusal(body []byte) (r refusal, err error) {
	group, n := binary.Uvarint(body[1:])
	if rest := body[1+max(n, 0):]; n <= 0 || len(rest) != len(r.bound) {
		return r, fmt.Errorf("%w: a refusal of %d bytes", errBadControl, len(body))
	} else {
		r.group, r.bound = group, transport.Incarnation(rest)
	}
	return r, nil
}
