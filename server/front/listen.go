package front

import (
	"context"
	"crypto/tls"
	"net"
	"net/url"
	"os"
	"strings"
	"syscall"
)

// listen opens the listener of a URL. A Unix socket that a dead process has left is removed.
func listen(u *url.URL, reusePort bool) (net.Listener, error) {
	if strings.HasPrefix(u.Scheme, "unix") {
		path := u.Host + u.Path
		if c, err := net.Dial("unix", path); err == nil {
			_ = c.Close() // another process serves it: Listen says so
		} else if i, err := os.Lstat(path); err == nil && i.Mode()&os.ModeSocket != 0 {
			_ = os.Remove(path)
		}
		return net.Listen("unix", path)
	}
	var lc net.ListenConfig
	if reusePort {
		lc.Control = func(_, _ string, c syscall.RawConn) (err error) {
			if controlled := c.Control(func(fd uintptr) { err = setReusePort(fd) }); controlled != nil {
				return controlled
			}
			return err
		}
	}
	return lc.Listen(context.Background(), "tcp", u.Host)
}

// tlsListener is a listener for HTTP only, whose handshakes net/http makes.
type tlsListener struct {
	net.Listener
	tls *reloader
}

func (l tlsListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	t := l.tls.config()
	t.NextProtos = []string{"http/1.1"}
	return tls.Server(c, t), nil
}
