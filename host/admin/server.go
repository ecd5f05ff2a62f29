package admin

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/repetition"
)

// Host is what a server asks. Its methods are called by several goroutines at once.
type Host interface {
	// Status describes the open groups, or one of them; group 0 is all of them.
	Status(group uint64) (Status, error)
	// TakeSnapshot takes a snapshot of a group.
	TakeSnapshot(ctx context.Context, group uint64) (Snapshot, error)
	// Export writes an archive of a group. Unless local is set, it has everything that was acknowledged
	// before.
	Export(ctx context.Context, group uint64, local bool, w io.Writer) (Snapshot, error)
	// DumpFlight writes what the flight recorder has of a group, or of all if it is 0, to a file of the host.
	DumpFlight(ctx context.Context, group uint64) (Flight, error)
	// VerifyObject compares a large object of a group with its checksums. It takes the object that comes
	// after an id, or the first object if the id is empty.
	VerifyObject(ctx context.Context, group uint64, after string) (Object, error)
	MemberHost
}

// Server serves programs on one socket until Close.
type Server struct {
	host   Host
	path   string
	idle   time.Duration // idleTimeout
	taken  time.Duration // takeTimeout
	listen net.Listener
	logger *slog.Logger
	ctx    context.Context
	cancel context.CancelFunc
	all    sync.WaitGroup

	mu     sync.Mutex
	open   map[net.Conn]bool
	closed bool
}

// Listen makes the socket in dir and serves it. No other process may serve dir: an old socket
// is left from an earlier one, and is replaced. Only the owner of dir can connect, at any time. The logger is
// told when connections cannot be accepted for now.
func Listen(dir string, h Host, logger *slog.Logger) (*Server, error) {
	return listenFor(dir, h, logger, idleTimeout, takeTimeout)
}

func listenFor(dir string, h Host, logger *slog.Logger, idle, taken time.Duration) (*Server, error) {
	dir, err := filepath.Abs(dir) // Close finds the socket also if the working directory is another one then
	if err != nil {
		return nil, fmt.Errorf("millrace: the admin socket in %s: %w", dir, err)
	}
	path := filepath.Join(dir, SocketName)
	l, err := listen(dir, path)
	if err != nil {
		return nil, fmt.Errorf("millrace: the admin socket %s: %w", path, err)
	}
	s := newServer(l, path, h, logger, idle, taken)
	s.all.Go(s.accept)
	return s, nil
}

func newServer(l net.Listener, path string, h Host, logger *slog.Logger, idle, taken time.Duration) *Server {
	s := &Server{host: h, path: path, idle: idle, taken: taken, listen: l, logger: logger, open: map[net.Conn]bool{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// maxSocketPath is the longest path of a socket that every system takes.
const maxSocketPath = 103

// listen makes the socket in a directory that only the owner can enter, gives it its mode, and moves it to
// its place: at no time can another user connect.
func listen(dir, path string) (_ *net.UnixListener, err error) {
	if short := shortest(path); len(short) > maxSocketPath {
		return nil, fmt.Errorf("the path has %d bytes, and a socket's may have %d; use a shorter Config.Dir, or one near the working directory, or no admin socket", len(short), maxSocketPath)
	}
	private := filepath.Join(dir, ".a")
	if err := os.RemoveAll(private); err != nil { // an earlier process was killed in the midst of this
		return nil, err
	}
	if err := os.Mkdir(private, 0o700); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(private)) }()
	made := filepath.Join(private, "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: shortest(made), Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false) // Close removes it under its own name
	if err = os.Chmod(made, 0o600); err == nil {
		err = os.Rename(made, path)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// shortest returns the shorter one of an absolute path and the same as the working directory has it. If the
// working directory changes meanwhile, the socket is elsewhere, and giving it its mode fails.
func shortest(path string) string {
	dir, err := os.Getwd()
	if err != nil {
		return path
	}
	if near, err := filepath.Rel(dir, path); err == nil && len(near) < len(path) {
		return near
	}
	return path
}

// Close removes the socket and ends all connections; what they were doing is given up. It returns when
// nothing of the server runs any more.
func (s *Server) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		s.all.Wait()
		return nil
	}
	s.closed = true
	err := s.listen.Close()
	for c := range s.open {
		_ = c.Close() // its goroutine sees that
	}
	s.mu.Unlock()
	s.cancel()
	s.all.Wait()
	if removed := os.Remove(s.path); !errors.Is(removed, fs.ErrNotExist) {
		err = errors.Join(err, removed)
	}
	return err
}

// acceptPause is the time to the next attempt when no connection can be accepted.
const acceptPause = 100 * time.Millisecond

// accept runs until the listener is closed. A process that has no descriptor left accepts nothing for a
// while; programs wait in the queue of the kernel.
func (s *Server) accept() {
	var gate repetition.Gate
	began := time.Now()
	for {
		c, err := s.listen.Accept()
		switch {
		case err == nil:
			s.admit(conn{c, s.taken})
		case errors.Is(err, net.ErrClosed):
			return
		default:
			if repeats, ok := gate.Admit(time.Since(began)); ok {
				s.logger.Warn("the admin socket cannot accept a connection; it tries again", "error", err, "repeats", repeats)
			}
			select {
			case <-time.After(acceptPause):
			case <-s.ctx.Done():
				return
			}
		}
	}
}

// admit begins to serve a connection, or refuses it.
func (s *Server) admit(c conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		_ = c.Close()
	case len(s.open) >= maxConnections:
		s.all.Go(func() {
			_ = c.tell(answer{Error: fmt.Sprintf("%d programs are connected, and no more are served at a time; try again later", maxConnections)})
			_ = c.Close()
		})
	default:
		s.open[c.Conn] = true
		s.all.Go(func() {
			s.serve(c)
			_ = c.Close()
			s.mu.Lock()
			delete(s.open, c.Conn)
			s.mu.Unlock()
		})
	}
}

// serve answers requests until one is wrong, or the connection ends. Then what is under way for it is given
// up.
func (s *Server) serve(c conn) {
	ctx, gone := context.WithCancel(s.ctx)
	defer gone()
	lines := make(chan []byte)
	var ended error
	s.all.Go(func() {
		defer gone()
		defer close(lines)
		in := bufio.NewReader(c)
		for {
			line, err := readLine(in)
			if ended = err; err != nil {
				return
			}
			select {
			case lines <- line:
			case <-ctx.Done():
				return
			}
		}
	})
	for {
		idle := time.NewTimer(s.idle)
		select {
		case line, ok := <-lines:
			idle.Stop()
			if !ok {
				if ended == errLongLine {
					_ = c.tell(answer{Error: ended.Error()})
				}
				return
			}
			r, err := decodeRequest(line)
			if err != nil {
				_ = c.tell(answer{Error: err.Error()})
				return
			}
			if s.answer(ctx, c, r) != nil {
				return
			}
		case <-idle.C:
			_ = c.tell(answer{Error: fmt.Sprintf("nothing was asked for in %v", s.idle)})
			return
		}
	}
}

// answer answers one request. Its error ends the connection.
func (s *Server) answer(ctx context.Context, c conn, r request) error {
	var a answer
	var err error
	switch r.Do {
	case doStatus:
		var status Status
		if status, err = s.host.Status(r.Group); err == nil {
			a.Status = fit(status)
		}
	case doTake:
		a.Snapshot, err = pointer(s.host.TakeSnapshot(ctx, r.Group))
	case doFlight:
		var f Flight
		if f, err = s.host.DumpFlight(ctx, r.Group); err == nil {
			a.Flight = &f
		}
	case doVerify:
		var of Object
		if of, err = s.host.VerifyObject(ctx, r.Group, r.After); err == nil {
			a.Object = &of
		}
	case doExport:
		if err = c.tell(answer{Streams: true}); err != nil {
			return err
		}
		out := &chunks{to: c}
		buffered := bufio.NewWriterSize(out, maxChunkBytes/4)
		a.Snapshot, err = pointer(s.host.Export(ctx, r.Group, r.Local, buffered))
		_ = buffered.Flush() // its error is that of out
		if out.chunk(nil); out.err != nil {
			return out.err
		}
	default:
		a, err = s.answerMembers(ctx, r)
	}
	if err != nil {
		a = answer{Error: err.Error()}
	}
	return c.tell(a)
}

// fit leaves out as many groups as a line has no room for.
func fit(s Status) *Status {
	for n := min(len(s.Groups), maxStatusGroups); ; n /= 2 {
		cut := s
		cut.Groups, cut.More = s.Groups[:n], len(s.Groups)-n
		if line, err := json.Marshal(answer{Status: &cut}); n == 0 || err == nil && len(line) < maxLineBytes {
			return &cut
		}
	}
}

func pointer(s Snapshot, err error) (*Snapshot, error) {
	if err != nil {
		return nil, err
	}
	return &s, nil
}

// conn is a connection. A write fails if the other end takes nothing for a while.
type conn struct {
	net.Conn
	limit time.Duration
}

// Write implements io.Writer.
func (c conn) Write(b []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(c.limit)); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// tell writes an answer.
func (c conn) tell(a answer) error {
	if len(a.Error) > maxLineBytes/8 { // escaped, a byte takes six
		a.Error = a.Error[:maxLineBytes/8]
	}
	line, err := json.Marshal(a)
	if err == nil {
		_, err = c.Write(append(line, '\n'))
	}
	return err
}

// chunks is a stream. After an error the connection is of no use.
type chunks struct {
	to  conn
	err error
}

// Write implements io.Writer.
func (w *chunks) Write(b []byte) (n int, err error) {
	for len(b) > 0 && w.err == nil {
		k := min(len(b), maxChunkBytes)
		w.chunk(b[:k])
		if b = b[k:]; w.err == nil {
			n += k
		}
	}
	return n, w.err
}

func (w *chunks) chunk(b []byte) {
	if w.err == nil {
		_, w.err = w.to.Write(binary.BigEndian.AppendUint32(nil, uint32(len(b))))
	}
	if w.err == nil && len(b) > 0 {
		_, w.err = w.to.Write(b)
	}
}
