package profile

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Sample is a stack and the processor time of it. Stack begins with the function that ran.
type Sample struct {
	Stack []string
	Nanos int64
}

var errDamaged = errors.New("the profile is damaged")

// Decode reads the samples of a CPU profile of Go. It is a protocol buffer, profile.proto of google/pprof, of
// which this reads the few fields that it needs.
func Decode(in io.Reader) ([]Sample, error) {
	zipped, err := gzip.NewReader(in)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(zipped)
	if err != nil {
		return nil, err
	}
	d := decoder{functions: map[uint64]uint64{}, locations: map[uint64][]uint64{}}
	if err := fields(text, d.profile); err != nil {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	return d.samples()
}

// decoder holds the tables of a profile: samples name locations, locations name functions, functions name
// strings.
type decoder struct {
	raw       []rawSample
	locations map[uint64][]uint64 // functions, the innermost first: more than one where code is inlined
	functions map[uint64]uint64   // place of the name
	strings   []string
}

type rawSample struct{ locations, values []uint64 }

// profile takes one field of a Profile.
func (d *decoder) profile(field, value uint64, body []byte) error {
	switch field {
	case 2:
		var s rawSample
		err := fields(body, func(field, value uint64, body []byte) (err error) {
			switch field {
			case 1:
				s.locations, err = numbers(s.locations, value, body)
			case 2:
				s.values, err = numbers(s.values, value, body)
			}
			return err
		})
		d.raw = append(d.raw, s)
		return err
	case 4:
		var id uint64
		var functions []uint64
		err := fields(body, func(field, value uint64, body []byte) error {
			switch field {
			case 1:
				id = value
			case 4:
				return fields(body, func(field, value uint64, _ []byte) error {
					if field == 1 {
						functions = append(functions, value)
					}
					return nil
				})
			}
			return nil
		})
		d.locations[id] = functions
		return err
	case 5:
		var id, name uint64
		err := fields(body, func(field, value uint64, _ []byte) error {
			switch field {
			case 1:
				id = value
			case 2:
				name = value
			}
			return nil
		})
		d.functions[id] = name
		return err
	case 6:
		d.strings = append(d.strings, string(body))
	}
	return nil
}

// samples resolves what the tables name. A CPU profile has two values in a sample: a count, and nanoseconds.
func (d *decoder) samples() ([]Sample, error) {
	var all []Sample
	for _, raw := range d.raw {
		if len(raw.values) != 2 {
			return nil, fmt.Errorf("%w: %d values in a sample, want a count and a time", errDamaged, len(raw.values))
		}
		s := Sample{Nanos: int64(raw.values[1])}
		for _, location := range raw.locations {
			for _, function := range d.locations[location] {
				name := d.functions[function]
				if name >= uint64(len(d.strings)) {
					return nil, fmt.Errorf("%w: a function has the name %d of %d", errDamaged, name, len(d.strings))
				}
				s.Stack = append(s.Stack, d.strings[name])
			}
		}
		all = append(all, s)
	}
	return all, nil
}

// fields calls each with every field of a message: its number, and its value or its body.
func fields(message []byte, each func(field, value uint64, body []byte) error) error {
	for len(message) > 0 {
		key, n := binary.Uvarint(message)
		if n <= 0 {
			return io.ErrUnexpectedEOF
		}
		message = message[n:]
		var value uint64
		var body []byte
		switch key & 7 {
		case 0:
			if value, n = binary.Uvarint(message); n <= 0 {
				return io.ErrUnexpectedEOF
			}
			message = message[n:]
		case 2:
			length, n := binary.Uvarint(message)
			if n <= 0 || length > uint64(len(message)-n) {
				return io.ErrUnexpectedEOF
			}
			body, message = message[n:n+int(length)], message[n+int(length):]
		default:
			return fmt.Errorf("a field of the wire type %d", key&7)
		}
		if err := each(key>>3, value, body); err != nil {
			return err
		}
	}
	return nil
}

// numbers appends a number, or a packed list of numbers.
func numbers(to []uint64, value uint64, body []byte) ([]uint64, error) {
	if body == nil {
		return append(to, value), nil
	}
	for in := bytes.NewReader(body); in.Len() > 0; {
		value, err := binary.ReadUvarint(in)
		if err != nil {
			return to, err
		}
		to = append(to, value)
	}
	return to, nil
}
