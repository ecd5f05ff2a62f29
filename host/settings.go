package host

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/internal/examination"
	"github.com/millrace/millrace/transport"
)

// Some settings should be the same on all members: a member with a short election timeout does not wait for
// the heartbeats of a leader with a long interval, so the group elects leader after leader. Nothing refuses
// such members, since a rolling change of a setting has them. Hosts that meet tell each other theirs, and
// Explain names those that differ:
//
//	settings  67 │ n × (number of the setting │ value)
//
// in a body of kind transport.Control; integers are uvarints, durations are in nanoseconds. A host of an
// earlier version says nothing, and a number that a host does not know counts for nothing.

// maxSettings bounds the settings of a record.
const maxSettings = control.MaxSettings

// equalSettings are the settings that members should share, in the order of their numbers, which begin at 1.
// A number is never given to another setting.
var equalSettings = []struct {
	name string
	of   func(Config) time.Duration
}{
	{"Config.HeartbeatInterval", func(c Config) time.Duration { return c.HeartbeatInterval }},
	{"Config.ElectionTimeout", func(c Config) time.Duration { return c.ElectionTimeout }},
}

// encodeSettings returns the record of a configuration.
func encodeSettings(c Config) []byte {
	body := []byte{control.Settings}
	for i, s := range equalSettings {
		body = binary.AppendUvarint(binary.AppendUvarint(body, uint64(i+1)), uint64(s.of(c)))
	}
	return body
}

// decodeSettings decodes a record.
func decodeSettings(body []byte) (settings, error) {
	s := settings{}
	r := entry.Reader{Rest: body[1:]}
	for len(r.Rest) > 0 && !r.Bad && len(s) < maxSettings {
		number := r.Uvarint(^uint64(0))
		s[number] = r.Uvarint(1<<63 - 1)
	}
	if r.Bad || len(r.Rest) > 0 {
		return nil, fmt.Errorf("%w: %d bytes say how a host is set", control.ErrBad, len(body))
	}
	return s, nil
}

// tellSettings tells another host how this one is set.
func (h *Host) tellSettings(to uint64) {
	h.network.transport.SendBytes(to, transport.Control, encodeSettings(h.config))
}

// takeSettings takes what another host says of its settings.
func (h *Host) takeSettings(from uint64, body []byte) error {
	s, err := decodeSettings(body)
	if p := h.network.handshakes.of(from); err == nil && p != nil {
		p.settingsAt.Store(h.clock.livedAtBeat())
		p.settings.Store(&s)
	}
	return err
}

// beside returns what another host has said of its settings, each beside this host's.
func (s settings) beside(own Config) (all []examination.Setting) {
	for i, e := range equalSettings {
		if theirs, said := s[uint64(i+1)]; said {
			all = append(all, examination.Setting{Name: e.name, Theirs: time.Duration(theirs), Ours: e.of(own)})
		}
	}
	return all
}
