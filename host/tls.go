package host

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strings"
	"time"

	"github.com/millrace/millrace/host/internal/containment"
	"github.com/millrace/millrace/transport/cert"
	"github.com/millrace/millrace/transport/tcp"
)

// load returns the credentials.
func (s *TLS) load() (c *cert.Credentials, err error) {
	if s.Source == nil {
		return cert.Files{Cert: s.CertFile, Key: s.KeyFile, CA: s.CAFile}.Load()
	}
	err = containment.Call("Source of Config.TLS", func() (err error) {
		c, err = s.Source()
		return err
	}, nil)
	return c, err
}

func (s *TLS) now() (now time.Time, err error) {
	if s.Now == nil {
		return time.Now(), nil
	}
	err = containment.Call("Now of Config.TLS", func() error { now = s.Now(); return nil }, nil)
	return now, err
}

// validateTLS reports in a sentence why other hosts would refuse the credentials of this one, before anything
// is written and before it listens.
func (c Config) validateTLS() error {
	if c.TLS == nil {
		return nil
	}
	found, err := c.TLS.load()
	if err == nil && found == nil {
		err = errors.New("the Source has returned no credentials")
	}
	var now time.Time
	if err == nil {
		now, err = c.TLS.now()
	}
	if err == nil {
		err = found.Validate(c.ID, now)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("millrace: Config.TLS of host %d: %w; correct the path in Config.TLS, or the rights of the file", c.ID, err)
	case err != nil:
		return fmt.Errorf("millrace: Config.TLS of host %d: %w", c.ID, err)
	}
	return nil
}

// transportTLS returns the options of the transport.
func (c Config) transportTLS(event func(tcp.TLSEvent)) *tcp.TLS {
	if c.TLS == nil {
		return nil
	}
	return &tcp.TLS{Credentials: c.TLS.load, Now: c.TLS.Now, Events: event}
}

// issuer returns the hash of the key of the CA that this host's certificate leads to; zero without TLS. The
// error says why the certificate cannot be read now.
func (h *Host) issuer() (ca [32]byte, err error) {
	if h.config.TLS == nil {
		return ca, nil
	}
	found, err := h.config.TLS.load()
	now, timeless := h.config.TLS.now()
	if err = errors.Join(err, timeless); err != nil {
		return ca, err
	}
	return found.Issuer(now), nil
}

// exposed returns the first of the addresses of hosts, or that to listen on, which is not surely on this
// machine.
func (c Config) exposed() (addr string, is bool) {
	for _, id := range sortedIDs(c.Members) {
		if !onLoopback(c.Members[id]) {
			return c.Members[id], true
		}
	}
	return c.Listen, !onLoopback(c.Listen)
}

func onLoopback(addr string) bool {
	name, _, err := net.SplitHostPort(addr)
	ip := net.ParseIP(name)
	return err == nil && (strings.EqualFold(name, "localhost") || ip != nil && ip.IsLoopback())
}
