package transport

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/bits"

	"github.com/millrace/millrace/raft/raftpb"
)

// The frame codec works on bytes alone. To write a frame: BeginFrame, AppendMessage for each message,
// SealFrame. To read one: OpenFrame if all bytes are in memory, ParseHeader and CheckBody if they come from a
// stream; then DecodeBody.
//
// Invariant: DecodeBody allocates at most a constant times the length of the body. It therefore refuses
// messages shorter than the ten scalars that every message of ours has, since an Envelope takes 168 bytes of
// memory.

// HeaderBytes is the length of a frame's header.
const HeaderBytes = 8

// minMessageBytes is the size of the smallest message that the codec writes.
const minMessageBytes = 20

// ErrBadFrame is wrapped by every error about bytes that are not a valid frame.
var ErrBadFrame = errors.New("transport: bad frame")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// BeginFrame appends an empty frame to dst. SealFrame completes it.
func BeginFrame(dst []byte) []byte {
	return append(dst, make([]byte, HeaderBytes)...)
}

// AppendMessage appends a message to the body of the frame at the end of dst.
func AppendMessage(dst []byte, group uint64, m *raftpb.Message) []byte {
	return appendSized(dst, group, m, m.Size())
}

func appendSized(dst []byte, group uint64, m *raftpb.Message, size int) []byte {
	dst = binary.AppendUvarint(dst, group)
	dst = binary.AppendUvarint(dst, uint64(size))
	return m.Append(dst)
}

// MessageBytes returns how many bytes AppendMessage appends.
func MessageBytes(group uint64, m *raftpb.Message) int {
	size := m.Size()
	return uvarintSize(group) + uvarintSize(uint64(size)) + size
}

func uvarintSize(v uint64) int { return (bits.Len64(v|1) + 6) / 7 }

// SealFrame writes the header of a frame whose body is frame[HeaderBytes:].
func SealFrame(frame []byte) {
	body := frame[HeaderBytes:]
	binary.LittleEndian.PutUint32(frame, uint32(len(body)))
	binary.LittleEndian.PutUint32(frame[4:], crc32.Checksum(body, castagnoli))
}

// ParseHeader reads a header: the length of the body and the checksum that the body must have.
func ParseHeader(header []byte) (bodyBytes int, sum uint32) {
	return int(binary.LittleEndian.Uint32(header)), binary.LittleEndian.Uint32(header[4:])
}

// CheckBody compares the checksum of a body with the one in its header.
func CheckBody(body []byte, sum uint32) error {
	if have := crc32.Checksum(body, castagnoli); have != sum {
		return fmt.Errorf("%w: checksum of %d bytes is %08x, want %08x", ErrBadFrame, len(body), have, sum)
	}
	return nil
}

// OpenFrame splits the first frame off b and returns its checked body, which aliases b. It refuses bodies of
// more than maxBytes.
func OpenFrame(b []byte, maxBytes int) (body, rest []byte, err error) {
	if len(b) < HeaderBytes {
		return nil, nil, fmt.Errorf("%w: header of %d bytes, want %d", ErrBadFrame, len(b), HeaderBytes)
	}
	n, sum := ParseHeader(b)
	b = b[HeaderBytes:]
	if n > maxBytes || n > len(b) {
		return nil, nil, fmt.Errorf("%w: body of %d bytes, have %d, want at most %d", ErrBadFrame, n, len(b), maxBytes)
	}
	body, rest = b[:n:n], b[n:]
	return body, rest, CheckBody(body, sum)
}

// DecodeBody appends the messages of a body to into. They alias body in their entries, contexts and
// snapshots, so body must not change while they are in use. On an error it returns the messages before the
// bad one.
func DecodeBody(body []byte, into []Envelope) ([]Envelope, error) {
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
		if err := into[len(into)-1].Message.UnmarshalFromPeer(rest[:size:size]); err != nil {
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
func Detach(batch []Envelope) {
	for i := range batch {
		visitBorrowed(&batch[i].Message, func(p *[]byte) {
			own := make([]byte, len(*p))
			copy(own, *p)
			*p = own
		})
	}
}

// visitBorrowed calls visit for every byte slice of m that is not nil.
func visitBorrowed(m *raftpb.Message, visit func(*[]byte)) {
	if m.Context != nil {
		visit(&m.Context)
	}
	for i := range m.Entries {
		if m.Entries[i].Data != nil {
			visit(&m.Entries[i].Data)
		}
	}
	if m.Snapshot != nil && m.Snapshot.Data != nil {
		visit(&m.Snapshot.Data)
	}
	for i := range m.Responses {
		visitBorrowed(&m.Responses[i], visit)
	}
}
