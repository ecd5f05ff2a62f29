package apply

import (
	"bytes"
	"log/slog"
	"runtime"
	"strings"
	"testing"

	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/internal/arena"
	"github.com/millrace/millrace/raft/raftpb"
)

// lendingLog is a log that lends.
type lendingLog struct{ *scriptLog }

func (l lendingLog) Borrow(lo, hi, _ uint64, loan *arena.Loan, into []raftpb.Entry) ([]raftpb.Entry, bool) {
	for _, e := range l.log[lo-1 : hi-1] {
		if loan != nil {
			e.Data = append(loan.Space(len(e.Data))[:0], e.Data...)
		}
		into = append(into, e)
	}
	return into, true
}

// keeper keeps what it is given, whatever it says.
type keeper struct {
	says    func() bool
	applied []string
	kept    [][]byte
	ends    bool // it ends its goroutine at the next command
}

func (k *keeper) BorrowsData() bool { return k.says() }

func (k *keeper) Apply(entries []statemachine.Entry) error {
	for _, e := range entries {
		k.applied, k.kept = append(k.applied, string(e.Data)), append(k.kept, e.Data)
		if k.ends {
			runtime.Goexit()
		}
	}
	return nil
}

func newLendingScript(m statemachine.Machine, p *arena.Pool, logger *slog.Logger) *script {
	s := newScript(m)
	settings := s.queue.Settings
	settings.Log, settings.Blocks, settings.Logger = lendingLog{(*scriptLog)(s)}, p, logger
	s.queue = New(s, settings)
	return s
}

func TestLoansEndWithApply(t *testing.T) {
	for _, borrows := range []bool{true, false} {
		m := &keeper{says: func() bool { return borrows }}
		p := arena.New(arena.Options{BlockBytes: 10, IdleBytes: 64, Poison: true})
		s := newLendingScript(m, p, slog.New(slog.DiscardHandler))
		for _, c := range []string{"one", "two", "three"} {
			s.commit(c, "and "+c)
			s.run()
		}
		if have := strings.Join(m.applied, " "); have != "one and one two and two three and three" {
			t.Errorf("applied %q", have)
		}
		for i, data := range m.kept {
			if is := string(data) == m.applied[i]; is == borrows {
				t.Errorf("a machine that borrows (%t) has kept %q of %q", borrows, data, m.applied[i])
			}
		}
		if err := p.Home(); err != nil {
			t.Error(err)
		}
	}
}

func TestLoansEndWithTheGoroutine(t *testing.T) {
	m := &keeper{says: func() bool { return true }, ends: true}
	p := arena.New(arena.Options{BlockBytes: 8, Poison: true})
	s := newLendingScript(m, p, slog.New(slog.DiscardHandler))
	s.commit("a", "b")
	s.run()
	if len(s.halts) != 1 || len(m.kept) != 1 || !arena.IsPoisoned(m.kept[0]) || p.Home() != nil {
		t.Errorf("%d halts, kept %q; %v", len(s.halts), m.kept, p.Home())
	}
}

func TestABorrowerThatPanics(t *testing.T) {
	var lines bytes.Buffer
	m := &keeper{says: func() bool { panic("a bug") }}
	p := arena.New(arena.Options{BlockBytes: 8, Poison: true})
	s := newLendingScript(m, p, slog.New(slog.NewTextHandler(&lines, nil)))
	s.commit("a", "b")
	s.run()
	if string(bytes.Join(m.kept, nil)) != "ab" || !strings.Contains(lines.String(), "counts as one that does") {
		t.Errorf("kept %q, said %q", m.kept, &lines)
	}
}
