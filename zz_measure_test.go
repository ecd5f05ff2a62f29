package millrace

import (
	"runtime"
	"testing"
	"unsafe"

	pb "github.com/millrace/millrace/raft/raftpb"
)

func TestZZMeasure(t *testing.T) {
	b := &inbox{maxProposalBytes: 256 << 20}
	heap := func() uint64 { runtime.GC(); var m runtime.MemStats; runtime.ReadMemStats(&m); return m.HeapAlloc }
	before := heap()
	n := 0
	for ; n < 1_000_000; n++ {
		if b.putProposal(proposal{command: []byte("x"), waiter: newWaiter()}) != nil {
			break
		}
	}
	t.Logf("%d one-byte proposals take %d bytes each; Message %d, Entry %d", n, (heap()-before)/uint64(n), unsafe.Sizeof(pb.Message{}), unsafe.Sizeof(pb.Entry{}))
	m := pb.Message{Type: pb.MsgHeartbeat, From: 2, To: 1, Term: 1}
	t.Log("a heartbeat counts", m.Size())
	m = pb.Message{Type: pb.MsgApp, From: 2, To: 1, Term: 1, Entries: make([]pb.Entry, 1000)}
	t.Log("an append of 1000 empty entries counts", m.Size())
	runtime.KeepAlive(b)
}
