package host

import (
	"testing"

	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/host/internal/pulse"
	"github.com/millrace/millrace/host/internal/reads"
	"github.com/millrace/millrace/transport"
)

// questionsTransport records the questions of a follower that reads.
type questionsTransport struct {
	*recordingTransport
	asked []reads.Record
}

func (q *questionsTransport) SendBytes(to uint64, kind transport.Kind, body []byte) bool {
	if kind == transport.Control && body[0] == control.ReadQuestion {
		r, _, err := reads.DecodeRecord(body)
		if err != nil {
			panic(err)
		}
		r.From = to
		q.asked = append(q.asked, r)
	}
	return true
}

// answer passes an answer of host 2.
func (p *pulseHost) answer(r reads.Record) {
	(*inbound)(p.Host).Deliver(2, transport.Control, r.Answer())
	p.manual.runIdle()
}

// A follower that sleeps asks its leader once in a heartbeat interval until it is answered. It takes the
// answer to any of its questions, for the reads that had begun when it was asked. It takes no answer to
// another life, or to a question that it never asked.
func TestFollowerAsksItsLeader(t *testing.T) {
	p := &pulseHost{sent: map[uint64]pulse.Record{}}
	out := &questionsTransport{recordingTransport: &recordingTransport{}}
	p.testHost = openTestHostWith(t, 3, func(*Config) {}, WithTransport(out))
	p.out = out.recordingTransport
	p.followIn(3)
	p.cover(1, 3)
	beats := func(n int) {
		for range n {
			for range ticksPerHeartbeat {
				p.manual.tick()
			}
			p.pulse(2, pulse.Record{Pulses: true, Life: 5, Version: 1})
		}
	}
	if beats(20); len(out.asked) > 0 {
		t.Fatalf("asks %+v, and nothing reads", out.asked)
	}
	var first, second Read
	p.group.StartRead(&first, 0)
	p.manual.runIdle()
	if len(out.asked) != 1 || out.asked[0].From != 2 {
		t.Fatalf("asks %+v, want one question to host 2", out.asked)
	}
	if beats(10); len(out.asked) < 10 || len(out.asked) > 12 {
		t.Fatalf("asks %d questions in 10 heartbeat intervals without an answer", len(out.asked))
	}
	one, last := out.asked[0], out.asked[len(out.asked)-1]
	p.group.StartRead(&second, 0)
	p.manual.runIdle()
	for _, wrong := range []reads.Record{
		{Group: one.Group, Life: one.Life + 1, Number: one.Number},
		{Group: one.Group, Life: one.Life, Number: last.Number + 10},
		{Group: one.Group + 1, Life: one.Life, Number: one.Number},
	} {
		p.answer(wrong)
	}
	if _, done, _ := first.Poll(); done {
		t.Fatal("the read is done by an answer that is not for it")
	}
	p.answer(one)
	if at, done, err := first.Poll(); !done || err != nil {
		t.Fatalf("the first question is answered: %+v, %t, %v", at, done, err)
	}
	p.answer(last)
	if _, done, _ := second.Poll(); done {
		t.Fatal("a read is done by the answer to a question that was asked before it began")
	}
	p.manual.runIdle()
	p.answer(out.asked[len(out.asked)-1])
	if _, done, err := second.Poll(); !done || err != nil {
		t.Fatalf("the second read: %t, %v", done, err)
	}
	asked := len(out.asked)
	if beats(10); len(out.asked) > asked {
		t.Errorf("asks %d more questions, and nothing reads", len(out.asked)-asked)
	}
}

// What a host says that is no member of the group answers no read: an index that is never reached would hang
// all bounded reads from then on.
func TestAnswersOfStrangersAreDropped(t *testing.T) {
	l := openTestHost(t, 3)
	g, err := l.OpenGroup(t.Context(), GroupConfig{ID: 2, Members: []uint64{1, 2}}, &commands{})
	if err != nil {
		t.Fatal(err)
	}
	r := reads.Record{Group: 2, Life: l.life(), Number: 1, Index: 1 << 60}
	for _, body := range [][]byte{r.Question(), r.Answer()} {
		for _, from := range []uint64{3, 2} {
			if err := l.receiveRead(from, body); err != nil {
				t.Fatal(err)
			}
			if taken := g.reads.queue.HasRecords(); taken != (from == 2) {
				t.Errorf("a turn gets what host %d has sent: %t", from, taken)
			}
		}
		l.manual.runIdle()
	}
}
