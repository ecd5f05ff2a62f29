package client

import (
	"bufio"
	"context"
	"errors"
	"net"
	"sync"
)

// Handler carries out one request. text is the leader's address with NotTaken ("" if it is not known), what
// went wrong with Failed and Unknown, and the id of the new session with Done of OpenSession. Any number of
// goroutines call it.
type Handler func(ctx context.Context, r Request) (status Status, text string)

// Server serves the clients of one host.
type Server struct {
	listener net.Listener
	handle   Handler
	ctx      context.Context
	stop     context.CancelFunc
	serving  sync.WaitGroup

	mu   sync.Mutex
	open map[net.Conn]bool // nil: it is closed
}

// Serve listens on a free port of 127.0.0.1.
func Serve(handle Handler) (*Server, error) { return ServeAt("127.0.0.1:0", handle) }

// ServeAt listens on an address.
func ServeAt(addr string, handle Handler) (*Server, error) {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	s := &Server{listener: listener, handle: handle, open: map[net.Conn]bool{}}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.serving.Go(s.accept)
	return s, nil
}

// Addr is where clients connect.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Break breaks all connections, and takes new ones: as a network does that is gone for a moment. Answers
// under way are lost.
func (s *Server) Break() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.open {
		_ = c.Close() // its reader ends
	}
}

// Close breaks all connections, and waits until no handler runs.
func (s *Server) Close() error {
	err := s.listener.Close()
	s.mu.Lock()
	for c := range s.open {
		_ = c.Close() // its reader ends
	}
	s.open = nil
	s.mu.Unlock()
	s.stop()
	s.serving.Wait()
	return err
}

func (s *Server) accept() {
	for {
		c, err := s.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		s.mu.Lock()
		if s.open == nil {
			s.mu.Unlock()
			_ = c.Close()
			return
		}
		s.open[c] = true
		s.mu.Unlock()
		s.serving.Go(func() { s.serve(c) })
	}
}

// serve answers the requests of one connection, each on a goroutine of its own.
func (s *Server) serve(c net.Conn) {
	answers := &conn{tcp: c, out: bufio.NewWriterSize(c, bufferBytes)}
	defer func() {
		_ = c.Close()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.open, c)
	}()
	in := bufio.NewReaderSize(c, bufferBytes)
	for {
		id, body, err := readMessage(in)
		if err != nil {
			return
		}
		r, err := parseRequest(body)
		if err != nil {
			return // the connection ends: what speaks there is no client
		}
		s.serving.Go(func() {
			status, text := s.handle(s.ctx, r)
			answers.write(id, append([]byte{byte(status)}, text...))
		})
	}
}
