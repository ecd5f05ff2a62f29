package admin

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
)

// Client talks to a running host. It is for one goroutine. After an error of the connection it is of no use.
type Client struct {
	path string
	conn net.Conn
	in   *bufio.Reader
}

// Dial connects to the socket at path. The error says so if it was left by a process that has died.
func Dial(ctx context.Context, path string) (*Client, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("millrace: the admin socket %s: %w", path, err)
	}
	return &Client{path, c, bufio.NewReader(c)}, nil
}

// Close ends the connection. What the host is doing for it is given up.
func (c *Client) Close() error { return c.conn.Close() }

// RemoteError is what the host has said.
type RemoteError struct{ Text string }

// Error implements error.
func (e *RemoteError) Error() string { return "the host says: " + e.Text }

// Status asks for the state of the host's open groups, or of one of them; group 0 is all of them.
func (c *Client) Status(ctx context.Context, group uint64) (s Status, err error) {
	a, err := c.ask(ctx, request{Do: doStatus, Group: group})
	if err == nil && a.Status == nil {
		err = c.unexpected()
	}
	if err != nil {
		return s, err
	}
	return *a.Status, nil
}

// DumpFlight makes the host write what its flight recorder has of a group, or of all if it is 0, to a file.
func (c *Client) DumpFlight(ctx context.Context, group uint64) (f Flight, err error) {
	a, err := c.ask(ctx, request{Do: doFlight, Group: group})
	if err == nil && a.Flight == nil {
		err = c.unexpected()
	}
	if err != nil {
		return f, err
	}
	return *a.Flight, nil
}

// TakeSnapshot makes a group take a snapshot, unless its latest one has everything that the member has
// applied.
func (c *Client) TakeSnapshot(ctx context.Context, group uint64) (Snapshot, error) {
	a, err := c.ask(ctx, request{Do: doTake, Group: group})
	return c.snapshot(a, err)
}

// Export writes an archive of a group to w. It has everything that was acknowledged before; with local, it
// has what this member has applied, also if it reaches no quorum. After an error, what was written is no
// archive.
func (c *Client) Export(ctx context.Context, group uint64, local bool, w io.Writer) (Snapshot, error) {
	stop := c.until(ctx)
	defer stop()
	a, err := c.ask(ctx, request{Do: doExport, Group: group, Local: local})
	if err == nil && !a.Streams {
		err = c.unexpected()
	}
	if err == nil {
		err = c.copy(w)
	}
	if err == nil {
		a, err = c.hear()
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return c.snapshot(a, err)
}

// VerifyObject makes the host read a large object of a group and compare it with its checksums. It takes
// the object after an id, or the first object if the id is empty. The ID of the answer is empty if there is
// none.
func (c *Client) VerifyObject(ctx context.Context, group uint64, after string) (Object, error) {
	a, err := c.ask(ctx, request{Do: doVerify, Group: group, After: after})
	if err == nil && a.Object == nil {
		err = c.unexpected()
	}
	if err != nil {
		return Object{}, err
	}
	return *a.Object, nil
}

func (c *Client) snapshot(a answer, err error) (Snapshot, error) {
	if err == nil && a.Snapshot == nil {
		err = c.unexpected()
	}
	if err != nil {
		return Snapshot{}, err
	}
	return *a.Snapshot, nil
}

// until ends the connection when ctx ends.
func (c *Client) until(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() { _ = c.conn.Close() })
}

// ask sends a request and returns the first line of the answer.
func (c *Client) ask(ctx context.Context, r request) (a answer, err error) {
	defer c.until(ctx)()
	line, err := json.Marshal(r)
	if err == nil {
		_, err = c.conn.Write(append(line, '\n'))
	}
	heard, wrong := c.hear() // also after an error: the host may have said why it does not listen
	refused := (*RemoteError)(nil)
	switch {
	case ctx.Err() != nil:
		return a, context.Cause(ctx)
	case errors.As(wrong, &refused) || err == nil:
		return heard, wrong
	}
	return a, fmt.Errorf("millrace: the admin socket %s: %w", c.path, err)
}

// hear reads a line of the host.
func (c *Client) hear() (a answer, err error) {
	line, err := readLine(c.in)
	if err == io.EOF {
		err = errors.New("the host has ended the connection; its log may say why")
	}
	if err == nil {
		err = json.Unmarshal(line, &a)
	}
	if err != nil {
		return a, fmt.Errorf("millrace: the admin socket %s: %w", c.path, err)
	}
	if a.Error != "" {
		return a, &RemoteError{a.Error}
	}
	return a, nil
}

func (c *Client) unexpected() error {
	return fmt.Errorf("millrace: the admin socket %s: the host has answered something else; is it of a newer version?", c.path)
}

// copy copies a stream to w.
func (c *Client) copy(w io.Writer) error {
	var head [4]byte
	for {
		_, err := io.ReadFull(c.in, head[:])
		n := int64(binary.BigEndian.Uint32(head[:]))
		switch {
		case err != nil:
		case n == 0:
			return nil
		case n > maxChunkBytes:
			return c.unexpected()
		default:
			if _, err = io.CopyN(w, c.in, n); err == nil {
				continue
			}
		}
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return fmt.Errorf("millrace: the admin socket %s: the archive is not whole: %w", c.path, err)
	}
}
