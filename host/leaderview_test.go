package host

import (
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/transport"
)

// bodyTransport records the bodies that are sent.
type bodyTransport struct {
	recordingTransport
	bodies []string
}

func (b *bodyTransport) SendBytes(to uint64, _ transport.Kind, body []byte) bool {
	b.bodies = append(b.bodies, string(rune('0'+to))+string(body))
	return true
}

// count counts the bodies of a kind to a host.
func (b *bodyTransport) count(to uint64, kind byte) (n int) {
	for _, body := range b.bodies {
		if body[0] == byte('0'+to) && body[1] == kind {
			n++
		}
	}
	return n
}

// absent returns the members that are not there.
func (m Members) absent() (ids []uint64) {
	for _, i := range m.All {
		if !i.There {
			ids = append(ids, i.ID)
		}
	}
	return ids
}

// A follower that does not hear another one asks the leader which members are there. Until that answers it
// says that it does not know, and whom to ask. The answer of an earlier leader, or an old one, is none.
func TestFollowerAsksWhoIsThere(t *testing.T) {
	out := &bodyTransport{}
	l := openSecond(t, WithTransport(out))
	l.network.handshakes.Of(3).HeardAt.Store(-1000)
	if m := l.group.Members(); m.View != raft.None || !slices.Equal(m.absent(), []uint64{3}) || out.count(1, control.ViewQuestion) != 1 {
		t.Fatalf("no leader has told: %+v; questions: %d", m, out.count(1, control.ViewQuestion))
	}
	plan, err := l.group.Plan(DemoteMember(3))
	if err != nil {
		t.Fatal(err)
	}
	if page := plan.String(); plan.View != raft.None || len(plan.Absent) > 0 || !strings.Contains(page, "is unknown to host 2 (host 1 leads: ask there)") || strings.Contains(page, "tolerates nothing") {
		t.Errorf("no leader has told, and the plan is %+v\n%s", plan, page)
	}

	answer := []byte{control.ViewAnswer, theGroup, 2, 1, 2}
	l.control(3, answer) // it does not lead
	if m := l.group.Members(); m.View != raft.None {
		t.Errorf("host 3 does not lead, and is believed: %+v", m)
	}
	l.control(1, answer)
	if m := l.group.Members(); m.View != 1 || !slices.Equal(m.absent(), []uint64{3}) || m.Tolerates != 0 {
		t.Errorf("host 1 says that host 3 is away: %+v", m)
	}
	l.control(1, append(slices.Clone(answer[:2]), 3, 1, 2, 3))
	if m := l.group.Members(); m.View != 1 || len(m.absent()) > 0 || m.Tolerates != 1 {
		t.Errorf("host 1 says that all are there: %+v", m)
	}
	if plan, err = l.group.Plan(DemoteMember(3)); err != nil || plan.View != 1 || !strings.Contains(plan.String(), "tolerates 1 failure now, as host 1 says, which leads") {
		t.Errorf("%v, %v", plan, err)
	}
	l.group.view().At = -1000
	if m := l.group.Members(); m.View != raft.None {
		t.Errorf("the answer is old: %+v", m)
	}
	for _, bad := range [][]byte{{control.ViewAnswer}, {control.ViewAnswer, theGroup}, {control.ViewAnswer, theGroup, 2, 1}, {control.ViewAnswer, theGroup, 1, 1, 9}, {control.ViewQuestion}, {control.ViewQuestion, theGroup, 0}} {
		before := l.network.strays.Load()
		if l.control(1, bad); l.network.strays.Load() != before+1 {
			t.Errorf("% x is not refused", bad)
		}
	}
}

// A leader answers with those that it has heard, itself included, and knows without asking.
func TestLeaderSaysWhoIsThere(t *testing.T) {
	out := &bodyTransport{}
	l := openTestHost(t, 3, WithTransport(out))
	defer func() { _ = l.Close(over()) }()
	question := []byte{control.ViewQuestion, theGroup}
	l.control(2, question)
	if n := out.count(2, control.ViewAnswer); n != 0 {
		t.Errorf("%d answers of a member that does not lead", n)
	}
	l.lead()
	l.network.handshakes.Of(3).HeardAt.Store(-1000)
	l.control(2, question)
	if want := string([]byte{'2', control.ViewAnswer, theGroup, 2, 1, 2}); !slices.Contains(out.bodies, want) {
		t.Errorf("no answer % x in % x", want, out.bodies)
	}
	if m := l.group.Members(); m.View != 1 || !slices.Equal(m.absent(), []uint64{3}) || m.Tolerates != 0 {
		t.Errorf("it leads and knows: %+v", m)
	}
}
