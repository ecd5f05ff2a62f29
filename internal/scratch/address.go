package scratch

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

// FreeAddress returns an address of this machine on which no process listens. Its port is below those that
// kernels give to connections, so it stays free while a host is down.
func FreeAddress() (string, error) {
	for range 1000 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 12_000+rand.IntN(20_000)))
		if err == nil {
			return l.Addr().String(), l.Close()
		}
	}
	return "", errors.New("no free port from 12000 to 32000")
}

// Address is FreeAddress for a test, which ends if there is none.
func Address(t testing.TB) string {
	t.Helper()
	address, err := FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	return address
}
