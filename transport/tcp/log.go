package tcp

import (
	"log/slog"
	"sync"
	"time"
)

// limitedLog writes at most one line of each topic per second, and adds how many lines it left out. A topic
// is a message about a peer, so two peers that are down do not hide each other. The messages are constants of
// this package and the peers are those of the address book, so the map stays small. Lines about strangers are
// about peer 0.
type limitedLog struct {
	logger *slog.Logger
	mu     sync.Mutex
	topics map[topic]*logged
}

type topic struct {
	peer    uint64
	message string
}

type logged struct {
	next    time.Time
	skipped int
}

// warn writes a line about a peer of the address book, or about strangers (peer 0).
func (l *limitedLog) warn(peer uint64, message string, args ...any) {
	l.report(peer, message, func() {}, args...)
}

// report is warn for what is an event as well: it calls event first, if it writes the line.
func (l *limitedLog) report(peer uint64, message string, event func(), args ...any) {
	skipped, ok := l.admit(topic{peer, message}, time.Now())
	if !ok {
		return
	}
	event()
	if peer != 0 {
		args = append([]any{"peer", peer}, args...)
	}
	if skipped > 0 {
		args = append(args, "left_out", skipped)
	}
	l.logger.Warn(message, args...)
}

func (l *limitedLog) admit(about topic, now time.Time) (skipped int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.topics[about]
	if k == nil {
		if l.topics == nil {
			l.topics = map[topic]*logged{}
		}
		k = &logged{}
		l.topics[about] = k
	}
	if now.Before(k.next) {
		k.skipped++
		return 0, false
	}
	skipped, k.skipped, k.next = k.skipped, 0, now.Add(time.Second)
	return skipped, true
}
