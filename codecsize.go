package millrace

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync"
)

// A command is bounded (Config.MaxCommandBytes), and a codec encodes it whole before its size is known. So a
// codec that knows better is asked first. Encoding a gigabyte to refuse it takes seconds, and twice the
// memory.

// SizedCodec is a Codec that can say how large an encoding will be. The codecs Bytes, BytesInPlace, Binary of
// a fixed size, and JSON are. A command of another codec is encoded whole before it is refused for its size.
type SizedCodec[T any] interface {
	// LeastBytes returns a number of bytes that the encoding of v has at least. It should be much cheaper than
	// Append: it is called for each command, concurrently. If it is more than Config.MaxCommandBytes, Append
	// is not called, and the command is refused with ErrTooLarge.
	LeastBytes(v T) int
}

// LeastBytes implements SizedCodec.
func (bytesCodec) LeastBytes(v []byte) int { return len(v) }

// LeastBytes implements SizedCodec.
func (inPlaceCodec) LeastBytes(v []byte) int { return len(v) }

// LeastBytes implements SizedCodec.
func (c fixedCodec[T]) LeastBytes(T) int { return c.size }

// LeastBytes implements SizedCodec. It looks at strings, bytes and lists, and at a few values of a list only.
func (jsonCodec[T]) LeastBytes(v T) int {
	s := jsonSize{values: maxSizedValues}
	s.add(reflect.ValueOf(&v).Elem())
	return s.bytes
}

// maxSizedValues bounds the values that are looked at. What is too large is mostly so by few of them.
const maxSizedValues = 64

// jsonSize adds up how many bytes values take as JSON at least.
type jsonSize struct{ bytes, values int }

func (s *jsonSize) add(v reflect.Value) {
	if s.values--; s.values < 0 || !mayBeLarge(v.Kind()) {
		return
	}
	t := sizedTypeOf(v.Type())
	if t.own {
		return
	}
	switch v.Kind() {
	case reflect.String:
		s.bytes += v.Len()
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			s.add(v.Elem())
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 && !sizedTypeOf(v.Type().Elem()).own {
			s.bytes += v.Len() / 3 * 4
			return
		}
		s.addList(v)
	case reflect.Array:
		s.addList(v)
	case reflect.Map:
		s.bytes += 4 * v.Len() // "":0
	case reflect.Struct:
		for _, i := range t.fields {
			s.add(v.Field(i))
		}
	}
}

// sizedType is what is known of a type.
type sizedType struct {
	own    bool  // its JSON is its own affair
	fields []int // of a struct: those that are in its JSON whatever the other fields and the values are
}

var sizedTypes sync.Map // by type; there are as many as the program has

func sizedTypeOf(t reflect.Type) *sizedType {
	if known, ok := sizedTypes.Load(t); ok {
		return known.(*sizedType)
	}
	s := &sizedType{own: hasOwnText(t) || t == reflect.TypeFor[json.Number]()}
	if t.Kind() == reflect.Struct {
		names := map[string]int{}
		for i := range t.NumField() {
			names[jsonName(t.Field(i))]++
		}
		for i := range t.NumField() {
			f := t.Field(i)
			tag := f.Tag.Get("json")
			if mayBeLarge(f.Type.Kind()) && f.IsExported() && !f.Anonymous && tag != "-" && !strings.Contains(tag, ",omitzero") && names[jsonName(f)] == 1 {
				s.fields = append(s.fields, i)
			}
		}
	}
	sizedTypes.Store(t, s)
	return s
}

// mayBeLarge reports whether values of a kind differ in what they hold.
func mayBeLarge(k reflect.Kind) bool {
	switch k {
	case reflect.String, reflect.Pointer, reflect.Interface, reflect.Slice, reflect.Array, reflect.Map, reflect.Struct:
		return true
	}
	return false
}

func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return cmp.Or(name, f.Name)
}

// addList adds a list: at least a digit and a comma for each value.
func (s *jsonSize) addList(v reflect.Value) {
	s.bytes += 2 * v.Len()
	for i := 0; i < v.Len() && s.values > 0; i++ {
		s.add(v.Index(i))
	}
}

// neverEncodes returns the type within t for which encoding/json refuses each value of t, or nil: a function,
// a channel, a complex number. Where it may be left out, values decide.
func neverEncodes(t reflect.Type) reflect.Type {
	if hasOwnText(t) {
		return nil
	}
	switch t.Kind() {
	case reflect.Func, reflect.Chan, reflect.Complex64, reflect.Complex128, reflect.UnsafePointer:
		return t
	case reflect.Array:
		if t.Len() > 0 {
			return neverEncodes(t.Elem())
		}
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			if tag := f.Tag.Get("json"); !f.IsExported() || f.Anonymous || tag == "-" || strings.Contains(tag, ",omit") {
				continue
			}
			if never := neverEncodes(f.Type); never != nil {
				return never
			}
		}
	}
	return nil
}

// rejectSize returns the error for a command whose encoding will surely be too large, or nil.
func (n *Node[C, R]) rejectSize(command C) error {
	s, ok := n.machine.codec.(SizedCodec[C])
	if !ok {
		return nil
	}
	least, err := sizeSafely(s, command)
	if err != nil {
		return fmt.Errorf("millrace: not proposed: %w", err)
	}
	if err := n.group.CheckSize(least); err != nil {
		return fmt.Errorf("%w; it was not encoded, and has at least as many bytes", err)
	}
	return nil
}
