package host

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/host/session"
)

// What hosts tell each other about forwarded commands, in bodies of kind transport.Control or transport.Bulk.
// Integers are uvarints.
//
//	forward    24 │ group │ term │ frame │ one or more × (size │ entry): a header with a session and no stamp,
//	              and the command
//	refusal    25 │ group │ frame │ reason 1 byte │ 1 if the frame was not and never will be proposed, else 0
//
// frame is a number that the sender uses once, over all its lives, and that grows.

// maxSizeBytes bounds what a forwarded command takes besides its Data, which has room for the header.
const maxSizeBytes = binary.MaxVarintLen32

// forwardRecord is a forward without its commands.
type forwardRecord struct{ group, term, frame uint64 }

// forwardedCommand is a command of a forward.
type forwardedCommand struct {
	mark session.Mark
	data []byte // the room for a header, and the command
}

// refusesWhy is why a forward is refused.
type refusesWhy byte

const (
	refusesLeader   refusesWhy = 1 // the host does not lead in that term
	refusesOverload refusesWhy = 2 // no space
	refusesFounding refusesWhy = 3 // the group is not founded
	refusesSize     refusesWhy = 4 // a command is larger than that host allows
)

// forwardRefusal is the answer to a forward whose commands were not proposed.
type forwardRefusal struct {
	group, frame uint64
	why          refusesWhy
	sure         bool // no copy of the frame was or will be proposed
}

var errBadForward = errors.New("millrace: a forwarded command cannot be read")

func appendForward(dst []byte, r forwardRecord) []byte {
	dst = append(dst, control.Forward)
	for _, v := range [...]uint64{r.group, r.term, r.frame} {
		dst = binary.AppendUvarint(dst, v)
	}
	return dst
}

// appendForwarded appends a command. The header is made apart, since a log may hold the command's bytes.
func appendForwarded(dst []byte, h session.Header, command []byte) []byte {
	var space [session.Room]byte
	header := h.Put(space[:])
	dst = binary.AppendUvarint(dst, uint64(len(header)+len(command)))
	dst = append(dst, header...)
	return append(dst, command...)
}

// decodeForward reads the record before the commands, and returns the commands as they came.
func decodeForward(body []byte) (r forwardRecord, commands []byte, err error) {
	rest := body[1:]
	for _, field := range [...]*uint64{&r.group, &r.term, &r.frame} {
		v, n := binary.Uvarint(rest)
		if n <= 0 {
			return r, nil, fmt.Errorf("%w: %d bytes, and a number is cut off", errBadForward, len(body))
		}
		*field, rest = v, rest[n:]
	}
	if len(rest) == 0 || r.frame == 0 {
		return r, nil, fmt.Errorf("%w: %d bytes with frame number %d and %d bytes of commands", errBadForward, len(body), r.frame, len(rest))
	}
	return r, rest, nil
}

// nextForwarded reads the first of the commands, and returns the others. largest is the size of the largest
// command so far.
func nextForwarded(commands []byte) (h session.Header, command, others []byte, err error) {
	size, n := binary.Uvarint(commands)
	if n <= 0 || size > uint64(len(commands)-n) {
		return h, nil, nil, fmt.Errorf("%w: a command is cut off, %d bytes are left", errBadForward, len(commands))
	}
	entry, others := commands[n:n+int(size)], commands[n+int(size):]
	h, command, err = session.Decode(entry)
	switch {
	case err != nil:
		return h, nil, nil, fmt.Errorf("%w: %w", errBadForward, err)
	case !h.HasMark || h.HasStamp:
		return h, nil, nil, fmt.Errorf("%w: it has no session, or a stamp, which only the leader gives", errBadForward)
	}
	return h, command, others, nil
}

func (r forwardRefusal) encode() []byte {
	b := binary.AppendUvarint([]byte{control.ForwardRefusal}, r.group)
	b = binary.AppendUvarint(b, r.frame)
	sure := byte(0)
	if r.sure {
		sure = 1
	}
	return append(b, byte(r.why), sure)
}

func decodeForwardRefusal(body []byte) (r forwardRefusal, err error) {
	rest := body[1:]
	for _, field := range [...]*uint64{&r.group, &r.frame} {
		v, n := binary.Uvarint(rest)
		if n <= 0 {
			return r, fmt.Errorf("%w: a refusal of %d bytes, and a number is cut off", errBadForward, len(body))
		}
		*field, rest = v, rest[n:]
	}
	if len(rest) != 2 || rest[0] < byte(refusesLeader) || rest[0] > byte(refusesSize) || rest[1] > 1 {
		return r, fmt.Errorf("%w: a refusal of %d bytes without a reason that this program knows", errBadForward, len(body))
	}
	r.why, r.sure = refusesWhy(rest[0]), rest[1] == 1
	return r, nil
}
