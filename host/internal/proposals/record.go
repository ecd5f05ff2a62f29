package proposals

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

// MaxSizeBytes bounds what a forwarded command takes besides its Data, which has room for the header.
const MaxSizeBytes = binary.MaxVarintLen32

// Forward is a forward without its commands.
type Forward struct{ Group, Term, Frame uint64 }

// Command is a command of a forward.
type Command struct {
	Mark session.Mark
	Data []byte // the room for a header, and the command
}

// Why is why a forward is refused.
type Why byte

const (
	NoLeader   Why = 1 // the host does not lead in that term
	NoSpace    Why = 2 // no space
	NotFounded Why = 3 // the group is not founded
	TooLarge   Why = 4 // a command is larger than that host allows
)

// Refusal is the answer to a forward whose commands were not proposed.
type Refusal struct {
	Group, Frame uint64
	Why          Why
	Sure         bool // no copy of the frame was or will be proposed
}

// ErrBadForward: a body cannot be read.
var ErrBadForward = errors.New("millrace: a forwarded command cannot be read")

// AppendForward appends the record before the commands.
func AppendForward(dst []byte, r Forward) []byte {
	dst = append(dst, control.Forward)
	for _, v := range [...]uint64{r.Group, r.Term, r.Frame} {
		dst = binary.AppendUvarint(dst, v)
	}
	return dst
}

// AppendCommand appends a command. The header is made apart, since a log may hold the command's bytes.
func AppendCommand(dst []byte, h session.Header, command []byte) []byte {
	var space [session.Room]byte
	header := h.Put(space[:])
	dst = binary.AppendUvarint(dst, uint64(len(header)+len(command)))
	dst = append(dst, header...)
	return append(dst, command...)
}

// DecodeForward reads the record before the commands, and returns the commands as they came.
func DecodeForward(body []byte) (r Forward, commands []byte, err error) {
	rest := body[1:]
	for _, field := range [...]*uint64{&r.Group, &r.Term, &r.Frame} {
		v, n := binary.Uvarint(rest)
		if n <= 0 {
			return r, nil, fmt.Errorf("%w: %d bytes, and a number is cut off", ErrBadForward, len(body))
		}
		*field, rest = v, rest[n:]
	}
	if len(rest) == 0 || r.Frame == 0 {
		return r, nil, fmt.Errorf("%w: %d bytes with frame number %d and %d bytes of commands", ErrBadForward, len(body), r.Frame, len(rest))
	}
	return r, rest, nil
}

// NextCommand reads the first of the commands, and returns the others. largest is the size of the largest
// command so far.
func NextCommand(commands []byte) (h session.Header, command, others []byte, err error) {
	size, n := binary.Uvarint(commands)
	if n <= 0 || size > uint64(len(commands)-n) {
		return h, nil, nil, fmt.Errorf("%w: a command is cut off, %d bytes are left", ErrBadForward, len(commands))
	}
	entry, others := commands[n:n+int(size)], commands[n+int(size):]
	h, command, err = session.Decode(entry)
	switch {
	case err != nil:
		return h, nil, nil, fmt.Errorf("%w: %w", ErrBadForward, err)
	case !h.HasMark || h.HasStamp:
		return h, nil, nil, fmt.Errorf("%w: it has no session, or a stamp, which only the leader gives", ErrBadForward)
	}
	return h, command, others, nil
}

// Encode returns the body of a refusal.
func (r Refusal) Encode() []byte {
	b := binary.AppendUvarint([]byte{control.ForwardRefusal}, r.Group)
	b = binary.AppendUvarint(b, r.Frame)
	sure := byte(0)
	if r.Sure {
		sure = 1
	}
	return append(b, byte(r.Why), sure)
}

// DecodeRefusal reads what Encode has made.
func DecodeRefusal(body []byte) (r Refusal, err error) {
	rest := body[1:]
	for _, field := range [...]*uint64{&r.Group, &r.Frame} {
		v, n := binary.Uvarint(rest)
		if n <= 0 {
			return r, fmt.Errorf("%w: a refusal of %d bytes, and a number is cut off", ErrBadForward, len(body))
		}
		*field, rest = v, rest[n:]
	}
	if len(rest) != 2 || rest[0] < byte(NoLeader) || rest[0] > byte(TooLarge) || rest[1] > 1 {
		return r, fmt.Errorf("%w: a refusal of %d bytes without a reason that this program knows", ErrBadForward, len(body))
	}
	r.Why, r.Sure = Why(rest[0]), rest[1] == 1
	return r, nil
}
