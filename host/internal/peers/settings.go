package peers

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/host/internal/entry"
)

// Settings is what a host says of how it is set, by the number of the setting:
//
//	settings  67 │ n × (number of the setting │ value)
//
// in a body of kind transport.Control; integers are uvarints. A host of an earlier version says nothing,
// and a number that a host does not know counts for nothing. A number is never given to another setting.
type Settings map[uint64]uint64

// Encode returns the record.
func (s Settings) Encode() []byte {
	body := []byte{control.Settings}
	for _, number := range slices.Sorted(maps.Keys(s)) {
		body = binary.AppendUvarint(binary.AppendUvarint(body, number), s[number])
	}
	return body
}

// DecodeSettings decodes a record.
func DecodeSettings(body []byte) (Settings, error) {
	s := Settings{}
	r := entry.Reader{Rest: body[1:]}
	for len(r.Rest) > 0 && !r.Bad && len(s) < control.MaxSettings {
		number := r.Uvarint(^uint64(0))
		s[number] = r.Uvarint(1<<63 - 1)
	}
	if r.Bad || len(r.Rest) > 0 {
		return nil, fmt.Errorf("%w: %d bytes say how a host is set", control.ErrBad, len(body))
	}
	return s, nil
}
