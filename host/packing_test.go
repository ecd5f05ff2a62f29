package host

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/host/internal/proposals"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/session"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/object"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
)

// described says what the log has behind an index: the sizes of the commands of each entry.
func (l *testHost) described(t *testing.T, after uint64) (text string) {
	t.Helper()
	l.manual.runIdle()
	entries, err := l.group.Log(after+1, l.last()+1, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	for i := range entries {
		text += fmt.Sprintf("%v:", entries[i].Type)
		for _, command := range entries[i].Commands() {
			text += fmt.Sprintf(" %d", len(command))
		}
		text += "; "
	}
	return text
}

// The commands of a turn are one entry while every member has said that it reads such entries, and entries of
// their own otherwise. A large one stays alone. Each client gets the place of its command.
func TestOneTurnIsOneEntry(t *testing.T) {
	out := &bodyTransport{}
	l := openTestHostWith(t, 3, func(c *Config) { c.SingleEntries, c.MemoryBytes = false, 64<<20 }, WithTransport(out))
	defer func() { _ = l.Close(over()) }()
	l.group.config.MaxCommandBytes = 1 << 20
	l.lead()
	put := func(want string) (all []Pending) {
		t.Helper()
		after := l.last()
		for _, n := range []int{1, 2, largeForTest, 3, 4} {
			p, err := l.group.Submit(bytes.Repeat([]byte("x"), n))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, p)
		}
		if have := l.described(t, after); have != want {
			t.Errorf("the log has %q, want %q", have, want)
		}
		return all
	}
	const single = "EntryNormal: 1; EntryNormal: 2; EntryNormal: 65536; EntryNormal: 3; EntryNormal: 4; "
	put(single) // no member has said anything
	said := l.config.settings().Encode()
	l.control(2, said)
	put(single)
	l.control(3, said)
	all := put("17: 1 2; EntryNormal: 65536; 17: 3 4; ")
	last := l.last()
	l.deliver(raftpb.Message{Type: raftpb.MsgAppResp, Term: l.group.core.node.BasicStatus().Term, Index: last})
	l.manual.runIdle()
	for i, want := range []raftpb.Position{{Index: last - 2}, {Index: last - 2, Pos: 1}, {Index: last - 1}, {Index: last}, {Index: last, Pos: 1}} {
		if r, done, err := all[i].Poll(); !done || err != nil || (outcome.Position{Index: r.Index, Pos: r.Pos}) != want {
			t.Errorf("command %d: %+v, %t, %v; want %v", i, r, done, err, want)
		}
	}
	l.comesInAnotherLife(t, 2)
	put(single) // it may be of an earlier version now
	silent := l.config
	silent.SingleEntries = true
	l.control(2, silent.settings().Encode())
	put(single)
	if n := out.count(2, control.Settings); n < 1 {
		t.Errorf("host 2 is told %d times how this one is set", n)
	}
}

// A host that is met and has not said how it is set is asked in the next heartbeat interval, and not when it
// has said it. One that does not answer is asked rarely after a while.
func TestSettingsAreAskedForSoon(t *testing.T) {
	out := &bodyTransport{}
	l := openTestHostWith(t, 3, func(c *Config) { c.SingleEntries = false }, WithTransport(out))
	defer func() { _ = l.Close(over()) }()
	l.lead()
	asks := func(id uint64) (n int) {
		for _, body := range out.bodies {
			if body[0] == byte('0'+id) && body[1] == control.Greeting && body[2]&greetsSet != 0 {
				n++
			}
		}
		return n
	}
	l.pass(ticksPerHeartbeat)
	if asks(2) != 1 || asks(3) != 1 {
		t.Fatalf("hosts 2 and 3 were asked %d and %d times in a heartbeat interval, want 1 each", asks(2), asks(3))
	}
	l.control(2, l.config.settings().Encode())
	two := 2 * l.config.electionTicks()
	l.hearFor(3, 2*two)
	had := asks(3)
	if asks(2) != 1 || had < two/ticksPerHeartbeat-1 {
		t.Errorf("host 2, which has answered, was asked %d times, want 1, and host 3 %d times, want one for each interval of two election timeouts", asks(2), had)
	}
	l.hearFor(3, 4*two)
	if n := asks(3) - had; n < 3 || n > 5 {
		t.Errorf("host 3 was asked %d times in eight election timeouts, want 4", n)
	}
}

// hearFor lets ticks pass in which a host is heard.
func (l *testHost) hearFor(id uint64, ticks int) {
	for range ticks {
		(*inbound)(l.Host).Receive(id, nil)
		l.pass(1)
	}
}

const largeForTest = 64 << 10

// The commands that one frame forwards share entries, too. Those about objects, and large ones, stay alone.
// And none share while a member has not said that it reads such entries.
func TestForwardedCommandsShareEntries(t *testing.T) {
	out := &bodyTransport{}
	l := openTestHostWith(t, 3, func(c *Config) { c.SingleEntries, c.MemoryBytes = false, 64<<20 }, WithTransport(out))
	defer func() { _ = l.Close(over()) }()
	plain, names := object.AppendHead(nil, nil), object.AppendHead(nil, []object.ID{{1}})
	number := uint64(0)
	// forward hands in a frame, and returns how many commands each new entry has.
	forward := func(commands ...[]byte) (counts []int) {
		t.Helper()
		number++
		body := proposals.AppendForward(nil, proposals.Forward{Group: l.group.id, Term: 1, Frame: number})
		for i, command := range commands {
			m := session.Mark{ID: session.ID{Client: [16]byte{1}, Birth: time.Second}, Number: 10*number + uint64(i), Low: 1}
			body = proposals.AppendCommand(body, session.Header{Mark: m, HasMark: true}, command)
		}
		after := l.last()
		if err := l.receiveForward(2, transport.Control, body); err != nil {
			t.Fatal(err)
		}
		l.manual.runIdle()
		entries, err := l.group.Log(after+1, l.last()+1, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		for i := range entries {
			counts = append(counts, 0)
			for range entries[i].Commands() {
				counts[i]++
			}
		}
		return counts
	}
	said := l.config.settings().Encode()
	for id, c := range map[uint64]struct {
		options statemachine.CommandOptions
		want    []int
	}{
		2: {statemachine.CommandOptions{}, []int{2, 1, 3}},
		3: {statemachine.CommandOptions{Objects: &statemachine.ObjectOptions{}}, []int{2, 1, 1, 2}},
	} {
		g, err := l.OpenGroup(t.Context(), GroupConfig{ID: id, MaxCommandBytes: 1 << 20}, Commands(&echoMachine{}, c.options))
		if err != nil {
			t.Fatal(err)
		}
		l.group = g
		l.manual.runIdle()
		l.leadGroup(g)
		commands := [][]byte{plain, plain, append([]byte{0}, make([]byte, largeForTest)...), names, plain, plain}
		l.control(2, said)
		l.control(3, said)
		if have := forward(commands...); !slices.Equal(have, c.want) {
			t.Errorf("group %d: entries with %v commands, want %v", id, have, c.want)
		}
		silent := l.config
		silent.SingleEntries = true
		l.control(2, silent.settings().Encode())
		if have := forward(commands...); len(have) != len(commands) {
			t.Errorf("group %d: entries with %v commands, and a member has not said that it reads such entries", id, have)
		}
	}
}
