package host

import (
	"slices"
	"testing"

	"github.com/millrace/millrace/host/session"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/transport"
)

// A host that has forwarded commands is told the commit index as soon as it covers one of them, once for
// each advance, and not when nothing of the host waits. Where the log was cut, the commands that took the
// place count.
func TestForwardersAreToldWhatTheyWaitFor(t *testing.T) {
	var fs forwarders
	told := func(commit uint64, want ...uint64) {
		t.Helper()
		var have []uint64
		fs.due(commit, func(host uint64) { have = append(have, host) })
		if !slices.Equal(have, want) {
			t.Errorf("commit index %d: told %v, want %v", commit, have, want)
		}
	}
	told(100)
	fs.note(2, 10, 12)
	fs.note(3, 13, 13)
	told(9)
	told(11, 2)
	told(11)
	told(12, 2)
	told(13, 3)
	told(20)
	fs.note(2, 21, 21)
	told(20)
	fs.note(2, 22, 25)
	told(21, 2)
	fs.note(2, 22, 22) // the log was cut at 22
	told(22, 2)
	told(25)
	fs.note(2, 30, 40)
	fs.note(2, 28, 28) // the log was cut at 28
	told(28, 2)
	told(40)
}

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
		body := appendForward(nil, forwardRecord{group: 2, term: 1, frame: frame})
		body = appendForwarded(body, session.Header{Mark: someMark(frame, 1), HasMark: true}, []byte("x"))
		if err := l.receivedForward(2, transport.Control, body); err != nil {
			t.Fatal(err)
		}
	}
	out.bodies = nil
	for frame := range uint64(maxFrames + 1) {
		forward(frame + 1)
	}
	space := uint64(g.inbox.forwardBytes) / uint64(session.Room+1+overheadBytes)
	l.manual.runIdle()
	if n := g.Status().LastIndex - last; n != space || n == 0 || n > maxFrames {
		t.Errorf("%d commands were proposed, and %d had space", n, space)
	}
	want := forwardRefusal{group: 2, frame: maxFrames + 1, why: refusesOverload, sure: true}
	if to := out.told(want.encode()); !slices.Equal(to, []uint64{2}) {
		t.Errorf("hosts %v are told that the last frame is refused", to)
	}
}
