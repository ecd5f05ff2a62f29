package remote

import (
	"encoding/binary"
	"errors"
	"sync"
	"time"

	"github.com/millrace/millrace/host/session"
)

// RequestKind is what a request asks for.
type RequestKind byte

// The kinds.
const (
	Plain       RequestKind = iota // carry out a command
	OpenSession                    // name a new session; the text of the answer is its id
	InSession                      // carry out a command once, however often it comes
	Opaque                         // whatever its owner has agreed on with the handler (Conn.Ask)
)

// Request is one request. Its place in a session, for InSession, is
//
//	birth of the session i64, client 16 bytes, number u64, lowest number without an answer u64
type Request struct {
	Kind  RequestKind
	Mark  session.Mark // with InSession
	Value []byte
}

const (
	placeBytes = 8 + 16 + 8 + 8
	maxHead    = 1 + placeBytes
)

var errRequest = errors.New("the request cannot be read")

// appendHead appends what comes before the value.
func (r Request) appendHead(dst []byte) []byte {
	dst = append(dst, byte(r.Kind))
	if r.Kind != InSession {
		return dst
	}
	dst = binary.LittleEndian.AppendUint64(dst, uint64(r.Mark.Birth))
	dst = append(dst, r.Mark.Client[:]...)
	dst = binary.LittleEndian.AppendUint64(dst, r.Mark.Number)
	return binary.LittleEndian.AppendUint64(dst, r.Mark.Low)
}

// parseRequest reads the body of a request. The value is part of body.
func parseRequest(body []byte) (r Request, err error) {
	if len(body) < 1 || RequestKind(body[0]) > Opaque {
		return r, errRequest
	}
	r.Kind, body = RequestKind(body[0]), body[1:]
	if r.Kind == InSession {
		if len(body) < placeBytes {
			return r, errRequest
		}
		r.Mark.Birth = time.Duration(binary.LittleEndian.Uint64(body))
		copy(r.Mark.Client[:], body[8:24])
		r.Mark.Number, r.Mark.Low = binary.LittleEndian.Uint64(body[24:]), binary.LittleEndian.Uint64(body[32:])
		body = body[placeBytes:]
	}
	r.Value = body
	return r, nil
}

// numbers are those of the commands of a session. Any goroutine may call its methods.
type numbers struct {
	mu   sync.Mutex
	next uint64          // the last one that was taken
	low  uint64          // all below were answered; 0 counts as 1
	done map[uint64]bool // answered, above low
}

// take returns the next number, from 1.
func (n *numbers) take() uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.next++
	return n.next
}

// answered notes that nothing waits for the answer to a number any more.
func (n *numbers) answered(number uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.done == nil {
		n.done, n.low = map[uint64]bool{}, 1
	}
	for n.done[number] = true; n.done[n.low]; n.low++ {
		delete(n.done, n.low)
	}
}

// lowest returns the lowest number whose answer is waited for, or the next one.
func (n *numbers) lowest() uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return max(n.low, 1)
}
