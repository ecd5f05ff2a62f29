package host

import (
	"hash/crc32"
	"math/bits"
	"time"

	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/session"
)

// This file sums up what a member has applied, for divergence.go. The sums are cheap: a CRC32C of bytes that
// are in the cache, since the command was just decoded. They find accidents, not forgeries: another machine
// that wants to look the same can.

// checkpoint is the sums after the command at index.
type checkpoint struct {
	index                     uint64
	commands, results, digest uint64
	hasResults, hasDigest     bool
}

// sums is what the apply lane sums up.
type sums struct {
	machine  *commandGroup
	commands uint64
	results  uint64
	whole    bool // results has those of all commands since the last checkpoint
	second   time.Duration
	count    int // commands since the last checkpoint
}

func (s *sums) init(m *commandGroup) {
	s.machine, s.whole = m, m.held == 0
	m.group.divergence.init(m)
}

var sumTable = crc32.MakeTable(crc32.Castagnoli)

// mix adds a value to a sum, such that two sums that differ stay different while the same values are added.
func mix(sum, v uint64) uint64 {
	return bits.RotateLeft64(sum^v, 29) * 0x9e3779b97f4a7c15
}

func sumOf(data []byte) uint64 {
	return uint64(crc32.Checksum(data, sumTable)) | uint64(len(data))<<32
}

// command adds an entry, and reports whether a checkpoint is due after it.
func (s *sums) command(data []byte, v session.Verdict, now time.Duration) (due bool) {
	s.commands = mix(s.commands, sumOf(data)^uint64(v)<<60)
	s.count++
	if second := now / time.Second; second > s.second || s.count >= entry.MaxCheckpointCommands {
		s.second = second
		return true
	}
	return false
}

// result adds the sum of a result.
func (s *sums) result(sum uint64) { s.results = mix(s.results, sum) }

// checkpoint takes a checkpoint. current says whether the state of the machine is that after index.
func (s *sums) checkpoint(index uint64, current bool) {
	o := &s.machine.options
	c := checkpoint{index: index, commands: s.commands}
	if c.hasResults = o.comparesResults() && s.whole; c.hasResults {
		c.results = s.results
	}
	if c.hasDigest = o.Digest != nil && current; c.hasDigest {
		c.digest = s.machine.digest()
	}
	s.results, s.count, s.whole = 0, 0, current
	if g := s.machine.group; !g.apply.rebuilding {
		g.divergence.put(g, c)
	}
}
