package loopback_test

import (
	"testing"

	"github.com/millrace/millrace/transport/loopback"
	"github.com/millrace/millrace/transport/transporttest"
)

func TestContract(t *testing.T) {
	transporttest.Run(t, func(testing.TB) transporttest.Network {
		n := loopback.NewNetwork()
		return func(id uint64, _ string) transporttest.Host { return n.Host(id) }
	})
}
