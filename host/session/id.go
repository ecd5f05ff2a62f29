package session

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ID identifies a session for good: no other session of the group ever has it. The zero ID stands for no
// session.
type ID struct {
	// Client is the client id, 128 bits from a source that cannot be guessed or repeated.
	Client [16]byte
	// Birth is the log time at which the client drew the id. It tells a forgotten session from a session
	// that never was. A birth that no member has reached is refused as Expired.
	Birth time.Duration
}

// IsZero reports whether id stands for no session.
func (id ID) IsZero() bool { return id == ID{} }

// String returns the client id in 32 hexadecimal digits, a dot, and the birth in nanoseconds. ParseID reads
// it. A user keeps this text to continue a session in another process.
func (id ID) String() string {
	text := make([]byte, 0, 2*len(id.Client)+1+20)
	text = hex.AppendEncode(text, id.Client[:])
	text = append(text, '.')
	return string(strconv.AppendInt(text, int64(id.Birth), 10))
}

// ParseID reads the text that ID.String returns, and no other.
func ParseID(text string) (ID, error) {
	client, birth, found := strings.Cut(text, ".")
	if !found {
		return ID{}, fmt.Errorf("millrace: session id %s has no dot, want 32 hexadecimal digits, a dot and the birth in nanoseconds", quote(text))
	}
	var id ID
	if n, err := hex.Decode(id.Client[:], []byte(client[:min(len(client), 2*len(id.Client))])); err != nil || n != len(id.Client) || len(client) != 2*len(id.Client) {
		return ID{}, fmt.Errorf("millrace: the client id of session id %s is not 32 hexadecimal digits", quote(text))
	}
	ns, err := strconv.ParseInt(birth, 10, 64)
	if err != nil || ns < 0 {
		return ID{}, fmt.Errorf("millrace: the birth of session id %s is not a number of nanoseconds from 0 to %d", quote(text), int64(maxTime))
	}
	id.Birth = time.Duration(ns)
	if id.String() != text {
		return ID{}, fmt.Errorf("millrace: session id %s is not written as its owner got it, want %s", quote(text), id)
	}
	return id, nil
}

// quote bounds what an error repeats of a text from outside.
func quote(text string) string {
	const most = 80
	if len(text) > most {
		return fmt.Sprintf("%q… (%d bytes)", text[:most], len(text))
	}
	return strconv.Quote(text)
}

// MarshalText and UnmarshalText are String and ParseID, for encoding/json and flags.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText sets id to what the text says, or leaves it as it is.
func (id *ID) UnmarshalText(text []byte) error {
	parsed, err := ParseID(string(text))
	if err == nil {
		*id = parsed
	}
	return err
}

// Mark is the place of a command in a session.
type Mark struct {
	ID
	// Number is the number of the command in its session, at least 1. A command that is sent again has the
	// same number.
	Number uint64
	// Low is the lowest number whose answer the client still waits for: at least 1, at most Number. The table
	// forgets the numbers below it, and applies none of them any more.
	Low uint64
}

// Validate explains what is wrong with a mark that a user made.
func (m Mark) Validate() error {
	switch {
	case m.IsZero():
		return fmt.Errorf("millrace: a command has number %d in a session without an id; draw one with a random client id", m.Number)
	case m.Birth < 0:
		return fmt.Errorf("millrace: session %s was born before the group was founded", m.ID)
	case m.Number == 0:
		return fmt.Errorf("millrace: a command of session %s has number 0, want at least 1", m.ID)
	case m.Low == 0 || m.Low > m.Number:
		return fmt.Errorf("millrace: the lowest unanswered number of session %s is %d, want 1 to %d, the number of the command", m.ID, m.Low, m.Number)
	}
	return nil
}
