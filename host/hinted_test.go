package host

import (
	"errors"
	"testing"

	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/host/internal/identity"
	"github.com/millrace/millrace/host/internal/peers"
	"github.com/millrace/millrace/transport"
)

// appendAddress appends where a host is, to a record of addresses.
func appendAddress(b []byte, id, generation uint64, addr string) []byte {
	b = append(control.AppendNumbers(b, id), make([]byte, len(transport.Incarnation{}))...)
	return append(control.AppendNumbers(b, generation, uint64(len(addr))), addr...)
}

// A member that names hosts that do not exist makes this one know a bounded number of them.
func TestInventedHostsAreBounded(t *testing.T) {
	l, _ := openAlone(t, 5)
	l.meet()
	named := uint64(1000)
	var err error
	for range 10 {
		body := []byte{control.Addresses}
		for range 100 {
			named++
			body = appendAddress(body, named, 0, "x:1")
		}
		if err = l.Host.control(2, transport.Control, body); err != nil {
			break
		}
	}
	if n := len(l.others()); !errors.Is(err, identity.ErrTooManyHosts) || n < peers.MaxHinted || n > peers.MaxHinted+5 {
		t.Errorf("%d hosts are known, and %v", n, err)
	}
	if err := l.SetPeer(2000, "y:1"); err != nil {
		t.Errorf("an operator cannot name one more: %v", err)
	}
}

// An address that an operator has given stays the first to be tried until the host itself says two different
// ones: then it has moved.
func TestAHostThatHasMovedIsLookedForWhereItSaidLast(t *testing.T) {
	l, _ := openAlone(t, 3)
	says := func(generation uint64, addr string) peers.Location {
		t.Helper()
		i := incarnationOf(9)
		body := append(control.AppendNumbers([]byte{control.Addresses}, 9), i[:]...)
		body = append(control.AppendNumbers(body, generation, uint64(len(addr))), addr...)
		if err := l.Host.control(2, transport.Control, body); err != nil {
			t.Fatal(err)
		}
		return l.network.peers.Location(9)
	}
	if err := l.SetPeer(9, "given:1"); err != nil {
		t.Fatal(err)
	}
	if at := says(1, "said:1"); at.Addr() != "given:1" || at.Other() != "said:1" {
		t.Errorf("it has said one address, and is looked for at %q, then %q", at.Addr(), at.Other())
	}
	if at := says(2, "said:1"); at.Addr() != "given:1" {
		t.Errorf("it has said the same again, and is looked for at %q", at.Addr())
	}
	if at := says(3, "said:2"); at.Addr() != "said:2" || at.Other() != "given:1" {
		t.Errorf("it has moved, and is looked for at %q, then %q", at.Addr(), at.Other())
	}
}
