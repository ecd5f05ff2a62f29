package host

import (
	"testing"

	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/host/pipeline"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/raft/raftpb"
)

// A status knows of each entry that a state machine gets, before it gets it. So a client that was answered
// finds its entry committed, and Entries yields it.
func TestStatusComesBeforeTheAnswers(t *testing.T) {
	for _, p := range pipeline.All {
		t.Run(p.Name(), func(t *testing.T) {
			l := openTestHost(t, 3, WithPipeline(p))
			l.lead()
			l.machine.fail = func(e statemachine.Entry) error {
				if s := l.group.Status(); s.Committed < e.Index || s.LastIndex < e.Index {
					t.Errorf("entry %d is applied, and the status says committed %d, last %d", e.Index, s.Committed, s.LastIndex)
				}
				return nil
			}
			answered := l.submit("x")
			l.manual.runIdle()
			l.deliver(raftpb.Message{Type: raftpb.MsgAppResp, Term: 1, Index: begun + 1})
			if r, err := poll(t, answered); err != nil || r.Index != begun+1 || len(l.machine.entries) == 0 {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
}

// A status that is read while a turn publishes another one is that of one moment.
func TestStatusIsOfOneMoment(t *testing.T) {
	var p published
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for i := range uint64(100_000) {
			p.Store(diagnosis.Status{Term: i, Leader: i, Applied: i, Committed: i, Durable: i, LastIndex: i})
		}
	}()
	for is := true; is; {
		select {
		case <-ended:
			is = false
		default:
		}
		if s := p.Load(); s != (diagnosis.Status{Term: s.Term, Leader: s.Term, Applied: s.Term, Committed: s.Term, Durable: s.Term, LastIndex: s.Term}) {
			t.Fatalf("%+v is of two moments", s)
		}
	}
}
