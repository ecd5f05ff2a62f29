package load

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/cmd/internal/lab"
)

// write makes a client of the ledger send its next value, and acknowledges the value if acked is set.
func write(l *Ledger, client uint32, acked bool) []byte {
	for int(client) >= len(l.pages) {
		l.Open()
	}
	page := l.pages[client]
	id := ValueID{Client: client, Seq: page.Send()}
	if acked {
		page.Acknowledge(id.Seq)
	}
	return NewSource(64, 1).Value(id)
}

func TestMachineChecksEachWrite(t *testing.T) {
	for _, tc := range []struct {
		name string
		do   func(l *Ledger, m *Machine)
		want string // part of the error; "" for none
	}{
		{"all there", func(l *Ledger, m *Machine) {
			m.Apply(1, nil)
			m.Apply(2, write(l, 0, true))
			m.Apply(4, write(l, 1, true))
			m.Apply(5, write(l, 0, true))
		}, ""},
		{"unacknowledged may be there", func(l *Ledger, m *Machine) { m.Apply(1, write(l, 0, false)) }, ""},
		{"unacknowledged may be missing", func(l *Ledger, _ *Machine) { write(l, 0, false) }, ""},
		{"acknowledged is missing", func(l *Ledger, m *Machine) {
			m.Apply(1, write(l, 3, true))
			write(l, 3, true)
			m.Apply(2, write(l, 3, true))
		}, "write 1 of client 3 was acknowledged and is not there"},
		{"applied twice", func(l *Ledger, m *Machine) {
			v := write(l, 0, true)
			m.Apply(1, v)
			m.Apply(2, v)
		}, "write 0 of client 0 was applied twice, the second time at index 2"},
		{"never sent", func(l *Ledger, m *Machine) {
			m.Apply(1, write(&Ledger{}, 0, true))
			write(l, 1, false)
		}, "write 0 of client 0 is there and was never sent"},
		{"index goes back", func(l *Ledger, m *Machine) {
			m.Apply(2, write(l, 0, true))
			m.Apply(2, write(l, 0, true))
		}, "entry 2, command 0, was applied after entry 2, command 0"},
		{"place goes back", func(l *Ledger, m *Machine) {
			m.ApplyAt(2, 0, write(l, 0, true))
			m.ApplyAt(2, 2, write(l, 0, true))
			m.ApplyAt(2, 1, write(l, 0, true))
		}, "entry 2, command 1, was applied after entry 2, command 2"},
		{"several in one entry", func(l *Ledger, m *Machine) {
			m.ApplyAt(2, 0, write(l, 0, true))
			m.ApplyAt(2, 1, write(l, 0, true))
		}, ""},
		{"payload damaged", func(l *Ledger, m *Machine) {
			v := write(l, 0, false)
			v[60] ^= 1
			m.Apply(1, v)
		}, "entry 1 (64 bytes) is not a value that a client sent"},
		{"a sequence that no client has come to", func(l *Ledger, m *Machine) {
			m.Apply(1, NewSource(64, 1).Value(ValueID{Client: 0, Seq: 1 << 62}))
			if len(m.clients[0].ahead) > 0 {
				t.Errorf("one value took %d words", len(m.clients[0].ahead))
			}
		}, "write 4611686018427387904 of client 0 is in entry 1, and more than 67108864 writes"},
		{"sequences that all clients together have not come to", func(l *Ledger, m *Machine) {
			for c := range uint32(3) {
				m.Apply(uint64(c+1), NewSource(64, 1).Value(ValueID{Client: c, Seq: 1 << 25}))
			}
		}, "write 33554432 of client 2 is in entry 3"},
		{"head damaged", func(l *Ledger, m *Machine) {
			v := write(l, 0, false)
			v[9] ^= 1
			m.Apply(1, v)
		}, "is not a value"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l, m := &Ledger{}, &Machine{}
			tc.do(l, m)
			err := m.Verify(l)
			if tc.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if !errors.Is(err, lab.ErrMismatch) || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("have %v, want %q", err, tc.want)
			}
		})
	}
}

// The naive twin of the bitmaps: a set of ids.
func TestMachineAgainstSets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, m := &Ledger{}, &Machine{}
		twice, missing := false, false
		seen := map[string]bool{}
		var sent [][]byte
		for i := range rapid.IntRange(0, 300).Draw(t, "writes") {
			v := write(l, rapid.Uint32Range(0, 3).Draw(t, "client"), true)
			sent = append(sent, v)
			if rapid.IntRange(0, 200).Draw(t, "lose") == 0 {
				continue
			}
			if rapid.IntRange(0, 200).Draw(t, "old") == 0 {
				v = rapid.SampledFrom(sent).Draw(t, "which")
			}
			twice = twice || seen[string(v)]
			seen[string(v)] = true
			m.Apply(uint64(i+1), v)
		}
		for _, v := range sent {
			missing = missing || !seen[string(v)]
		}
		if err := m.Verify(l); (err != nil) != (twice || missing) {
			t.Fatalf("twice %v, missing %v, Verify says %v", twice, missing, err)
		}
	})
}

func TestVerifyMachines(t *testing.T) {
	for _, tc := range []struct {
		name string
		do   func(l *Ledger, hosts []*Machine)
		want string
	}{
		{"agree", func(l *Ledger, hosts []*Machine) {
			v := write(l, 0, true)
			hosts[0].Apply(1, nil) // whether a host applies empty entries makes no difference
			hosts[0].Apply(2, v)
			hosts[1].Apply(2, v)
		}, ""},
		{"other order", func(l *Ledger, hosts []*Machine) {
			a, b := write(l, 0, true), write(l, 1, true)
			hosts[0].Apply(1, a)
			hosts[0].Apply(2, b)
			hosts[1].Apply(1, b)
			hosts[1].Apply(2, a)
		}, "after 2 values host 1 has state"},
		{"other index", func(l *Ledger, hosts []*Machine) {
			v := write(l, 0, true)
			hosts[0].Apply(1, v)
			hosts[1].Apply(2, v)
		}, "after 1 values host 1 has state"},
		{"one is behind for ever", func(l *Ledger, hosts []*Machine) {
			hosts[0].Apply(1, write(l, 0, true))
		}, "host 2 applied 0 values and should have 1 (1 were acknowledged)"},
		{"both lost it", func(l *Ledger, _ []*Machine) { write(l, 0, true) },
			"host 1 applied 0 values and should have 1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, hosts := &Ledger{}, []*Machine{{}, {}}
				tc.do(l, hosts)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				err := VerifyMachines(ctx, hosts, l)
				if tc.want == "" && err != nil {
					t.Fatal(err)
				}
				if tc.want != "" && (!errors.Is(err, lab.ErrMismatch) || !strings.Contains(err.Error(), tc.want)) {
					t.Fatalf("have %v, want %q", err, tc.want)
				}
			})
		})
	}
}

// An acknowledged write may still be on its way while writes that were not acknowledged fill the count. It is
// waited for, and not for longer than there is time.
func TestVerifyMachinesLooksAtWritesAndNotAtTheirNumber(t *testing.T) {
	for _, comes := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			l, hosts := &Ledger{}, []*Machine{{}, {}}
			unknown, acked := write(l, 0, false), write(l, 1, true)
			for _, m := range hosts {
				m.Apply(1, unknown)
			}
			if comes {
				time.AfterFunc(300*time.Millisecond, func() {
					for _, m := range hosts {
						m.Apply(2, acked)
					}
				})
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			const want = "verification failed: host 1: write 0 of client 1 was acknowledged and is not there"
			if err := VerifyMachines(ctx, hosts, l); comes && err != nil || !comes && (!errors.Is(err, lab.ErrMismatch) || err.Error() != want) {
				t.Errorf("it comes: %v; %v", comes, err)
			}
		})
	}
}

// What will never be right is told at once, also if an acknowledged write may still come.
func TestVerifyMachinesDoesNotWaitForWhatIsWrong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, m := &Ledger{}, &Machine{}
		write(l, 0, true)
		m.Apply(1, write(&Ledger{}, 1, true))
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := VerifyMachines(ctx, []*Machine{m}, l); err == nil || !strings.Contains(err.Error(), "was never sent") || time.Since(began) > time.Minute {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

// A follower that catches up while Verify waits is no mismatch.
func TestVerifyMachinesWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, hosts := &Ledger{}, []*Machine{{}, {}}
		v := write(l, 0, true)
		hosts[0].Apply(1, v)
		time.AfterFunc(300*time.Millisecond, func() { hosts[1].Apply(1, v) })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := VerifyMachines(ctx, hosts, l); err != nil {
			t.Fatal(err)
		}
	})
}

func BenchmarkMachineApply(b *testing.B) {
	source := NewSource(1024, 1)
	values := make([][]byte, 4096)
	for i := range values {
		values[i] = source.Value(ValueID{Client: uint32(i % 100), Seq: uint64(i / 100)})
	}
	m, index := &Machine{}, uint64(0)
	b.SetBytes(1024)
	for b.Loop() {
		if index%uint64(len(values)) == 0 {
			*m = Machine{state: m.state}
		}
		m.Apply(index+1, values[index%uint64(len(values))])
		index++
	}
}

// Shares split the clients: each client is in one of them, at a slot of its own, and slot and client are
// inverses.
func TestSharesSplitTheClients(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		every := rapid.Uint32Range(1, 20).Draw(t, "every")
		client := rapid.Uint32Range(0, maxClients).Draw(t, "client")
		owners := 0
		for first := range every {
			s := Share{Every: every, First: first}
			if slot, ok := s.slot(client); ok {
				owners++
				if s.client(slot) != client {
					t.Errorf("%+v: client %d is at slot %d, where client %d is", s, client, slot, s.client(slot))
				}
			}
		}
		if slot, ok := (Share{}).slot(client); !ok || slot != client || owners != 1 {
			t.Errorf("client %d is in %d of %d shares, and at slot %d of all", client, owners, every, slot)
		}
	})
}

// A machine of one group among three knows its clients: 1, 4, 7, ….
func TestMachineOfOneGroup(t *testing.T) {
	for _, tc := range []struct {
		name string
		do   func(l *Ledger, m *Machine)
		want string // part of the error; "" for none
	}{
		{"all there", func(l *Ledger, m *Machine) {
			m.Apply(1, write(l, 4, true))
			m.Apply(2, write(l, 1, true))
			write(l, 2, true) // of another group
		}, ""},
		{"acknowledged is missing", func(l *Ledger, m *Machine) {
			m.Apply(1, write(l, 1, true))
			write(l, 4, true)
		}, "write 0 of client 4 was acknowledged and is not there"},
		{"never sent", func(l *Ledger, m *Machine) {
			m.Apply(1, write(&Ledger{}, 4, true))
			write(l, 1, false)
		}, "write 0 of client 4 is there and was never sent"},
		{"of another group", func(l *Ledger, m *Machine) { m.Apply(1, write(l, 2, false)) },
			"write 0 of client 2 is in entry 1 of a group that this client does not write to"},
	} {
		l, m := &Ledger{}, &Machine{Share: Share{Every: 3, First: 1}}
		tc.do(l, m)
		switch err := m.Verify(l); {
		case tc.want == "" && err != nil, tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
	}
}

// A machine that was restored from the form of another one goes on as that would have.
func TestMachineIsRestoredFromItsForm(t *testing.T) {
	l, m, restored := &Ledger{}, &Machine{}, &Machine{}
	for i := range uint64(100) {
		m.Apply(i+1, write(l, uint32(i%3), true))
	}
	form := m.AppendTo(nil)
	if err := restored.Restore(form); err != nil || restored.State() != m.State() {
		t.Fatalf("%+v, want %+v: %v", restored.State(), m.State(), err)
	}
	v := write(l, 1, true)
	restored.Apply(101, v)
	if err := restored.Verify(l); err != nil {
		t.Error(err)
	}
	restored.Apply(102, v)
	if err := restored.Verify(l); err == nil || !strings.Contains(err.Error(), "applied twice") {
		t.Errorf("%v", err)
	}
	for n := range form {
		if err := (&Machine{}).Restore(form[:n]); err == nil {
			t.Errorf("%d of %d bytes were taken for a form", n, len(form))
		}
	}
	if err := (&Machine{}).Restore(append(form, 0)); err == nil {
		t.Error("a byte too many was taken")
	}
}

// A beginning empties the machine, also of what was wrong; machines with the same entries since have the same
// hash, whatever was before, and another run has another one.
func TestBeginning(t *testing.T) {
	source := NewSource(64, 1)
	a, b, c := &Machine{}, &Machine{}, &Machine{}
	run := NewRun()
	a.Apply(1, source.Value(ValueID{0, 0}))
	a.Apply(2, source.Value(ValueID{0, 0}))
	if a.Violation() == nil || a.Run() != (Run{}) {
		t.Errorf("%v, run %v", a.Violation(), a.Run())
	}
	for _, m := range []*Machine{a, b} {
		m.Apply(3, run.Beginning())
		m.Apply(4, source.Value(ValueID{0, 0}))
	}
	c.Apply(3, NewRun().Beginning())
	c.Apply(4, source.Value(ValueID{0, 0}))
	state, of := a.Seen()
	if a.Violation() != nil || of != run || state.Entries != 1 || state != b.State() || state.Hash == c.State().Hash {
		t.Errorf("%+v, %+v, %+v", state, b.State(), c.State())
	}
	restored := &Machine{}
	if err := restored.RestoreRun(a.AppendTo(nil), run); err != nil || restored.State() != state {
		t.Errorf("%+v, %v", restored.State(), err)
	}
	if err := (&Machine{}).RestoreRun(c.AppendTo(nil), run); err == nil {
		t.Error("a machine of another run is restored")
	}
	broken := run.Beginning()
	broken[10] ^= 1
	b.Apply(5, broken)
	if b.Violation() == nil {
		t.Error("a beginning with a wrong bit is applied")
	}
	if a.Apply(1, run.Beginning()); a.Violation() == nil {
		t.Error("a beginning that comes too late is applied")
	}
}
