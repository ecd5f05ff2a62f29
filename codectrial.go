package millrace

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"strings"
)

// A command that its own codec cannot decode is committed like any other, and then halts the state machine of
// every member. So a command is decoded on its way in, and one that does not come back is not proposed.
//
// The trial costs one Decode for each command. It is spared where the type proves that Decode takes whatever
// Append returns. Only errors count: a codec may lose a part of a value, as JSON does with unexported fields.

// SureCodec is a Codec that may say: Decode returns no error for whatever Append has returned. Then
// commands are not decoded on their way in. A codec that says so and is wrong halts the state machine of
// every member. The codecs of this package say it where the type proves it.
type SureCodec interface {
	// Sure is called once for each Machine.
	Sure() bool
}

// isSure reports whether a codec says that it is sure.
func isSure[T any](c Codec[T]) bool {
	s, ok := c.(SureCodec)
	return ok && s.Sure()
}

// Sure implements SureCodec.
func (bytesCodec) Sure() bool { return true }

// Sure implements SureCodec.
func (inPlaceCodec) Sure() bool { return true }

// Sure implements SureCodec: encoding/binary refuses no value of a fixed size.
func (fixedCodec[T]) Sure() bool { return true }

// Sure implements SureCodec.
func (jsonCodec[T]) Sure() bool { return jsonDecodes(reflect.TypeFor[T](), nil) }

// tryDecode says why a codec cannot decode what it has encoded, or returns nil.
func tryDecode[T any](c Codec[T], encoded []byte) error {
	_, err := decodeSafely(c, encoded)
	return err
}

// decodeSafely makes an error of a panic in Decode.
func decodeSafely[T any](c Codec[T], encoded []byte) (v T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("Decode panicked: %v\n%s", p, debug.Stack())
		}
	}()
	return c.Decode(encoded)
}

// decodeApart is decodeSafely on a goroutine that Decode may end: this one is a lane of the host.
func decodeApart[T any](c Codec[T], encoded []byte) (v T, err error) {
	ended := make(chan struct{})
	err = errors.New("Decode ended its goroutine (runtime.Goexit, as t.Fatal does)")
	go func() {
		defer close(ended)
		v, err = decodeSafely(c, encoded)
	}()
	<-ended
	return v, err
}

// appendSafely makes an error of a panic in Append.
func appendSafely[T any](c Codec[T], dst []byte, v T) (b []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("Append panicked: %v\n%s", p, debug.Stack())
		}
	}()
	return c.Append(dst, v)
}

// sizeSafely makes an error of a panic in LeastBytes.
func sizeSafely[T any](c SizedCodec[T], v T) (n int, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("LeastBytes of the codec panicked: %v\n%s", p, debug.Stack())
		}
	}()
	return c.LeastBytes(v), nil
}

// jsonDecodes reports whether encoding/json surely decodes what it has encoded of a type. It is false for
// what it does not know. within are the types around this one: a type that contains itself may be nested more
// deeply than encoding/json decodes.
func jsonDecodes(t reflect.Type, within []reflect.Type) bool {
	for _, outer := range within {
		if outer == t {
			return false
		}
	}
	if hasOwnText(t) {
		return false
	}
	within = append(within, t)
	switch t.Kind() {
	case reflect.Bool, reflect.String, reflect.Float32, reflect.Float64,
		reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return true
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return jsonDecodes(t.Elem(), within)
	case reflect.Map:
		switch t.Key().Kind() {
		case reflect.Interface, reflect.Float32, reflect.Float64, reflect.Bool:
			return false
		}
		return jsonDecodes(t.Key(), within) && jsonDecodes(t.Elem(), within)
	case reflect.Struct:
		for i := range t.NumField() {
			if !jsonDecodesField(t.Field(i), within) {
				return false
			}
		}
		return true
	}
	return false
}

// jsonDecodesField is jsonDecodes for a field. What its tag does to the encoding is left to a trial.
func jsonDecodesField(f reflect.StructField, within []reflect.Type) bool {
	tag := f.Tag.Get("json")
	_, options, _ := strings.Cut(tag, ",")
	switch {
	case tag == "-", !f.IsExported() && !f.Anonymous: // with "-," it is called -
		return true // it is left out
	case strings.Contains(options, "string"), f.Anonymous && f.Type.Kind() == reflect.Pointer:
		return false
	}
	return jsonDecodes(f.Type, within)
}

// hasOwnText reports whether a type, or a pointer to it, has methods that encoding/json calls.
func hasOwnText(t reflect.Type) bool {
	for _, method := range []reflect.Type{
		reflect.TypeFor[json.Marshaler](), reflect.TypeFor[json.Unmarshaler](),
		reflect.TypeFor[encoding.TextMarshaler](), reflect.TypeFor[encoding.TextUnmarshaler](),
	} {
		if t.Implements(method) || reflect.PointerTo(t).Implements(method) {
			return true
		}
	}
	return false
}
