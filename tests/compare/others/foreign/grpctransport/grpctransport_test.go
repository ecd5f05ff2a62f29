package grpctransport

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
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

// refusing refuses every directory, and refused is told so.
type refusing struct{}

func (refusing) Receive(uint64, []transport.Envelope)   {}
func (refusing) Deliver(uint64, transport.Kind, []byte) {}
func (refusing) Unreachable(uint64)                     {}
func (refusing) Introduce() transport.Introduction      { return transport.Introduction{} }
func (refusing) Admit(transport.Introduction, string) error {
	return &transport.DirectoryRefused{Why: "another directory"}
}

type refused struct {
	refusing
	by chan uint64
}

func (r refused) RefusedBy(by uint64, why string) {
	if why == "another directory" {
		select {
		case r.by <- by:
		default:
		}
	}
}

// A host whose directory is refused is told so, and by whom.
func TestRefusedDirectoryIsTold(t *testing.T) {
	var hosts [2]*Transport
	for i := range hosts {
		h, err := listen(uint64(i+1), "")
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		hosts[i] = h
	}
	hosts[0].SetPeer(2, hosts[1].Addr())
	hosts[1].SetPeer(1, hosts[0].Addr())
	r := refused{by: make(chan uint64, 1)}
	hosts[1].Start(refusing{})
	hosts[0].Start(r)
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for late := time.After(20 * time.Second); ; {
		hosts[0].Send(2, []transport.Envelope{{Group: 1, Message: raftpb.Message{From: 1, To: 2}}})
		select {
		case by := <-r.by:
			if by != 2 {
				t.Errorf("refused by host %d, want 2", by)
			}
			return
		case <-again.C:
		case <-late:
			t.Fatal("the host was not told")
		}
	}
}
