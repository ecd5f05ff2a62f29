package host

import (
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/host/internal/proposals"
	"github.com/millrace/millrace/host/session"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/transport"
)

// A host has no space for more forwarded commands: it refuses them, and proposes none of them.
func TestForwardedCommandsWithoutSpace(t *testing.T) {
	out := &controlTransport{recordingTransport: &recordingTransport{}}
	l := openTestHostWith(t, 3, func(*Config) {}, WithTransport(out))
	l.out = out.recordingTransport
	g, err := l.OpenGroup(t.Context(), GroupConfig{ID: 2}, Commands(&echoMachine{}, statemachine.CommandOptions{}))
	if err != nil {
		t.Fatal(err)
	}
	l.manual.runIdle()
	l.leadGroup(g)
	last := g.Status().LastIndex
	forward := func(frame uint64) {
		body := proposals.AppendForward(nil, proposals.Forward{Group: 2, Term: 1, Frame: frame})
		body = proposals.AppendCommand(body, session.Header{Mark: session.Mark{ID: session.ID{Client: [16]byte{1, 2, 3}, Birth: time.Second}, Number: frame, Low: 1}, HasMark: true}, []byte("x"))
		if err := l.receiveForward(2, transport.Control, body); err != nil {
			t.Fatal(err)
		}
	}
	out.bodies = nil
	for frame := range uint64(maxFrames + 1) {
		forward(frame + 1)
	}
	space := uint64(g.inbox.forwardBytes.Load()) / uint64(session.Room+1+proposals.OverheadBytes)
	l.manual.runIdle()
	if n := g.Status().LastIndex - last; n != space || n == 0 || n > maxFrames {
		t.Errorf("%d commands were proposed, and %d had space", n, space)
	}
	want := proposals.Refusal{Group: 2, Frame: maxFrames + 1, Why: proposals.NoSpace, Sure: true}
	if to := out.told(want.Encode()); !slices.Equal(to, []uint64{2}) {
		t.Errorf("hosts %v are told that the last frame is refused", to)
	}
}
