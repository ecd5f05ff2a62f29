package transport

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"

	"github.com/millrace/millrace/raft/raftpb"
)

// The body of a consensus frame: messages of any groups, one after the other.
//
// Invariant: DecodeBody allocates at most a constant times the length of the body. It therefore refuses
// messages shorter than the ten scalars that every message of ours has, since an Envelope takes 168 bytes of
// memory.

// minMessageBytes is the size of the smallest message that the codec writes.
const minMessageBytes = 20

// AppendMessage appends a message to the body at the end of dst.
func AppendMessage(dst []byte, group uint64, m *raftpb.Message) []byte {
	dst = binary.AppendUvarint(dst, group)
	dst = binary.AppendUvarint(dst, uint64(m.Size()))
	return m.Append(dst)
}

// AppendPayloads is AppendMessage. Data of at least apart bytes, which is more than 0, stays where it is, and
// becomes a part of payloads.
func AppendPayloads(dst []byte, payloads *raftpb.Payloads, apart int, group uint64, m *raftpb.Message) []byte {
	dst = binary.AppendUvarint(dst, group)
	dst = binary.AppendUvarint(dst, uint64(m.Size()))
	return m.AppendPayloads(dst, payloads, apart)
}

// AppendBody appends a body with all messages of batch to dst.
func AppendBody(dst []byte, batch []Envelope) []byte {
	for i := range batch {
		dst = AppendMessage(dst, batch[i].Group, &batch[i].Message)
	}
	return dst
}

// MessageBytes returns how many bytes AppendMessage appends.
func MessageBytes(group uint64, m *raftpb.Message) int {
	size := m.Size()
	return uvarintSize(group) + uvarintSize(uint64(size)) + size
}

func uvarintSize(v uint64) int { return (bits.Len64(v|1) + 6) / 7 }

// DecodeBody appends the messages of a body to into. They alias body in their entries, contexts and
// snapshots, so body must not change while they are in use. On an error it returns the messages before the
// bad one.
func DecodeBody(body []byte, into []Envelope) ([]Envelope, error) { return decodeBody(body, into, nil) }

// decodeBody is DecodeBody, followed by a checker if there is one.
func decodeBody(body []byte, into []Envelope, c *checker) ([]Envelope, error) {
	for rest := body; len(rest) > 0; {
		group, n := binary.Uvarint(rest)
		if n <= 0 {
			return into, fmt.Errorf("%w: the group at byte %d is truncated or too large", ErrBadFrame, len(body)-len(rest))
		}
		rest = rest[n:]
		size, n := binary.Uvarint(rest)
		if n <= 0 || size < minMessageBytes || size > uint64(len(rest)-n) {
			return into, fmt.Errorf("%w: message of %d bytes at byte %d of %d", ErrBadFrame, size, len(body)-len(rest), len(body))
		}
		rest = rest[n:]
		into = append(into, Envelope{Group: group})
		m := &into[len(into)-1].Message
		var err error
		if c == nil {
			err = m.UnmarshalFromPeer(rest[:size:size])
		} else {
			c.message = len(body) - len(rest)
			err = m.UnmarshalSummed(rest[:size:size], c)
		}
		if err != nil {
			return into[:len(into)-1], fmt.Errorf("%w: %w", ErrBadFrame, err)
		}
		rest = rest[size:]
	}
	return into, nil
}

// Detach gives the messages their own copies of the bytes that they borrow, so that the body they were
// decoded from can be reused. Each entry's data gets an array of its own: a state machine may keep one
// command, and must not keep the frame that brought it alive. Messages that carry no bytes cost nothing, so
// acknowledgements and heartbeats are decoded in place.
func Detach(batch []Envelope) { detach(batch, math.MaxInt) }

// detach is Detach, and leaves in place what has at least the given number of bytes. It reports whether there
// is such a thing.
func detach(batch []Envelope, least int) (left bool) {
	for i := range batch {
		left = detachMessage(&batch[i].Message, least) || left
	}
	return left
}

func detachMessage(m *raftpb.Message, least int) (left bool) {
	left = detachBytes(&m.Context, least)
	for i := range m.Entries {
		left = detachBytes(&m.Entries[i].Data, least) || left
	}
	if m.Snapshot != nil {
		left = detachBytes(&m.Snapshot.Data, least) || left
	}
	for i := range m.Responses {
		left = detachMessage(&m.Responses[i], least) || left
	}
	return left
}

func detachBytes(p *[]byte, least int) (left bool) {
	switch {
	case *p == nil:
	case len(*p) >= least:
		return true
	default:
		borrowed := *p // a variable: only then the compiler does not fill own with zeros first
		own := make([]byte, len(borrowed))
		copy(own, borrowed)
		*p = own
	}
	return false
}
