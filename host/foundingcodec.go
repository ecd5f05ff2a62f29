package host

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/transport"
)

// What hosts tell each other about the founding of a group, in bodies of kind transport.Control. Integers are
// little-endian, groups are uvarints. The entries that found it are in host/internal/entry.
//
//	greeting:      1 │ flags u8: 1 every other host is met, 2 answer this
//	refusal:       2 │ group │ incarnation 16 B, to which the group has bound the host that reads this
//	stranger:      4 │ group: the host that reads this is none of its members
//	removed:       5 │ group │ version of the roster, which is without the directory of the reader
//	               │ incarnation 16 B, that directory
const (
	greetsAll byte = 1
	greetsAsk byte = 2
)

// promiseTime is how long a promise lasts by the clock of the member that makes it. A lease lasts as long as
// the entry found says, which no member's promise is shorter than (rejectPromises): the election timeouts of
// hosts may differ, and change between starts.
func (c Config) promiseTime() time.Duration {
	return time.Duration(c.electionTicks()) * c.tickPeriod()
}

// withPromises makes an entry found say how long the members' promises last: as long as this member's.
func (g *Group) withPromises(found []byte) []byte {
	if !g.config.Leases {
		return found
	}
	return entry.WithPromise(found, g.host.config.promiseTime())
}

// rejectPromises says why this member cannot be one under an entry found: its setting of leases differs, or
// its promises are too short. One such member would make the leases of all unsound. Longer promises do no
// harm.
func (g *Group) rejectPromises(found []byte) error {
	switch want, have := entry.PromiseOf(found), g.host.config.promiseTime(); {
	case want > 0 != g.config.Leases:
		return fmt.Errorf("millrace: group %d was founded with Leases %t, and host %d opens it with %t; all members need the setting with which it was founded",
			g.id, want > 0, g.self, g.config.Leases)
	case want > have:
		return fmt.Errorf("millrace: group %d was founded with leases, under which members promise to elect no other leader for %v, and Config.ElectionTimeout of host %d makes it %v; set it to %v or more on every host",
			g.id, want, g.self, have, want)
	}
	return nil
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
