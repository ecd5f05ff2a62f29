package object

import (
	"encoding/binary"
	"fmt"
)

// In a group with objects each command begins with a byte that says what it is.
//
//	plain   0 │ the command
//	names   1 │ number of ids, a uvarint │ ids, 16 B each │ the command
//	open    2 │ the entry open
//	hold    3 │ the entry hold
//	pass    4; the leader proposes it when a set has expired and no command comes that says the time
const (
	kindPlain byte = iota
	kindNames
	kindOpen
	kindHold
	kindPass
)

// MaxNames bounds the sets that a command names.
const MaxNames = 64

// Command is a command of a group with objects: an Opening, a Holding, a time, or a command of the state
// machine.
type Command struct {
	Opening *Opening
	Holding *Holding
	Passes  bool
	// Names are the sets that the command names, and Data is what the state machine gets.
	Names []ID
	Data  []byte
}

// AppendHead appends what comes before a command of the state machine that names these sets. They are at most
// MaxNames, all different.
func AppendHead(b []byte, names []ID) []byte {
	if len(names) == 0 {
		return append(b, kindPlain)
	}
	b = binary.AppendUvarint(append(b, kindNames), uint64(len(names)))
	for _, id := range names {
		b = append(b, id[:]...)
	}
	return b
}

// AppendOpening appends a command that opens a set.
func AppendOpening(b []byte, o Opening) []byte { return append(append(b, kindOpen), o.Encode()...) }

// AppendHolding appends a command that says who holds a set.
func AppendHolding(b []byte, h Holding) []byte { return append(append(b, kindHold), h.Encode()...) }

// AppendPass appends a command that only says the time.
func AppendPass(b []byte) []byte { return append(b, kindPass) }

// IsOfHost reports whether no state machine gets the command.
func (c *Command) IsOfHost() bool { return c.Opening != nil || c.Holding != nil || c.Passes }

// IsOfLeader reports whether only the leader of the group may say this: who holds a set, and what time it is.
// It looks at the kind alone.
func IsOfLeader(data []byte) bool {
	return len(data) > 0 && (data[0] == kindHold || data[0] == kindPass)
}

// IsPlain reports whether a command is one of the state machine that names no sets.
func IsPlain(data []byte) bool { return len(data) > 0 && data[0] == kindPlain }

// DecodeCommand reads a command. Its Data is a part of data. The error depends on data alone, so all members
// of a group meet the same one.
func DecodeCommand(data []byte) (c Command, err error) {
	if len(data) == 0 {
		return c, fmt.Errorf("%w: a command has no first byte; give all members of the group the same CommandOptions.Objects", ErrFormat)
	}
	switch rest := data[1:]; data[0] {
	case kindPlain:
		c.Data = rest
	case kindNames:
		c.Names, c.Data, err = decodeNames(rest)
	case kindOpen:
		var o Opening
		o, err = DecodeOpen(rest)
		c.Opening = &o
	case kindHold:
		var h Holding
		h, err = DecodeHold(rest)
		c.Holding = &h
	case kindPass:
		if c.Passes = true; len(rest) > 0 {
			err = fmt.Errorf("%w: %d bytes follow a command that only says the time", ErrFormat, len(rest))
		}
	default:
		err = fmt.Errorf("%w: a command begins with %#02x, want 0 to %d; use a newer program, and give all members the same CommandOptions.Objects", ErrFormat, data[0], kindPass)
	}
	return c, err
}

func decodeNames(data []byte) (names []ID, rest []byte, err error) {
	r := &reader{rest: data}
	n := r.uvarint()
	if n == 0 || n > MaxNames {
		r.bad = true
	}
	for range n {
		if r.bad {
			break
		}
		names = append(names, r.id())
	}
	if err := RejectNames(names); r.bad || err != nil {
		return nil, nil, fmt.Errorf("%w: a command names %d objects, want 1 to %d different ones", ErrFormat, n, MaxNames)
	}
	return names, r.rest, nil
}

// RejectNames says why a command must not name these sets, or returns nil.
func RejectNames(names []ID) error {
	if len(names) > MaxNames {
		return fmt.Errorf("%w: a command names %d objects, want at most %d", ErrRefused, len(names), MaxNames)
	}
	seen := make(map[ID]bool, len(names))
	for _, id := range names {
		if id.IsZero() || seen[id] {
			return fmt.Errorf("%w: a command names object %v twice, or none", ErrRefused, id)
		}
		seen[id] = true
	}
	return nil
}
