package proposals

import (
	"testing"

	"github.com/millrace/millrace/host/session"
	"pgregory.net/rapid"
)

// TestCopies compares with a list of all commands that were ever proposed: one is known as long as it is not
// in the log of its host and committed, in the term in which it was proposed.
func TestCopies(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type proposed struct {
			copied
			term, index uint64
		}
		var (
			s              Copies
			all            []proposed
			term, log, com = uint64(1), uint64(0), uint64(0)
		)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				term++
			case 1, 2, 3:
				com = rapid.Uint64Range(com, log).Draw(t, "commit")
			default:
				s.prune(term, com)
				m := session.Mark{Number: rapid.Uint64Range(1, 6).Draw(t, "number"), Low: 1}
				want := false
				for _, p := range all {
					want = want || p.copied == (copied{m.ID, m.Number}) && p.term == term && p.index > com
				}
				if got := s.Has(m); got != want {
					t.Fatalf("command %d: %v, want %v; commit %d, %+v", m.Number, got, want, com, all)
				}
				if !want {
					log++
					s.Add(m, log)
					all = append(all, proposed{copied{m.ID, m.Number}, term, log})
				}
			}
			if uint64(len(s.at)) > log || len(s.order) > 2*len(s.at)+2*60 {
				t.Fatalf("%d commands and %d places are kept", len(s.at), len(s.order))
			}
		}
	})
}
