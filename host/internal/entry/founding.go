package entry

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/transport"
)

// The entries that found a group. Integers are little-endian.
//
//	entry found:   1 │ n u16 │ n × (id u64, incarnation 16 B), ids ascending
//	               17 │ like 1, of a group with leases, and then how long the promise of a member lasts, in
//	               nanoseconds, u64
//	entry founded: 2
const (
	FoundKind     byte = 1
	FoundedKind   byte = 2
	FoundPromises byte = 16 // added to the kind of found
)

// Binding is what the entry found says: with which directory each founding member counts. It names every
// member of GroupConfig.Members. Ids ascend.
type Binding []BoundMember

// BoundMember is a member, and the incarnation that it is bound to.
type BoundMember struct {
	ID          uint64
	Incarnation transport.Incarnation
}

// ErrBadFounding refuses bytes that are no founding entry.
var ErrBadFounding = errors.New("millrace: the founding entry cannot be read")

// EncodeFound returns the data of the entry found.
func EncodeFound(b Binding) []byte {
	data := binary.LittleEndian.AppendUint16([]byte{FoundKind}, uint16(len(b)))
	for _, m := range b {
		data = binary.LittleEndian.AppendUint64(data, m.ID)
		data = append(data, m.Incarnation[:]...)
	}
	return data
}

// EncodeFounded returns the data of the entry founded.
func EncodeFounded() []byte { return []byte{FoundedKind} }

// MaxGroupMembers bounds the members of a group, so that a founding entry is small.
const MaxGroupMembers = 1 << 10

// DecodeFounding decodes the data of either entry: founded has no Binding.
func DecodeFounding(data []byte) (b Binding, err error) {
	const memberBytes = 8 + 16
	switch {
	case len(data) == 1 && data[0] == FoundedKind:
		return nil, nil
	case len(data) < 3 || data[0]&FoundPromises != 0 && len(data) < 3+promiseBytes || data[0]&^FoundPromises != FoundKind:
		return nil, fmt.Errorf("%w: %d bytes do not begin like one that this program knows; use a newer program", ErrBadFounding, len(data))
	}
	n, rest := int(binary.LittleEndian.Uint16(data[1:])), data[3:]
	if data[0]&FoundPromises != 0 {
		if p := PromiseOf(data); p <= 0 || p > MaxPromise {
			return nil, fmt.Errorf("%w: its members promise %v, want more than 0 and at most %v", ErrBadFounding, p, MaxPromise)
		}
		rest = rest[:len(rest)-promiseBytes]
	}
	if n == 0 || n > MaxGroupMembers || len(rest) != n*memberBytes {
		return nil, fmt.Errorf("%w: %d bytes for %d members, want %d bytes each and 1 to %d members", ErrBadFounding, len(rest), n, memberBytes, MaxGroupMembers)
	}
	for ; len(rest) > 0; rest = rest[memberBytes:] {
		m := BoundMember{binary.LittleEndian.Uint64(rest), transport.Incarnation(rest[8:memberBytes])}
		switch {
		case len(b) > 0 && m.ID <= b[len(b)-1].ID:
			return nil, fmt.Errorf("%w: host %d follows host %d", ErrBadFounding, m.ID, b[len(b)-1].ID)
		case m.Incarnation == transport.Incarnation{}:
			return nil, fmt.Errorf("%w: host %d is bound to no directory", ErrBadFounding, m.ID)
		}
		b = append(b, m)
	}
	return b, nil
}

const (
	promiseBytes = 8
	// MaxPromise is the longest election timeout that a configuration may have, and a tick of its heartbeat.
	MaxPromise = 30 * time.Hour
)

// PromiseOf returns how long each promise lasts under an entry found; 0: the members make none.
func PromiseOf(found []byte) time.Duration {
	if found[0]&FoundPromises == 0 {
		return 0
	}
	return time.Duration(binary.LittleEndian.Uint64(found[len(found)-promiseBytes:]))
}

// WithPromise makes an entry found say how long the promises of members last.
func WithPromise(found []byte, promise time.Duration) []byte {
	found[0] |= FoundPromises
	return binary.LittleEndian.AppendUint64(found, uint64(promise))
}

// IDs returns the members.
func (b Binding) IDs() (ids []uint64) {
	for _, m := range b {
		ids = append(ids, m.ID)
	}
	return ids
}

// Of returns the incarnation to which a member is bound.
func (b Binding) Of(id uint64) (i transport.Incarnation, bound bool) {
	at, bound := slices.BinarySearchFunc(b, id, func(m BoundMember, id uint64) int {
		switch {
		case m.ID < id:
			return -1
		case m.ID > id:
			return 1
		}
		return 0
	})
	if !bound {
		return i, false
	}
	return b[at].Incarnation, true
}

// Roster returns the first roster of a group that is founded with this Binding.
func (b Binding) Roster() *membership.Roster {
	var founders []membership.Member
	for _, m := range b {
		founders = append(founders, membership.Member{ID: m.ID, Incarnation: m.Incarnation})
	}
	return membership.Founded(founders)
}
