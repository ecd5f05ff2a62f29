package millrace

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/millrace/millrace/host/session"
)

// SessionID is the id of a session. Its text form continues the session in another process.
//
//	Client [16]byte      // 128 random bits
//	Birth  time.Duration // the log time at which it was drawn
//	func IsZero() bool                    // whether it names no session
//	func String() string                  // the text form
//	func MarshalText() ([]byte, error)    // the text form, for JSON and other texts
//	func UnmarshalText(text []byte) error // reads the text form
type SessionID = session.ID

// SessionMark is the place of a command in a session. It is a value, and may travel: a client in another
// process sends its fields along with the command, or its String, which ParseSessionMark reads.
type SessionMark struct {
	// Session is the id of the session.
	Session SessionID
	// Number is the number of the command in its session, from 1. A command that is sent again has the same
	// number.
	Number uint64
	// Low is the lowest number whose outcome the client does not know, at most Number: members forget the
	// numbers below it. 0 is Number, for a client that sends one command after the other.
	Low uint64

	of *Session // it hears of the outcome; nil: the user counts
}

// Following returns the mark of the command that is n places later. After SubmitMany has taken n commands
// it is the mark of the rest.
func (m SessionMark) Following(n int) SessionMark {
	m.Number += uint64(max(n, 0))
	return m
}

// String returns the mark as a text: SESSION:NUMBER:LOW, or SESSION:NUMBER if the client sends one command
// after the other. The session is SessionID.String.
func (m SessionMark) String() string {
	k := m.mark()
	text := k.ID.String() + ":" + strconv.FormatUint(k.Number, 10)
	if k.Low != k.Number {
		text += ":" + strconv.FormatUint(k.Low, 10)
	}
	return text
}

// ParseSessionMark reads what SessionMark.String returns, such as a header of a request.
func ParseSessionMark(text string) (SessionMark, error) {
	var m SessionMark
	id, numbers, _ := strings.Cut(text, ":")
	number, low, explicit := strings.Cut(numbers, ":")
	if !explicit {
		low = number
	}
	err := m.Session.UnmarshalText([]byte(id))
	var err1, err2 error
	m.Number, err1 = strconv.ParseUint(number, 10, 64)
	m.Low, err2 = strconv.ParseUint(low, 10, 64)
	if err != nil || err1 != nil || err2 != nil || m.Low == 0 || m.Low > m.Number {
		return SessionMark{}, fmt.Errorf("millrace: %.100q is no mark of a session, want SESSION:NUMBER with the id of a session and the number of the command in it, 1 for the first; or SESSION:NUMBER:LOW with the lowest number without an outcome", text)
	}
	return m, nil
}

// mark is m as package host knows it. At a later attempt the session may know more outcomes.
func (m SessionMark) mark() session.Mark {
	switch {
	case m.of != nil:
		m.Low = min(m.of.lowest(), m.Number)
	case m.Low == 0:
		m.Low = m.Number
	}
	return session.Mark{ID: m.Session, Number: m.Number, Low: m.Low}
}

// Session numbers the commands of one client, so that each takes effect once though it is sent more than
// once. Next gives a command its mark, and InSession passes it to Propose. After ErrIndeterminate, and after
// ErrSessionFull, propose the same command with the same mark again, on any member. Every other outcome ends
// the number: after ErrDropped, as an example, another attempt takes another mark.
//
// A number without an outcome must be proposed again, or given up (End). Members remember what comes after
// it, up to a bound (ErrSessionFull).
//
// Its methods may be called by any number of goroutines.
type Session struct {
	id SessionID

	mu   sync.Mutex
	next uint64
	open map[uint64]bool // numbers without an outcome
	low  uint64          // the lowest of open, or next
}

// ContinueSession returns a session that another process, or another life of this one, has begun. next is the
// number of its next command, at least 1; 0 counts as 1. What has no outcome among the numbers below must be
// proposed again before the first mark of this Session is used: members forget those numbers then.
func ContinueSession(id SessionID, next uint64) *Session {
	next = max(next, 1)
	return &Session{id: id, next: next, low: next, open: map[uint64]bool{}}
}

// NewSession draws a session, for a client that may send the same command more than once. It waits for
// nothing. Members know the session from its first command on, and forget it when it was idle for an hour of
// log time (Machine.Sessions). On a node that was just opened draw it after a first Read: the node may not
// know yet what the time is.
func (n *Node[C, R]) NewSession() *Session { return ContinueSession(n.group.NewSession(), 1) }

// ID returns the id of the session. Its String goes to a client that numbers its commands itself.
func (s *Session) ID() SessionID { return s.id }

// Next returns the mark of the next command.
func (s *Session) Next() SessionMark { return s.NextMany(1) }

// NextMany returns the mark of the next of n commands, for SubmitMany; the others follow. n is at least 1.
func (s *Session) NextMany(n int) SessionMark {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := SessionMark{Session: s.id, Number: s.next, Low: s.low, of: s}
	for range max(n, 1) {
		s.open[s.next] = true
		s.next++
	}
	return m
}

// End says that the outcome of a command does not matter any more. The session does that itself when the
// outcome is known. A command that is proposed after that may be refused, and is never applied twice.
func (s *Session) End(m SessionMark) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, m.Number)
	for s.low < s.next && !s.open[s.low] {
		s.low++
	}
}

// lowest returns the lowest number without an outcome.
func (s *Session) lowest() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.low
}

// end says how a command has ended: with err, or with its result.
func (m SessionMark) end(err error) {
	if m.of != nil && !errors.Is(err, ErrIndeterminate) && !errors.Is(err, ErrSessionFull) {
		m.of.End(m)
	}
}

// endMarks says how a call with options has ended, of which no Pending tells the outcome.
func endMarks(options []ProposeOption, err error) {
	for i := range options {
		if options[i].inSession {
			options[i].mark.end(err)
		}
	}
}

// InSession gives a command its place in a session, and so makes it take effect once, whatever process sends
// it again and on whatever member. A duplicate gets the first result (Machine.Results), or
// ErrAlreadyApplied. Session.Next makes marks; a server makes them of what its client has sent.
func InSession(m SessionMark) ProposeOption { return ProposeOption{inSession: true, mark: m} }
