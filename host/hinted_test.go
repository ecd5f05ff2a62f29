package host

import (
	"errors"
	"testing"

	"github.com/millrace/millrace/transport"
)

// appendAddress appends where a host is, to a record of addresses.
func appendAddress(b []byte, id, generation uint64, addr string) []byte {
	b = append(appendNumbers(b, id), make([]byte, len(transport.Incarnation{}))...)
	return append(appendNumbers(b, generation, uint64(len(addr))), addr...)
}

// A member that names hosts that do not exist makes this one know a bounded number of them.
func TestInventedHostsAreBounded(t *testing.T) {
	l, _ := openAlone(t, 5)
	l.meet()
	named := uint64(1000)
	var err error
	for range 10 {
		body := []byte{addressesKind}
		for range 100 {
			named++
			body = appendAddress(body, named, 0, "x:1")
		}
		if err = l.Host.control(2, body); err != nil {
			break
		}
	}
	if n := len(l.others()); !errors.Is(err, errTooManyHosts) || n < maxHintedHosts || n > maxHintedHosts+5 {
		t.Errorf("%d hosts are known, and %v", n, err)
	}
	if err := l.SetPeer(2000, "y:1"); err != nil {
		t.Errorf("an operator cannot name one more: %v", err)
	}
}
