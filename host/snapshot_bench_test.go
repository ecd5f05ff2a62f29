package host

import (
	"testing"
	"time"

	"github.com/millrace/millrace/host/session"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/raft/raftpb"
)

// BenchmarkCapture is for how long nothing is applied while a snapshot is captured, with a table of sessions
// that is as full as the defaults allow. The machine itself takes a view at no cost.
func BenchmarkCapture(b *testing.B) {
	m := &keeper{}
	s := bareMember(b, m, statemachine.CommandOptions{}, nil).Commands
	index := uint64(0)
	for client := 0; ; client++ {
		id := session.ID{Client: [16]byte{byte(client), byte(client >> 8), byte(client >> 16), 1}}
		for n := range uint64(100) {
			index++
			s.Table().Apply(session.Mark{ID: id, Number: n + 1, Low: 1}, raftpb.Position{Index: index}, 7)
		}
		if _, bytes := s.Table().Sessions(); bytes > 15<<20 {
			break
		}
	}
	var form []byte
	began := time.Now()
	for b.Loop() {
		_, counted := s.Table().Sessions()
		form = s.Table().AppendTo(make([]byte, 0, counted/8))
	}
	b.ReportMetric(float64(time.Since(began).Microseconds())/1000/float64(b.N), "ms/capture")
	b.ReportMetric(float64(len(form))/1e6, "MB")
}
