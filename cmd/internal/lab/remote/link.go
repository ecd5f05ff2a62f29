package remote

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/transport/cert"
)

const (
	dialTimeout = 3 * time.Second
	// silence is after how long without any answer a member counts as gone. An fsync may take seconds.
	silence = 15 * time.Second
	redial  = 100 * time.Millisecond // between two attempts
)

// link is the connection to one member. It is made again when it has ended.
type link struct {
	addr    string
	dialing Dialing

	now atomic.Pointer[Conn] // nil: there is none

	mu      sync.Mutex
	ended   bool
	id      uint64 // of the certificate; 0: not known, or plain TCP
	tried   time.Time
	because error // of the last attempt, nil if that was good
}

func newLink(addr string, own *cert.Credentials) *link {
	l := &link{addr: addr, dialing: Dialing{Timeout: dialTimeout, Silence: silence}}
	if own != nil {
		l.dialing.Wrap = DialTrusted(own, func(chain []*x509.Certificate) error { return l.verify(chain, own.Roots) })
	}
	return l
}

// verify checks the certificate of a member, and that a member that comes again is the same. The caller of
// dial holds mu.
func (l *link) verify(chain, roots []*x509.Certificate) error {
	if len(chain) == 0 {
		return fmt.Errorf("%w: there is none", cert.ErrRefused)
	}
	id, err := cert.MemberID(chain[0])
	if err != nil {
		return fmt.Errorf("%w: %s: %w; at this address is no member, or it has the wrong certificate", cert.ErrRefused, cert.Text(chain[0]), err)
	}
	if l.id != 0 {
		id = l.id
	}
	if err := cert.Verify(chain, roots, id, cert.Accepting, time.Now()); err != nil {
		return err
	}
	l.id = id
	return nil
}

// conn returns the connection. Of many goroutines that want it at the same time one dials, and none more than
// once in redial.
func (l *link) conn(ctx context.Context) (*Conn, error) {
	if c := l.now.Load(); c != nil {
		return c, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch c := l.now.Load(); {
	case c != nil:
		return c, nil
	case l.ended:
		return nil, errEnded
	case l.because != nil && time.Since(l.tried) < redial:
		return nil, l.because
	}
	c, err := DialConn(ctx, l.addr, l.dialing)
	if ctx.Err() != nil && err != nil {
		return nil, err // it says nothing of the member
	}
	l.tried, l.because = time.Now(), err
	if err == nil {
		l.now.Store(c)
	}
	return c, explainDial(err)
}

var errEnded = errors.New("the load has ended")

// explainDial says what to do about an error of Dial.
func explainDial(err error) error {
	var plain tls.RecordHeaderError
	if errors.As(err, &plain) {
		return fmt.Errorf("the member speaks plain TCP, and this load TLS; give certificates to both, or to none: %w", err)
	}
	return err
}

// ask sends a request and returns the answer. A connection that has ended is dropped.
func (l *link) ask(ctx context.Context, parts ...[]byte) (Status, []byte, error) {
	c, err := l.conn(ctx)
	if err != nil {
		return Failed, nil, fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	status, text, err := c.Ask(ctx, parts...)
	if err != nil && (errors.Is(err, ErrNotSent) || errors.Is(err, ErrIndeterminate)) {
		l.now.CompareAndSwap(c, nil)
	}
	return status, text, err
}

// answer asks for something that is not a command.
func answer[T any](ctx context.Context, l *link, request []byte, read func([]byte) (T, error)) (T, error) {
	var none T
	status, text, err := l.ask(ctx, request)
	if err != nil {
		return none, err
	}
	if status != Done {
		return none, &declined{string(text)}
	}
	return read(text)
}

// declined is a member's answer that it cannot do something.
type declined struct{ why string }

func (d *declined) Error() string { return d.why }

// hello asks for what the member says of itself. Its errors are for the user that has given the address.
func (l *link) hello(ctx context.Context) (h Hello, err error) {
	if _, err := l.conn(ctx); err != nil {
		return h, err
	}
	h, err = answer(ctx, l, MemberRequest(KindHello, 0), DecodeAnswer[Hello])
	var refusal *Refusal
	switch {
	case errors.As(err, &refusal):
		return h, refusal
	case errors.Is(err, ErrIndeterminate), errors.Is(err, ErrNotSent):
		if l.dialing.Wrap == nil {
			return h, errors.New("it closes connections without an answer: it speaks TLS, or loads are not served at this address; give this load certificates, or the address that the member listens on for loads")
		}
		return h, errors.New("it closes connections without an answer: loads are not served at this address; give the one that the member listens on for loads")
	case err != nil:
		return h, err
	case h.Protocol != Protocol:
		return h, unfit("it speaks version %d of the protocol between loads and members, and this load version %d: run the same program everywhere", h.Protocol, Protocol)
	}
	if id := l.named(); id != 0 && id != h.ID {
		return h, unfit("it says that it is member %d, and its certificate names member %d", h.ID, id)
	}
	return h, nil
}

// named returns the id that the member's certificate names, or 0.
func (l *link) named() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.id
}

// errUnfit is wrapped by errors of a member that answers, and with which this load can never work.
var errUnfit = errors.New("it is no member for this load")

func unfit(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errUnfit}, args...)...)
}

func (l *link) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	if c := l.now.Swap(nil); c != nil {
		c.Close()
	}
}
