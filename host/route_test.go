package host

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/host/internal/proposals"
	"github.com/millrace/millrace/host/session"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
)

// forwardTransport counts the commands of the forward frames that it takes, and refuses the next ones.
type forwardTransport struct {
	*recordingTransport
	refuses  int
	commands uint64
	longest  int      // of the frames with several commands, in bytes
	frames   []uint64 // the numbers of those that it has taken
	session  session.ID
}

func (f *forwardTransport) SendBytes(_ uint64, _ transport.Kind, body []byte) bool {
	if body[0] != control.Forward {
		return true
	}
	if f.refuses > 0 {
		f.refuses--
		return false
	}
	r, rest, err := proposals.DecodeForward(body)
	f.frames = append(f.frames, r.Frame)
	n := 0
	for ; err == nil && len(rest) > 0; n++ {
		var h session.Header
		h, _, rest, err = proposals.NextCommand(rest)
		f.session = h.Mark.ID
		f.commands++
	}
	if n > 1 {
		f.longest = max(f.longest, len(body))
	}
	if err != nil {
		panic(err)
	}
	return true
}

// followGroup opens a group of commands that host 2 leads.
func followGroup(t *testing.T, out Transport) (*testHost, *Group) {
	t.Helper()
	l := openTestHostWith(t, 3, func(*Config) {}, WithTransport(out))
	g, err := l.OpenGroup(t.Context(), GroupConfig{ID: 2}, Commands(&echoMachine{}, statemachine.CommandOptions{}))
	if err != nil {
		t.Fatal(err)
	}
	l.deliverTo(2, raftpb.Message{Type: raftpb.MsgHeartbeat, From: 2, To: 1, Term: 7})
	l.manual.runIdle()
	if s := g.Status(); s.Leader != 2 {
		t.Fatalf("status %+v, want leader 2", s)
	}
	return l, g
}

// What the transport takes is counted as a try of its call. A body that was refused leaves nothing behind for
// the next one: a try that is not counted could be committed beside another copy of its command, after the
// counted tries have surely failed.
func TestRefusedFrameLeavesNothing(t *testing.T) {
	out := &forwardTransport{recordingTransport: &recordingTransport{}}
	l, g := followGroup(t, out)
	call := func(size int) {
		t.Helper()
		if err := g.Call(newEchoCaller().call(strings.Repeat("x", size))); err != nil {
			t.Fatal(err)
		}
		l.manual.runIdle()
	}
	call(proposals.MaxForwardBytes * 2 / 3)
	call(proposals.MaxForwardBytes * 2 / 3)
	if out.commands != 2 {
		t.Fatalf("%d commands were forwarded, want 2", out.commands)
	}
	out.refuses = 1
	call(1) // it waits when the two are sent again
	out.refuses = 1
	l.deliverTo(2, raftpb.Message{Type: raftpb.MsgHeartbeat, From: 2, To: 1, Term: 8})
	for range 100 {
		l.manual.runIdle()
		if n := g.Metrics().Calls.Forwarded; n != out.commands {
			t.Fatalf("%d commands have left, and %d tries are counted", out.commands, n)
		}
		l.manual.tick()
	}
	if out.commands < 5 || out.refuses > 0 {
		t.Fatalf("%d commands have left, want at least 5", out.commands)
	}
	if out.longest > proposals.MaxForwardBytes+proposals.MaxSizeBytes {
		t.Errorf("a frame of several commands has %d bytes, want at most %d", out.longest, proposals.MaxForwardBytes)
	}
}

// A leader whose group is not founded refuses everything, maybe for long. The calls that wait are not sent to
// it again and again: one frame asks, now and then. When the leader changes, all are sent.
func TestRefusedCallsDoNotKeepOnComing(t *testing.T) {
	out := &forwardTransport{recordingTransport: &recordingTransport{}}
	l, g := followGroup(t, out)
	const calls, ticks = 8, 80
	for range calls {
		if err := g.Call(newEchoCaller().call(strings.Repeat("x", proposals.MaxForwardBytes*2/3))); err != nil {
			t.Fatal(err)
		}
	}
	l.manual.runIdle()
	if len(out.frames) != calls {
		t.Fatalf("%d frames for %d calls", len(out.frames), calls)
	}
	sent := 0
	for tick := range ticks {
		for _, frame := range out.frames {
			(*inbound)(l.Host).Deliver(2, transport.Control, proposals.Refusal{Group: 2, Frame: frame, Why: proposals.NotFounded, Sure: true}.Encode())
		}
		sent, out.frames = sent+len(out.frames), nil
		if tick%ticksPerHeartbeat == 0 {
			l.deliverTo(2, raftpb.Message{Type: raftpb.MsgHeartbeat, From: 2, To: 1, Term: 7})
		}
		l.manual.tick()
		l.manual.runIdle()
	}
	if asks := sent - calls; asks < ticks/(2*ticksPerHeartbeat) || asks > ticks/(2*ticksPerHeartbeat)+4 {
		t.Errorf("%d frames in %d ticks ask whether the leader takes commands now, want about one in two heartbeat intervals", asks, ticks)
	}
	out.frames = nil
	l.deliverTo(2, raftpb.Message{Type: raftpb.MsgHeartbeat, From: 2, To: 1, Term: 8})
	l.manual.runIdle()
	if len(out.frames) != calls {
		t.Errorf("a new leader is sent %d frames, want all %d", len(out.frames), calls)
	}
}
