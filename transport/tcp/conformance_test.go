package tcp_test

import (
	"testing"
	"time"

	"github.com/millrace/millrace/transport/tcp"
	"github.com/millrace/millrace/transport/transporttest"
)

func TestContract(t *testing.T) {
	transporttest.Run(t, func(t testing.TB) transporttest.Network {
		return func(id uint64, addr string) transporttest.Host {
			h, err := tcp.Listen(tcp.Options{ID: id, Listen: addr, BackoffMin: time.Millisecond, BackoffMax: 20 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			return h
		}
	})
}
