package timers

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"reflect"
	"time"
)

// The encoding of a queue, for snapshots. Equal queues have equal encodings, whatever their history:
//
//	format 1 │ number of timers │ for each, by deadline and then by key: deadline less the one before │ key
//
// Numbers are varints (encoding/binary). The first deadline is a signed one; differences are unsigned. A key
// that is a string has its length before it. A signed number is a signed varint, an unsigned one an unsigned.

// format is the first byte.
const format = 1

// ErrEncoding is the error of an encoding that no Queue has written.
var ErrEncoding = errors.New("timers: not the encoding of a queue")

// AppendBinary implements encoding.BinaryAppender. Keys are strings or whole numbers; others are an error.
func (q *Queue[K]) AppendBinary(b []byte) ([]byte, error) {
	appendKey, _, err := keys[K]()
	if err != nil {
		return b, err
	}
	b = binary.AppendUvarint(append(b, format), uint64(len(q.heap)))
	before, first := time.Duration(0), true
	for _, t := range q.sorted() {
		if first {
			b = binary.AppendVarint(b, int64(t.Deadline))
		} else {
			b = binary.AppendUvarint(b, uint64(t.Deadline)-uint64(before))
		}
		b = appendKey(b, t.Key)
		before, first = t.Deadline, false
	}
	return b, nil
}

// MarshalBinary implements encoding.BinaryMarshaler.
func (q *Queue[K]) MarshalBinary() ([]byte, error) { return q.AppendBinary(nil) }

// MarshalText implements encoding.TextMarshaler, for states that are encoded as JSON: base64 of the encoding.
func (q *Queue[K]) MarshalText() ([]byte, error) {
	b, err := q.AppendBinary(nil)
	return base64.StdEncoding.AppendEncode(nil, b), err
}

// UnmarshalText implements encoding.TextUnmarshaler, as UnmarshalBinary does its part.
func (q *Queue[K]) UnmarshalText(text []byte) error {
	b, err := base64.StdEncoding.AppendDecode(nil, text)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrEncoding, err)
	}
	return q.UnmarshalBinary(b)
}

// UnmarshalBinary implements encoding.BinaryUnmarshaler. An error leaves the queue as it was. Bytes are
// refused if AppendBinary would have written others, so a state has only one encoding.
func (q *Queue[K]) UnmarshalBinary(b []byte) error {
	_, readKey, err := keys[K]()
	if err != nil {
		return err
	}
	if len(b) == 0 || b[0] != format {
		return fmt.Errorf("%w: want format %d in its first byte, have %.1x", ErrEncoding, format, b)
	}
	r := reader{b: b[1:]}
	n := r.uvarint()
	if r.failed || n > uint64(len(r.b)) { // a timer has at least two bytes
		return fmt.Errorf("%w: %d timers in %d bytes", ErrEncoding, n, len(r.b))
	}
	read := &Queue[K]{heap: make([]Timer[K], 0, n), places: make(map[K]int, n)}
	for i := range int(n) {
		var t Timer[K]
		if i == 0 {
			t.Deadline = time.Duration(r.varint())
		} else {
			before, gap := read.heap[i-1].Deadline, r.uvarint()
			if gap > uint64(math.MaxInt64)-uint64(before) { // in two's complement also for a deadline below 0
				return fmt.Errorf("%w: the deadline of timer %d of %d does not fit into 63 bits", ErrEncoding, i+1, n)
			}
			t.Deadline = time.Duration(uint64(before) + gap)
		}
		t.Key = readKey(&r)
		if r.failed {
			return fmt.Errorf("%w: its %d bytes end inside timer %d of %d", ErrEncoding, len(b), i+1, n)
		}
		if _, twice := read.places[t.Key]; twice {
			return fmt.Errorf("%w: timer %d of %d has the key of another one", ErrEncoding, i+1, n)
		}
		if i > 0 && read.heap[i-1].compare(t) >= 0 {
			return fmt.Errorf("%w: timer %d of %d is not behind the one before", ErrEncoding, i+1, n)
		}
		read.heap = append(read.heap, t) // what is in order is a heap
		read.places[t.Key] = i
	}
	if len(r.b) > 0 {
		return fmt.Errorf("%w: %d bytes behind the last of %d timers", ErrEncoding, len(r.b), n)
	}
	q.Replace(read)
	return nil
}

// keys returns how keys are written and read.
func keys[K any]() (appendKey func([]byte, K) []byte, readKey func(*reader) K, err error) {
	switch of := reflect.TypeFor[K](); {
	case of.Kind() == reflect.String:
		appendKey = func(b []byte, k K) []byte {
			text := reflect.ValueOf(k).String()
			return append(binary.AppendUvarint(b, uint64(len(text))), text...)
		}
		readKey = func(r *reader) (k K) {
			reflect.ValueOf(&k).Elem().SetString(string(r.take(r.uvarint())))
			return k
		}
	case reflect.Zero(of).CanInt():
		appendKey = func(b []byte, k K) []byte { return binary.AppendVarint(b, reflect.ValueOf(k).Int()) }
		readKey = func(r *reader) (k K) {
			v, n := reflect.ValueOf(&k).Elem(), r.varint()
			if v.OverflowInt(n) {
				r.failed = true
			}
			v.SetInt(n)
			return k
		}
	case reflect.Zero(of).CanUint():
		appendKey = func(b []byte, k K) []byte { return binary.AppendUvarint(b, reflect.ValueOf(k).Uint()) }
		readKey = func(r *reader) (k K) {
			v, n := reflect.ValueOf(&k).Elem(), r.uvarint()
			if v.OverflowUint(n) {
				r.failed = true
			}
			v.SetUint(n)
			return k
		}
	default:
		return nil, nil, fmt.Errorf("timers: a queue with keys of type %v has no encoding; use strings or whole numbers", of)
	}
	return appendKey, readKey, nil
}

// reader takes fields from the front of b. After a field that b does not hold, or that has more bytes than it
// needs, failed is set.
type reader struct {
	b      []byte
	failed bool
}

func (r *reader) take(n uint64) []byte {
	if n > uint64(len(r.b)) {
		r.b, r.failed = nil, true
		return nil
	}
	field := r.b[:n]
	r.b = r.b[n:]
	return field
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	r.skip(n)
	return v
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.b)
	r.skip(n)
	return v
}

// skip takes the n bytes of a varint; n ≤ 0: it is none.
func (r *reader) skip(n int) {
	if n <= 0 || n > 1 && r.b[n-1] == 0 { // with a needless byte, a number would have two encodings
		r.b, r.failed = nil, true
		return
	}
	r.b = r.b[n:]
}
