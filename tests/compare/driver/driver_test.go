package driver

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// note is a message of a toy that replicates a counter: how many entries its sender holds, and how many are
// committed.
type note struct{ from, last, committed uint64 }

// toy is the smallest library that the workloads accept: node 1 leads, an entry is its own index, nothing is
// allocated. With a fault it is a library that must not be measured.
type toy struct {
	opts   Options
	fault  string
	ring   Ring[uint64]
	entry  [1]uint64
	state  note
	others [6]note // node 1: what each has acknowledged
	outbox [6]note
	dirty  bool // there are changes that the others were not sent
}

func toys(fault string) func(Options) (Node[note], error) {
	return func(o Options) (Node[note], error) {
		return &toy{opts: o, fault: fault, state: note{from: o.ID}}, nil
	}
}

func (n *toy) leads() bool       { return n.opts.ID == 1 }
func (n *toy) Campaign() error   { return n.grow(1) }
func (n *toy) Vote(uint64) error { return nil }
func (n *toy) Propose() error    { return n.grow(n.opts.Batch) }

func (n *toy) Tick() { n.dirty = n.leads() }

func (n *toy) grow(by int) error {
	if n.fault == "refuses" && n.ring.Last() > 2000 {
		return fmt.Errorf("proposal refused after %d", n.ring.Last())
	}
	n.append(n.ring.Last() + uint64(by))
	n.dirty = true
	return nil
}

func (n *toy) append(through uint64) {
	for i := n.ring.Last() + 1; i <= through; i++ {
		n.entry[0] = i
		n.ring.Save(i, n.entry[:])
	}
}

func (n *toy) Acknowledge(from uint64) error {
	return n.Step(&note{from: from, last: n.ring.Last()})
}

func (n *toy) Step(m *note) error {
	if n.leads() {
		n.others[m.from].last = max(n.others[m.from].last, m.last)
		return nil
	}
	n.append(m.last)
	n.state.committed = max(n.state.committed, m.committed)
	n.dirty = true
	return nil
}

func (n *toy) Work(wire *Wire[note]) error {
	if n.leads() && n.fault != "commits nothing" {
		n.state.committed = n.ring.Last()
		for id := 2; id <= n.opts.Voters; id++ {
			n.state.committed = min(n.state.committed, n.others[id].last)
		}
	}
	for id := uint64(1); wire != nil && n.dirty && id <= uint64(n.opts.Voters); id++ {
		if id != n.opts.ID && (n.leads() || id == 1) {
			n.outbox[id] = note{from: n.opts.ID, last: n.ring.Last(), committed: n.state.committed}
			wire.Send(id, &n.outbox[id])
		}
	}
	n.dirty = false
	return nil
}

func (n *toy) Cursors() Cursors {
	c := Cursors{n.ring.Last(), n.state.committed, n.state.committed, n.state.committed}
	if n.fault == "hands too few" {
		c.Handed--
	}
	return c
}

// The workloads themselves allocate nothing, so what is measured is the library's.
func TestWorkloadsAllocateNothing(t *testing.T) {
	for _, c := range append(Proposals(), Clusters()...) {
		line, err := answer("run "+c.String()+" 20000", toys(""))
		if err != nil {
			t.Errorf("%s: %v", c, err)
			continue
		}
		if line.Units < 20000 {
			t.Errorf("%s: %d units, want at least 20000", c, line.Units)
		}
		if line.Mallocs > 20 { // the runtime's, now and then
			t.Errorf("%s: the workload allocates %d times in %d", c, line.Mallocs, line.Units)
		}
	}
}

// A library that does less than a case asks for gets no figures.
func TestFaultyLibrariesAreNotMeasured(t *testing.T) {
	for fault, want := range map[string]string{
		"commits nothing": "Committed:0",
		"hands too few":   "the figures would be of something else",
		"refuses":         "proposal refused after 2001",
	} {
		for _, name := range []string{"sync/batch=1/voters=3", "loss=0%", "loss=5%"} {
			if _, err := answer("run "+name+" 2000", toys(fault)); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s by a library that %s: error %v, want one with %q", name, fault, err, want)
			}
		}
	}
}

// A conversation: a sample, a refusal, another sample.
func TestServeAnswersLineByLine(t *testing.T) {
	in := strings.NewReader("run sync/batch=64/voters=5 100\nhello\nrun async/burst=64/voters=1 64\n")
	var out bytes.Buffer
	if err := Serve(in, &out, toys("")); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 3 {
		t.Fatalf("3 requests, %d answers: %q", len(lines), lines)
	}
	for i, wantUnits := range map[int]int64{0: 128, 2: 64} { // whole batches
		if s, err := ParseAnswer(lines[i]); err != nil || s.Units != wantUnits {
			t.Errorf("answer %q: %d units (%v), want %d", lines[i], s.Units, err, wantUnits)
		}
	}
	if !strings.Contains(lines[1], `error cannot read "hello"`) {
		t.Errorf("hello is answered by %q", lines[1])
	}
}

// A loss of 5 % loses that share of the messages.
func TestWireLosesTheShareOfItsCase(t *testing.T) {
	w := newWire[note](5)
	reader := &toy{opts: Options{ID: 2, Voters: 2}}
	sent := note{from: 1, last: 1}
	const total = 100_000
	for range total {
		w.Send(1, &sent)
	}
	if err := w.deliver([]Node[note]{reader}); err != nil {
		t.Fatal(err)
	}
	if lost := total - w.delivered; lost < total*4/100 || lost > total*6/100 {
		t.Errorf("lost %d of %d messages, want about 5 %%", lost, total)
	}
}

// The ring returns the entries that were saved, many at once, and never shares the memory behind a slice.
func TestRing(t *testing.T) {
	var r Ring[uint64]
	for r.Last() < 3*ringSize {
		var some []uint64
		for i := range r.Last()%97 + 1 {
			some = append(some, r.Last()+1+i)
		}
		r.Save(some[0], some)
	}
	for lo := r.Last() - ringSize + 1; lo <= r.Last(); lo += 61 {
		got := r.Slice(lo, min(lo+100, r.Last()+1))
		if len(got) == 0 || cap(got) != len(got) {
			t.Fatalf("from %d: %d entries, capacity %d; want at least 1 and no spare capacity", lo, len(got), cap(got))
		}
		for i, e := range got {
			if e != lo+uint64(i) {
				t.Fatalf("from %d: entry %d is %d", lo, i, e)
			}
		}
	}
	before := r.Last()
	if r.Save(before-5, []uint64{7, 8}); r.At(r.Last()) != 8 || r.Last() != before-4 {
		t.Errorf("after a truncation the last entry is %d at %d, want 8 at %d", r.At(r.Last()), r.Last(), before-4)
	}
}
