package host

import (
	"testing"

	"github.com/millrace/millrace/host/diagnosis"
)

// A status that is read while a turn publishes another one is that of one moment.
func TestStatusIsOfOneMoment(t *testing.T) {
	var p published
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for i := range uint64(100_000) {
			p.Store(diagnosis.Status{Term: i, Leader: i, Applied: i, Committed: i, Durable: i, LastIndex: i})
		}
	}()
	for is := true; is; {
		select {
		case <-ended:
			is = false
		default:
		}
		if s := p.Load(); s != (diagnosis.Status{Term: s.Term, Leader: s.Term, Applied: s.Term, Committed: s.Term, Durable: s.Term, LastIndex: s.Term}) {
			t.Fatalf("%+v is of two moments", s)
		}
	}
}
