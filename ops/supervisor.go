package ops

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"time"
)

// supervisor is systemd, or whatever else listens at NOTIFY_SOCKET (sd_notify(3)). It gets READY=1 when the
// process serves, STOPPING=1 when it begins to end, and WATCHDOG=1 while the node works, if the unit has
// WatchdogSec. Without NOTIFY_SOCKET nothing is sent.
//
// READY=1 does not wait for a leader: the first of three members would otherwise not be started until another
// one is. /readyz waits.
type supervisor struct {
	mu       sync.Mutex
	conn     net.Conn      // nil: there is none
	interval time.Duration // of WATCHDOG=1; 0: it is not wanted
}

// writeTimeout bounds a message to the supervisor.
const writeTimeout = time.Second

// dialSupervisor reads the environment that systemd gives.
func dialSupervisor(getenv func(string) string) (*supervisor, error) {
	s := &supervisor{}
	socket := getenv("NOTIFY_SOCKET")
	if socket == "" {
		return s, nil
	}
	if socket[0] != '/' && socket[0] != '@' {
		return s, fmt.Errorf("ops: NOTIFY_SOCKET is %.80q, want the path of a Unix socket, or @ and the name of an abstract one", socket)
	}
	conn, err := net.Dial("unixgram", socket)
	if err != nil {
		return s, fmt.Errorf("ops: NOTIFY_SOCKET: %w", err)
	}
	s.conn = conn
	if pid := getenv("WATCHDOG_PID"); pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return s, nil // it watches another process
	}
	text := getenv("WATCHDOG_USEC")
	if text == "" {
		return s, nil
	}
	micros, err := strconv.ParseInt(text, 10, 64)
	if err != nil || micros < 2000 || micros > int64(24*time.Hour/time.Microsecond) {
		return s, fmt.Errorf("ops: WATCHDOG_USEC is %.40q, want microseconds from 2000 to a day", text)
	}
	s.interval = time.Duration(micros) * time.Microsecond / 2 // as sd_watchdog_enabled(3) recommends
	return s, nil
}

func (s *supervisor) tell(state string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == nil {
		return nil
	}
	if err := s.conn.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return fmt.Errorf("ops: tell the supervisor %s: %w", state, err)
	}
	if _, err := s.conn.Write([]byte(state)); err != nil {
		return fmt.Errorf("ops: tell the supervisor %s: %w", state, err)
	}
	return nil
}

// watch tells that the node works while it does, until ctx ends. A message that is lost is told again by the
// next one, in time.
func (s *supervisor) watch(ctx context.Context, works func() bool) {
	if s.interval == 0 {
		return
	}
	ticker := time.NewTicker(s.interval)
	defer ticker.Stop()
	for {
		if works() {
			_ = s.tell("WATCHDOG=1")
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (s *supervisor) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == nil {
		return nil
	}
	err := s.conn.Close()
	s.conn = nil
	return err
}
