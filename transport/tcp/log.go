package tcp

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/repetition"
)

// limitedLog writes lines that repeat at growing distances, each with the number of repeats since the line
// before. The messages are constants of this package and the peers are those of the address book, so the maps
// stay small. Lines about strangers are about peer 0.
type limitedLog struct {
	logger *slog.Logger
	now    func() time.Duration // a clock that does not go back

	mu     sync.Mutex
	topics map[topic]*repetition.Gate
	away   map[uint64]*absence
}

// topic is what lines repeat. Two peers that are down do not hide each other, and a program that is no host
// does not hide a host that is not known.
type topic struct {
	peer    uint64
	message string
	named   bool // a stranger has said which host it is
}

// absence is the time in which no connection to a peer stays.
type absence struct{ since, latest time.Duration }

const (
	// mayBeAway is how long a peer may be away until that is a warning: it starts again, or the network has
	// lost a connection. A connection that lasts less does not end the absence.
	mayBeAway = 5 * time.Second
	// forgetAbsence is the time without a failure after which the next one is a new absence. A peer that is
	// down fails more often, unless it is dialed on demand.
	forgetAbsence = time.Minute
)

// warn writes a line about a peer of the address book, or about strangers (peer 0).
func (l *limitedLog) warn(peer uint64, message string, args ...any) {
	l.report(topic{peer: peer, message: message}, slog.LevelWarn, func() {}, args...)
}

// inform is warn for what belongs to a normal day.
func (l *limitedLog) inform(peer uint64, message string, args ...any) {
	l.report(topic{peer: peer, message: message}, slog.LevelInfo, func() {}, args...)
}

// report calls event and writes the line, unless it is a repeat that comes too early.
func (l *limitedLog) report(about topic, level slog.Level, event func(), args ...any) {
	repeats, ok := l.admit(about)
	if !ok {
		return
	}
	event()
	if about.peer != 0 {
		args = append([]any{"peer", about.peer}, args...)
	}
	if repeats > 0 {
		args = append(args, "repeats", repeats)
	}
	l.logger.Log(context.Background(), level, about.message, args...)
}

func (l *limitedLog) admit(about topic) (repeats uint64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	gate := l.topics[about]
	if gate == nil {
		if l.topics == nil {
			l.topics = map[topic]*repetition.Gate{}
		}
		gate = &repetition.Gate{}
		l.topics[about] = gate
	}
	return gate.Admit(l.now())
}

const (
	cannotConnect   = "cannot connect to a peer"
	connectionEnded = "the connection to a peer ended"
)

// unconnected reports that a peer was not reached. A peer that refuses this host, or is refused, needs
// an operator at once; one that does not answer may be back in a moment.
func (l *limitedLog) unconnected(peer uint64, err error, event func(), args ...any) {
	level := l.awayLevel(peer)
	var refused *refusal
	var untrusted *certificateError
	var network *net.OpError
	gone := errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
	if !gone || errors.As(err, &refused) || errors.As(err, &untrusted) {
		level = slog.LevelWarn
	}
	l.report(topic{peer: peer, message: cannotConnect}, level, event, append(args, "error", err)...)
}

// ended reports that a connection to a peer has ended. After one that has lasted, all is new: lines
// that were written before are not repeated.
func (l *limitedLog) ended(peer uint64, lasted time.Duration, args ...any) {
	if lasted >= mayBeAway {
		l.mu.Lock()
		delete(l.away, peer)
		for _, message := range [...]string{cannotConnect, connectionEnded} {
			delete(l.topics, topic{peer: peer, message: message})
		}
		l.mu.Unlock()
	}
	l.report(topic{peer: peer, message: connectionEnded}, l.awayLevel(peer), func() {}, args...)
}

// awayLevel returns the level of a line about a peer that is not reached now.
func (l *limitedLog) awayLevel(peer uint64) slog.Level {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, a := l.now(), l.away[peer]
	if a == nil || now-a.latest > forgetAbsence {
		if l.away == nil {
			l.away = map[uint64]*absence{}
		}
		a = &absence{since: now}
		l.away[peer] = a
	}
	if a.latest = now; now-a.since < mayBeAway {
		return slog.LevelInfo
	}
	return slog.LevelWarn
}

// refusal is the error of a peer that was reached, and does not take this host or is not taken by it.
type refusal struct{ error }

func (r *refusal) Unwrap() error { return r.error }
