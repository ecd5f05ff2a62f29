package remote

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// Handler carries out one request. text is the leader's address with NotTaken ("" if it is not known), and
// what went wrong with Failed and Unknown. With Done of OpenSession it is the id of the new session. Any
// number of goroutines call it.
type Handler func(ctx context.Context, r Request) (status Status, text string)

// ClientServer serves the clients of one host.
type ClientServer struct {
	listener net.Listener
	o        ClientServing
	ctx      context.Context
	stop     context.CancelFunc
	serving  sync.WaitGroup
	handled  int // maxHandled

	mu   sync.Mutex
	open map[net.Conn]bool // nil: it is closed
}

// ClientServing says how a server serves.
type ClientServing struct {
	Addr   string
	Handle Handler
	// Wrap turns an accepted connection into the connection to use, such as one with TLS. nil: it is used
	// as it is. With an error and a connection the client is told the error, over that connection.
	Wrap func(context.Context, net.Conn) (net.Conn, error)
	// Large reports whether the answer to a request may be far larger than the request. Such a request is
	// handled alone: no other one of its connection is read before it was answered. nil: there are none.
	Large func(Request) bool
}

const (
	wrapTimeout = 5 * time.Second
	// farewell bounds what a refused client may still send before its connection is closed: a reset could
	// overtake the reason.
	farewellTime  = time.Second
	farewellBytes = 64 << 10
	// maxHandled bounds the requests of one connection that have come and are not answered, each of which
	// counts once, and again for each handledBytes: a client that reads no answers must not keep more and
	// more goroutines and bytes waiting. Further requests wait in its socket.
	maxHandled   = 1 << 16
	handledBytes = 4 << 10
	// acceptPause is between two attempts to accept when that fails, as without free descriptors.
	acceptPause = 20 * time.Millisecond
)

// ServeClients listens on a free port of 127.0.0.1.
func ServeClients(handle Handler) (*ClientServer, error) {
	return ServeClientsAt("127.0.0.1:0", handle)
}

// ServeClientsAt listens on an address.
func ServeClientsAt(addr string, handle Handler) (*ClientServer, error) {
	return ServeClientsAs(ClientServing{Addr: addr, Handle: handle})
}

// ServeClientsAs listens, and serves as o says.
func ServeClientsAs(o ClientServing) (*ClientServer, error) {
	listener, err := net.Listen("tcp", o.Addr)
	if err != nil {
		return nil, err
	}
	s := &ClientServer{listener: listener, o: o, handled: maxHandled, open: map[net.Conn]bool{}}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.serving.Go(s.accept)
	return s, nil
}

// Addr is where clients connect.
func (s *ClientServer) Addr() string { return s.listener.Addr().String() }

// Break breaks all connections, and takes new ones: as a network does that is gone for a moment. Answers
// under way are lost.
func (s *ClientServer) Break() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.open {
		_ = c.Close() // its reader ends
	}
}

// Close breaks all connections, and waits until no handler runs.
func (s *ClientServer) Close() error {
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

func (s *ClientServer) accept() {
	for {
		c, err := s.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			timer := time.NewTimer(acceptPause)
			select {
			case <-timer.C:
			case <-s.ctx.Done():
				timer.Stop()
			}
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
		s.serving.Go(func() {
			defer func() {
				_ = c.Close()
				s.mu.Lock()
				defer s.mu.Unlock()
				delete(s.open, c)
			}()
			if stream, ok := s.wrap(c); ok {
				s.serve(stream)
			}
		})
	}
}

// wrap returns the connection to serve, or tells the client why it is refused.
func (s *ClientServer) wrap(c net.Conn) (net.Conn, bool) {
	if s.o.Wrap == nil {
		return c, true
	}
	ctx, cancel := context.WithTimeout(s.ctx, wrapTimeout)
	defer cancel()
	stream, err := s.o.Wrap(ctx, c)
	if err == nil {
		return stream, true
	}
	if stream != nil {
		_ = stream.SetDeadline(time.Now().Add(farewellTime))
		out := bufio.NewWriter(stream)
		writeMessage(out, refusalID, []byte{byte(Failed)}, []byte(err.Error()))
		if out.Flush() == nil {
			if half, ok := stream.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
				_, _ = io.CopyN(io.Discard, stream, farewellBytes)
			}
		}
	}
	return nil, false
}

// serve answers the requests of one connection, each on a goroutine of its own except for Large ones.
func (s *ClientServer) serve(c net.Conn) {
	answers := &Conn{tcp: c, out: bufio.NewWriterSize(c, bufferBytes)}
	in := bufio.NewReaderSize(c, bufferBytes)
	handled := make(chan struct{}, s.handled)
	for {
		id, body, err := readMessage(in)
		if err != nil {
			return
		}
		r, err := parseRequest(body)
		if err != nil {
			return // the connection ends: what speaks there is no client
		}
		weight := 1 + len(body)/handledBytes
		for range weight {
			handled <- struct{}{}
		}
		answer := func() {
			status, text := s.o.Handle(s.ctx, r)
			answers.write(id, []byte{byte(status)}, []byte(text))
			for range weight {
				<-handled
			}
		}
		if s.o.Large != nil && s.o.Large(r) {
			answer()
		} else {
			s.serving.Go(answer)
		}
	}
}
