package host

import (
	"time"

	"github.com/millrace/millrace/host/internal/examination"
	"github.com/millrace/millrace/host/internal/peers"
	"github.com/millrace/millrace/transport"
)

// Some settings should be the same on all members: a member with a short election timeout does not wait for
// the heartbeats of a leader with a long interval, so the group elects leader after leader. Nothing refuses
// such members, since a rolling change of a setting has them. Hosts that meet tell each other theirs
// (peers.Settings; durations are in nanoseconds), and Explain names those that differ.

// equalSettings are the settings that members should share, in the order of their numbers, which begin at 1.
// A number is never given to another setting.
var equalSettings = []struct {
	name string
	of   func(Config) time.Duration
}{
	{"Config.HeartbeatInterval", func(c Config) time.Duration { return c.HeartbeatInterval }},
	{"Config.ElectionTimeout", func(c Config) time.Duration { return c.ElectionTimeout }},
}

// settings returns the settings of a configuration that members should share, by their numbers, and with
// batchSetting what this host can read. That one need not be shared.
func (c Config) settings() (all peers.Settings) {
	all = peers.Settings{}
	for i, s := range equalSettings {
		all[uint64(i+1)] = uint64(s.of(c))
	}
	if all[batchKnownSetting] = 1; !c.SingleEntries {
		all[batchSetting] = 1
	}
	return all
}

// A host says with the value 1 that it reads entries with several commands, and with batchSetting that it
// may be sent some: it has no SingleEntries.
const (
	batchSetting      = 100
	batchKnownSetting = 101
)

// readsBatches reports whether another host has said so in its present life.
func (h *Host) readsBatches(id uint64) bool {
	p := h.network.handshakes.Of(id)
	if p == nil {
		return false
	}
	s := p.Settings.Load()
	return s != nil && (*s)[batchSetting] == 1
}

// saidOfBatches returns what a host has said of such entries.
func saidOfBatches(s peers.Settings) examination.Batches {
	switch {
	case s[batchSetting] == 1:
		return examination.BatchesRead
	case s[batchKnownSetting] == 1:
		return examination.BatchesRefused
	}
	return examination.BatchesUnknown
}

// tellSettings tells another host how this one is set.
func (h *Host) tellSettings(to uint64) {
	h.network.transport.SendBytes(to, transport.Control, h.config.settings().Encode())
}

// receiveSettings receives what another host says of its settings.
func (h *Host) receiveSettings(from uint64, body []byte) error {
	s, err := peers.DecodeSettings(body)
	if p := h.network.handshakes.Of(from); err == nil && p != nil {
		p.SettingsAt.Store(h.clock.awakeAtBeat())
		p.Settings.Store(&s)
	}
	return err
}

// besideOwn returns what another host has said of its settings, each beside this host's.
func (c Config) besideOwn(said peers.Settings) (all []examination.Setting) {
	for i, e := range equalSettings {
		if theirs, is := said[uint64(i+1)]; is {
			all = append(all, examination.Setting{Name: e.name, Theirs: time.Duration(theirs), Ours: e.of(c)})
		}
	}
	return all
}
