package apply

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/internal/stopwatch"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs/crashfs"
)

// BenchmarkRound is a round of the apply lane: it reads a range of the log from memory, calls the machine,
// and answers the group. Compare with another commit in turn:
//
//	go test ./host/internal/apply -run '^$' -bench Round -benchtime 5000x -count 6
func BenchmarkRound(b *testing.B) {
	for _, n := range []int{1, 100} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := &steadyGroup{script: script{bench: newBench(1)}}
			s.queue = New(s, Settings{
				Group: 7, Self: 1, Machine: steadyMachine{}, Lanes: &s.Lanes, Log: (*scriptLog)(&s.script), FS: crashfs.New(), Dir: "/group",
				Ticks: func() int64 { return 0 }, Logger: slog.New(slog.DiscardHandler), Retry: func(func(), error) {},
			})
			lane := s.All()[0]
			data := make([]byte, 1<<10)
			var w stopwatch.Watch
			round := func() {
				for lane.RunOnce() {
				}
			}
			for i := range b.N {
				for range n {
					s.log = append(s.log, raftpb.Entry{Term: 1, Index: uint64(len(s.log)) + 1, Data: data})
				}
				first, last := uint64(i*n), uint64(i*n+n)
				s.queue.Hand(raftpb.Message{Type: raftpb.MsgStorageApply, Index: first, Commit: last, Responses: []raftpb.Message{{Type: raftpb.MsgStorageApplyResp, Index: last}}})
				w.Time(round)
				if s.through != last {
					b.Fatalf("applied through %d, want %d", s.through, last)
				}
			}
			w.Report(b, "round")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// steadyGroup is a script that keeps no answers.
type steadyGroup struct {
	script
	through uint64
}

func (s *steadyGroup) Done(through uint64, _ []raftpb.Message) { s.through = through }

type steadyMachine struct{}

func (steadyMachine) Apply([]statemachine.Entry) error { return nil }
