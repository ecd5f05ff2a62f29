package millrace

import (
	"bytes"
	"encoding"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
)

// Codec turns commands into bytes and back. All members of a group must use the same one: what one member has
// encoded, every other decodes, perhaps years later from its log. Its methods are called concurrently.
type Codec[T any] interface {
	// Append appends the encoding of v to dst, whole: its size is looked at afterwards (SizedCodec). An error
	// is returned to the caller of Propose or Submit, and nothing is proposed.
	Append(dst []byte, v T) ([]byte, error)
	// Decode returns the value of an encoding. b belongs to the log: Decode must not change it, and copies
	// what the value keeps of it. It must decode whatever Append returns. Each command is decoded on its
	// way in, and is not proposed if that fails; a SureCodec may say that this is not needed. An error for
	// a committed command halts the state machine of this member there.
	Decode(b []byte) (T, error)
}

// CopyingCodec is a Codec whose values have no part of the bytes that they were decoded from. The codecs
// Bytes and Binary of a fixed size say so. The host reuses the memory of such commands when they are applied,
// which saves an allocation for each small command on each member (statemachine.Borrower).
type CopyingCodec[T any] interface {
	// DecodeCopies reports whether Decode copies all that a value keeps of its bytes. A codec that says so
	// and keeps something corrupts the state of its machine.
	DecodeCopies() bool
}

// copies reports whether a codec says that it copies.
func copies(codec any) bool {
	c, is := codec.(interface{ DecodeCopies() bool })
	return is && c.DecodeCopies()
}

// DecodeCopies implements CopyingCodec.
func (bytesCodec) DecodeCopies() bool { return true }

// DecodeCopies implements CopyingCodec.
func (fixedCodec[T]) DecodeCopies() bool { return true }

// Bytes returns the codec of commands that are bytes. Decode copies them.
func Bytes() Codec[[]byte] { return bytesCodec{} }

type bytesCodec struct{}

func (bytesCodec) Append(dst, v []byte) ([]byte, error) { return append(dst, v...), nil }
func (bytesCodec) Decode(b []byte) ([]byte, error)      { return bytes.Clone(b), nil }

// BytesInPlace is Bytes without the copy: a decoded command is part of the log's memory. The state machine
// may keep it, and must never change it: other members may be sent what it writes there. Commands with one
// Index share an array: a machine that keeps a command keeps all of its entry in memory.
func BytesInPlace() Codec[[]byte] { return inPlaceCodec{} }

type inPlaceCodec struct{}

func (inPlaceCodec) Append(dst, v []byte) ([]byte, error) { return append(dst, v...), nil }
func (inPlaceCodec) Decode(b []byte) ([]byte, error)      { return b[:len(b):len(b)], nil }

// JSON returns the codec of package encoding/json. Fields can be added to T later: an old member ignores
// fields that it does not know, and a new member sees zero values in old commands. What encoding/json loses
// is lost: unexported fields, and bytes of a string that are not UTF-8. Open and OpenGroup refuse a struct
// that has unexported fields only, and a type with a function, a channel or a complex number in it.
func JSON[T any]() Codec[T] {
	if v := any((*T)(nil)); losesAll(reflect.TypeOf(v).Elem()) {
		return noCodec[T]{fmt.Errorf("millrace: JSON[%v]: the type has no exported field, so encoding/json leaves all of them out; export them, or give the type MarshalJSON and UnmarshalJSON", reflect.TypeOf(v).Elem())}
	}
	if never := neverEncodes(reflect.TypeFor[T]()); never != nil {
		return noCodec[T]{fmt.Errorf("millrace: JSON[%v]: encoding/json encodes no value of type %v; leave it out with the tag json:\"-\", or give the type MarshalJSON and UnmarshalJSON", reflect.TypeFor[T](), never)}
	}
	return jsonCodec[T]{}
}

// losesAll reports whether a struct has fields, and encoding/json sees none of them.
func losesAll(t reflect.Type) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || t.NumField() == 0 {
		return false
	}
	for i := range t.NumField() {
		if f := t.Field(i); f.IsExported() || f.Anonymous {
			return false
		}
	}
	p := reflect.PointerTo(t)
	return !p.Implements(reflect.TypeFor[json.Marshaler]()) && !p.Implements(reflect.TypeFor[encoding.TextMarshaler]())
}

type jsonCodec[T any] struct{}

func (jsonCodec[T]) Append(dst []byte, v T) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return append(dst, b...), nil
}

func (jsonCodec[T]) Decode(b []byte) (v T, err error) {
	err = json.Unmarshal(b, &v)
	return v, err
}

// Binary returns the codec of the binary form of T. If *T has UnmarshalBinary, and T or *T has AppendBinary
// or MarshalBinary, these are called. Otherwise T must have a fixed size in the sense of package
// encoding/binary, such as int64 or a struct of exported fields of fixed size. Its form is big-endian. Open
// and OpenGroup refuse any other T.
func Binary[T any]() Codec[T] {
	var v T
	_, decodes := any(&v).(encoding.BinaryUnmarshaler)
	_, appends := any(&v).(encoding.BinaryAppender) // which T's own methods belong to
	_, marshals := any(&v).(encoding.BinaryMarshaler)
	switch size := binary.Size(v); {
	case decodes && appends:
		return appenderCodec[T]{}
	case decodes && marshals:
		return marshalerCodec[T]{}
	case size >= 0 && reflect.TypeFor[T]().Kind() != reflect.Slice:
		if !decodesFixed[T]() {
			return noCodec[T]{fmt.Errorf("millrace: Binary[%T]: encoding/binary cannot set the unexported fields of the type; export them, or give the type UnmarshalBinary with AppendBinary or MarshalBinary", v)}
		}
		return fixedCodec[T]{size: size}
	}
	return noCodec[T]{fmt.Errorf("millrace: Binary[%T]: the type has neither UnmarshalBinary with AppendBinary or MarshalBinary, nor a fixed size (encoding/binary); give it these methods, or use JSON", v)}
}

// decodesFixed reports whether a T can be decoded: encoding/binary reads unexported fields, and panics when
// it sets them. Each member would stop at the first such command, at each start again.
func decodesFixed[T any]() (ok bool) {
	defer func() { ok = recover() == nil }()
	var v T
	b, err := binary.Append(nil, binary.BigEndian, v)
	if err == nil {
		_, err = binary.Decode(b, binary.BigEndian, &v)
	}
	if err != nil {
		panic(err)
	}
	return true
}

type appenderCodec[T any] struct{}

func (appenderCodec[T]) Append(dst []byte, v T) ([]byte, error) {
	return any(&v).(encoding.BinaryAppender).AppendBinary(dst)
}

func (appenderCodec[T]) Decode(b []byte) (v T, err error) { return unmarshalBinary[T](b) }

type marshalerCodec[T any] struct{}

func (marshalerCodec[T]) Append(dst []byte, v T) ([]byte, error) {
	b, err := any(&v).(encoding.BinaryMarshaler).MarshalBinary()
	if err != nil {
		return nil, err
	}
	return append(dst, b...), nil
}

func (marshalerCodec[T]) Decode(b []byte) (v T, err error) { return unmarshalBinary[T](b) }

func unmarshalBinary[T any](b []byte) (v T, err error) {
	err = any(&v).(encoding.BinaryUnmarshaler).UnmarshalBinary(b)
	return v, err
}

type fixedCodec[T any] struct{ size int }

func (fixedCodec[T]) Append(dst []byte, v T) ([]byte, error) {
	return binary.Append(dst, binary.BigEndian, v)
}

func (c fixedCodec[T]) Decode(b []byte) (v T, err error) {
	if len(b) != c.size {
		return v, fmt.Errorf("it has %d bytes, a %T has %d", len(b), v, c.size)
	}
	_, err = binary.Decode(b, binary.BigEndian, &v)
	return v, err
}

// noCodec is the codec of a type that has none. Open reports why.
type noCodec[T any] struct{ err error }

func (c noCodec[T]) Append([]byte, T) ([]byte, error) { return nil, c.err }
func (c noCodec[T]) Decode([]byte) (v T, err error)   { return v, c.err }

// rejectCodec says why a codec cannot be used, or returns nil.
func rejectCodec[T any](c Codec[T], what string) error {
	switch c := c.(type) {
	case nil:
		return errors.New("millrace: the machine has no codec for its " + what + "; use Bytes, JSON, Binary, or one of your own")
	case noCodec[T]:
		return c.err
	}
	return nil
}
