package host

import "github.com/millrace/millrace/internal/lock"

// signal wakes any number of goroutines when something has changed.
type signal struct {
	mu lock.Mutex
	ch chan struct{}
}

// wait returns a channel that the next call of notify closes.
func (s *signal) wait() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch == nil {
		s.ch = make(chan struct{})
	}
	return s.ch
}

func (s *signal) notify() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch != nil {
		close(s.ch)
		s.ch = nil
	}
}
