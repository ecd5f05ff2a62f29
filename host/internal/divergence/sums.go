package divergence

import (
	"hash/crc32"
	"math/bits"
	"time"

	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/session"
)

// This file sums up what a member has applied, for a Comparison. The sums are cheap: a CRC32C of bytes that
// are in the cache, since the command was just decoded. They find accidents, not forgeries: another machine
// that wants to look the same can.

// Checkpoint is the sums after the command at Index.
type Checkpoint struct {
	Index                     uint64
	Commands, Results, Digest uint64
	HasResults, HasDigest     bool
}

// Sums is what the apply lane sums up.
type Sums struct {
	machine  *Machine
	commands uint64
	results  uint64
	whole    bool // results has those of all commands since the last checkpoint
	second   time.Duration
	count    int // commands since the last checkpoint
}

// NewSums returns the sums of a machine. isEmpty says that the machine has applied nothing: it gets all
// commands from now on.
func NewSums(m *Machine, isEmpty bool) Sums { return Sums{machine: m, whole: isEmpty} }

// State returns what a snapshot has of the sums.
func (s *Sums) State() entry.Sums {
	return entry.Sums{Commands: s.commands, Results: s.results, Whole: s.whole, Second: int64(s.second), Count: s.count}
}

// Restore makes the sums those of a snapshot. The sum of results is not whole until the next checkpoint.
// The snapshot may come from a program of another version, or from a program that sums up results in
// another form.
func (s *Sums) Restore(f entry.Sums) {
	s.commands, s.results, s.whole = f.Commands, f.Results, false
	s.second, s.count = time.Duration(f.Second), f.Count
}

var sumTable = crc32.MakeTable(crc32.Castagnoli)

// mix adds a value to a sum, such that two sums that differ stay different while the same values are added.
func mix(sum, v uint64) uint64 {
	return bits.RotateLeft64(sum^v, 29) * 0x9e3779b97f4a7c15
}

func sumOf(data []byte) uint64 {
	return uint64(crc32.Checksum(data, sumTable)) | uint64(len(data))<<32
}

// Command adds an entry, and reports whether a checkpoint is due after it.
func (s *Sums) Command(data []byte, v session.Verdict, now time.Duration) (due bool) {
	s.commands = mix(s.commands, sumOf(data)^uint64(v)<<60)
	s.count++
	if second := now / time.Second; second > s.second || s.count >= entry.MaxCheckpointCommands {
		s.second = second
		return true
	}
	return false
}

// Result adds a result.
func (s *Sums) Result(data []byte) { s.ResultSum(sumOf(data)) }

// ResultSum adds the sum of a result.
func (s *Sums) ResultSum(sum uint64) { s.results = mix(s.results, sum) }

// Checkpoint takes a checkpoint. current says whether the state of the machine is that after index.
func (s *Sums) Checkpoint(index uint64, current bool) Checkpoint {
	c := Checkpoint{Index: index, Commands: s.commands}
	if c.HasResults = s.machine.Form != "" && s.whole; c.HasResults {
		c.Results = s.results
	}
	if c.HasDigest = s.machine.Digest != nil && current; c.HasDigest {
		c.Digest = s.machine.Digest()
	}
	s.results, s.count, s.whole = 0, 0, current
	return c
}
