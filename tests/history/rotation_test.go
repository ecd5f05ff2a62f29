package history

import (
	"flag"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/tests/history/pki"
)

var rotations = flag.Int("rotations", 1, "how often TestRotations replaces the CA and all certificates")

// count returns a metric of a host, -1 if it does not answer.
func (p *process) count(name string) int {
	text, _, _ := strings.Cut(p.metrics("millrace_"+name+"{"), ";")
	_, number, _ := strings.Cut(text, "} ")
	n, err := strconv.Atoi(number)
	if err != nil {
		return -1
	}
	return n
}

// TestRotations runs three processes that talk over TLS, under load, and replaces the CA and all certificates
// in the three steps of docs/operate/tls.md. No process is restarted. The first two steps end no connection.
// What the clients saw must be linearizable, and nothing that was acknowledged may be lost.
func TestRotations(t *testing.T) {
	files, err := pki.New(t.TempDir(), 1, 2, 3)
	if err != nil {
		t.Fatal(err)
	}
	binary, err := build()
	if err != nil {
		t.Fatal(err)
	}
	c := startClusterWith(t, binary, files.Flags)
	l := startLoad(t, c, loadOptions{clients: 8, sessions: 3, readers: 6, keys: 4, perKey: 150, pace: 5 * time.Millisecond, timeout: 400 * time.Millisecond,
		reads: []read{{}, {query: "consistency=lease"}}})
	l.waitForMore(t, 100, "over TLS")
	sum := func(name string) (n int) {
		for _, h := range c.hosts {
			n += h.count(name)
		}
		return n
	}
	step := func(step pki.Step) {
		t.Helper()
		what := step.Name
		before := [4]int{}
		for _, h := range c.hosts {
			before[h.id] = h.count("certificate_loads_total")
			if err := step.Write(h.id); err != nil {
				t.Fatal(err)
			}
		}
		for _, h := range c.hosts {
			eventually(t, fmt.Sprintf("host %d has loaded: %s", h.id, what), func() error {
				if n := h.count("certificate_loads_total"); n <= before[h.id] {
					return fmt.Errorf("it has loaded %d times", n)
				}
				return nil
			})
		}
		l.waitForMore(t, 100, what)
	}
	first, began := sum("group_leader_changes_total"), time.Now()
	for round := range *rotations {
		steps, err := files.Rotation()
		if err != nil {
			t.Fatal(err)
		}
		dials := sum("dials_total")
		for i, s := range steps {
			if step(s); i == 1 && sum("dials_total") != dials {
				t.Logf("round %d: %d connections were dialed in the first two steps", round+1, sum("dials_total")-dials)
			}
		}
	}
	t.Logf("%d rotations of the CA and of all certificates in %v; leaders changed %d times, as counted by the three members", *rotations, time.Since(began).Round(time.Second), sum("group_leader_changes_total")-first)
	l.stop()
	l.check(t, c.hosts)
	judge(t, l)
	for _, h := range c.hosts {
		if h.count("tls_handshakes_total") == 0 {
			t.Errorf("host %d does not talk over TLS", h.id)
		}
		h.terminate(t)
	}
}
