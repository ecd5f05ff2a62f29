package grpctransport

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/transport/transporttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestContract(t *testing.T) {
	transporttest.Run(t, func(t testing.TB) transporttest.Network {
		return func(id uint64, addr string) transporttest.Host {
			h, err := listen(id, addr)
			if err != nil {
				t.Fatal(err)
			}
			return h
		}
	})
}
