package host

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/examination"
	"github.com/millrace/millrace/transport"
)

// refusingTransport has no space for messages to one host.
type refusingTransport struct{ full uint64 }

func (r refusingTransport) Send(to uint64, _ []transport.Envelope) bool { return to != r.full }

// A follower that is behind because this host drops what it sends to it has a disk that is well. The cause
// ends when the messages leave again, or when the follower is level.
func TestExplainNotSent(t *testing.T) {
	l := openSecond(t)
	timeout := int64(l.config.electionTicks())
	now := 100 * timeout
	l.hears(now, 1, 3)
	to := watchedSender{refusingTransport{full: 3}, l.Host}
	behind := examination.Follower{ID: 3, At: now, ActiveAt: now, AckedAt: now - 5*timeout, LevelAt: now - 5*timeout, ReadingSince: -1, LostSince: -1, Behind: 2, Match: 7}
	slow, level := behind, behind
	slow.AckedAt, slow.Slow = now, true
	level.AckedAt, level.LevelAt, level.Behind = now, now, 0
	for _, row := range []struct {
		name    string
		refused int // calls of Send
		latest  int64
		view    examination.Follower
		want    diagnosis.Code
	}{
		{"nothing is dropped", 0, now, behind, diagnosis.CodeDiskStalled},
		{"messages to it are dropped", 9, now, behind, diagnosis.CodeNotSent},
		{"it is slow, and messages to it are dropped", 9, now, slow, diagnosis.CodeNotSent},
		{"they were dropped before", 9, now - 3*timeout, behind, diagnosis.CodeDiskStalled},
		{"it is level", 9, now, level, ""},
	} {
		p := l.network.handshakes.Of(3)
		p.Unsent.N.Store(0)
		for range row.refused {
			to.Send(3, nil)
			to.Send(1, nil)
		}
		p.Unsent.Latest.Store(row.latest)
		f := l.group.facts()
		f.Now, f.Leads, f.Leaderless, f.Status.Role, f.Status.Leader, f.Followers = now, 0, examination.Never, event.RoleLeader, 2, []examination.Follower{row.view}
		causes := examination.Examine(f).Causes
		switch {
		case row.want == "" && len(causes) == 0:
		case len(causes) != 1 || causes[0].Code != row.want || causes[0].Member != 3:
			t.Errorf("%s: %+v, want %q", row.name, causes, row.want)
		case row.want == diagnosis.CodeNotSent && (!strings.Contains(causes[0].Evidence, "9 times in") || !strings.Contains(causes[0].Evidence, "the next one that it needs is entry 8")):
			t.Errorf("%s: %s", row.name, causes[0].Evidence)
		}
		if n := l.network.handshakes.Of(1).Unsent.N.Load(); n != 0 {
			t.Errorf("%s: %d messages to host 1 count as dropped", row.name, n)
		}
	}
}
