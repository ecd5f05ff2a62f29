package tcp

import (
	"net/netip"
	"sync"
	"time"
)

// handshakeLimit bounds the processor time that strangers cost: a TLS handshake takes about half a
// millisecond, and its signature and key exchange happen before anything is known about the other end. So
// each address may begin handshakes at a rate, with a burst that lets all hosts behind it connect at once in
// all classes; and addresses from which no host was welcome yet share a second rate. A flood from many
// addresses keeps new ones waiting, and not a member at an address where it has been before.
//
// A connection beyond the rate is closed at once. Hosts dial again after a pause (Options.BackoffMax).
type handshakeLimit struct {
	mu        sync.Mutex
	strangers bucket // shared by addresses that are not proven
	addrs     map[string]*addrLimit
}

type addrLimit struct {
	bucket
	proven bool // a host was welcome from there
}

const (
	handshakesPerSecond = 32 // of one address
	handshakeBurst      = 128
	strangersPerSecond  = 128 // of all addresses that are not proven
	strangersBurst      = 512
	// maxLimitedAddrs bounds the memory. If there are more, new ones have only what strangers share.
	maxLimitedAddrs = 1024
)

// bucket holds tokens, which come back with time. The zero bucket is full.
type bucket struct {
	used float64 // tokens that are missing, at the time last
	last time.Time
}

func (b *bucket) refill(perSecond float64, now time.Time) {
	if since := now.Sub(b.last).Seconds(); since > 0 {
		b.used = max(0, b.used-since*perSecond)
	}
	b.last = now
}

// take takes one token, if there is one of burst.
func (b *bucket) take(perSecond, burst float64, now time.Time) bool {
	b.refill(perSecond, now)
	if b.used+1 > burst {
		return false
	}
	b.used++
	return true
}

// allow reports whether addr may begin a handshake now.
func (l *handshakeLimit) allow(addr string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.of(limitKey(addr), now)
	if a != nil && !a.take(handshakesPerSecond, handshakeBurst, now) {
		return false
	}
	return a != nil && a.proven || l.strangers.take(strangersPerSecond, strangersBurst, now)
}

// prove records that a host was welcome from addr.
func (l *handshakeLimit) prove(addr string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a := l.of(limitKey(addr), now); a != nil {
		a.proven = true
	}
}

// of returns the limit of an address, or nil if too many addresses are known. The caller holds mu.
func (l *handshakeLimit) of(key string, now time.Time) *addrLimit {
	if a := l.addrs[key]; a != nil {
		return a
	}
	if l.addrs == nil {
		l.addrs = map[string]*addrLimit{}
	}
	if len(l.addrs) >= maxLimitedAddrs {
		l.forget(now)
	}
	if len(l.addrs) >= maxLimitedAddrs {
		return nil
	}
	a := &addrLimit{bucket: bucket{last: now}}
	l.addrs[key] = a
	return a
}

// forget removes addresses that have all their tokens and are not proven: nothing is lost with them.
func (l *handshakeLimit) forget(now time.Time) {
	for key, a := range l.addrs {
		if a.refill(handshakesPerSecond, now); a.used == 0 && !a.proven {
			delete(l.addrs, key)
		}
	}
}

// limitKey returns what counts as one address: an IPv6 network of 64 bits belongs to one owner.
func limitKey(addr string) string {
	ip, err := netip.ParseAddr(addr)
	if err != nil || ip.Unmap().Is4() {
		return addr
	}
	prefix, err := ip.WithZone("").Prefix(64)
	if err != nil {
		return addr
	}
	return prefix.String()
}
