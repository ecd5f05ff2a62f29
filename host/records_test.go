package host

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/internal/leadership"
	"github.com/millrace/millrace/host/internal/members"
	"github.com/millrace/millrace/host/internal/plans"
	"github.com/millrace/millrace/host/internal/pulse"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
)

// controlTransport is a recordingTransport that also records control bodies.
type controlTransport struct {
	*recordingTransport
	bodies []controlBody
}

type controlBody struct {
	to   uint64
	body []byte
}

func (c *controlTransport) SendBytes(to uint64, kind transport.Kind, body []byte) bool {
	if kind == transport.Control {
		c.bodies = append(c.bodies, controlBody{to, slices.Clone(body)})
	}
	return true
}

// told returns the hosts that were sent a body, since the last call, in ascending order.
func (c *controlTransport) told(body []byte) (ids []uint64) {
	for _, b := range c.bodies {
		if slices.Equal(b.body, body) && !slices.Contains(ids, b.to) {
			ids = append(ids, b.to)
		}
	}
	c.bodies = nil
	slices.Sort(ids)
	return ids
}

// openAlone opens host 1 of a number of hosts, which has met none of the others.
func openAlone(t *testing.T, n int, options ...Option) (*testHost, *controlTransport) {
	t.Helper()
	c := &controlTransport{recordingTransport: &recordingTransport{}}
	l := openTestHost(t, n, append(options, WithTransport(c))...)
	l.out = c.recordingTransport
	l.reopen()
	for _, p := range l.network.handshakes.All() {
		p.Met.Store(false)
	}
	l.out.take(0)
	c.bodies = nil
	return l, c
}

// reopen closes the group and opens it again.
func (l *testHost) reopen() {
	l.t.Helper()
	l.reopenAs(GroupConfig{ID: theGroup, MaxCommandBytes: 1 << 10})
	l.manual.runIdle()
}

// reopenAs closes the group and opens it again with another configuration. Its first turn has not run.
func (l *testHost) reopenAs(c GroupConfig) {
	l.t.Helper()
	if err := l.group.Close(over()); err != nil && !errors.Is(err, context.Canceled) {
		l.t.Fatal(err)
	}
	l.manual.runIdle()
	g, err := l.OpenGroup(l.t.Context(), c, l.machine)
	if err != nil {
		l.t.Fatal(err)
	}
	l.group = g
}

func foundedAt(index, term uint64) raftpb.Entry {
	return raftpb.Entry{Index: index, Term: term, Type: raftpb.EntryHost, Data: entry.EncodeFounded()}
}

// control passes a control body of a host.
func (l *testHost) control(from uint64, body []byte) {
	(*inbound)(l.Host).Deliver(from, transport.Control, body)
	l.manual.runIdle()
}

func containsEach(text string, words []string) bool {
	return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) })
}

// hastyTransport delivers a pulse before Start returns, as a real one may.
type hastyTransport struct{ *recordingTransport }

func (h hastyTransport) Start(r transport.Receiver) {
	r.Deliver(2, transport.Pulse, (&pulse.Record{Life: 1, Version: 1, Pulses: true}).Append(nil))
	r.Receive(2, nil)
}

// What arrives while a host opens finds its clock.
func TestPulseBeforeTheFirstTick(t *testing.T) {
	l := openTestHost(t, 3, WithTransport(hastyTransport{&recordingTransport{}}))
	if !l.isThere(2) {
		t.Error("host 2 was heard, and is not there")
	}
}

// No control record stops a group that is founded, or moves more than what it is for.
func FuzzControl(f *testing.F) {
	f.Add([]byte{control.Greeting, greetsAsk | greetsAll}, uint8(2))
	f.Add(members.Refusal{Group: theGroup, Bound: transport.Incarnation{1}}.Encode(), uint8(2))
	f.Add(members.EncodeStranger(theGroup), uint8(3))
	f.Add(leadership.AppliedRecord{Group: theGroup, Term: 1, Number: 7}.Encode(control.AppliedQuestion), uint8(2))
	f.Add(leadership.AppliedRecord{Group: theGroup, Term: 1, Number: 7, Applied: 1 << 60}.Encode(control.AppliedAnswer), uint8(3))
	f.Add([]byte{}, uint8(2))
	f.Add(plans.Request{Data: make([]byte, 17)}.Encode(theGroup), uint8(2))
	f.Add(plans.Answer{Group: theGroup, ID: [16]byte{1}, Why: "no"}.Encode(), uint8(2))
	f.Add([]byte{control.RosterQuestion, theGroup, 0}, uint8(3))
	f.Add(append([]byte{control.RosterAnswer, theGroup}, rosterOf(1<<63, 1, 2, 3).Encode()...), uint8(3))
	f.Add(members.Removed{Group: theGroup, Version: 1 << 63, Incarnation: transport.Incarnation{1}}.Encode(), uint8(2))
	f.Fuzz(func(t *testing.T, body []byte, from uint8) {
		l := openTestHost(t, 3)
		l.lead()
		before := l.group.Status()
		for range 3 {
			(*inbound)(l.Host).Deliver(uint64(from), transport.Control, body)
			l.manual.tick()
		}
		now := l.group.Status()
		if l.group.Err() != nil || now.Term != before.Term || now.Role != before.Role || now.LastIndex != before.LastIndex || !slices.Equal(l.group.members.Voters(), []uint64{1, 2, 3}) {
			t.Fatalf("a control record of host %d has changed %+v to %+v (%v)", from, before, now, l.group.Err())
		}
	})
}

// A record that is larger than its bound is dropped before anything decodes it, and counted.
func TestLargeRecordsAreCounted(t *testing.T) {
	l := openTestHost(t, 3)
	for _, r := range control.Records {
		if r.Max == 0 {
			continue
		}
		body := make([]byte, r.Max+1)
		body[0] = r.Kind
		before := l.network.strays.Load()
		(*inbound)(l.Host).Deliver(2, r.As[0], body)
		if err := l.Host.control(2, r.As[0], body); !errors.Is(err, control.ErrBad) || l.network.strays.Load() != before+1 {
			t.Errorf("a record %q of %d bytes: %v, %d were counted", r.Name, len(body), err, l.network.strays.Load()-before)
		}
	}
}

// Host.control takes each record of the table.
func TestEachRecordIsTaken(t *testing.T) {
	l := openTestHost(t, 3)
	for _, r := range control.Records {
		if err := l.Host.control(2, r.As[0], []byte{r.Kind}); err != nil && strings.Contains(err.Error(), "nothing takes") {
			t.Error(err)
		}
	}
}
