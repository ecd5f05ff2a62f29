package host_test

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/statemachine"
)

// hangsOn is a state machine that hangs at the command "hang" until gate is closed, and takes the time that
// the command "slow" is told to take.
type hangsOn struct {
	mu   sync.Mutex
	gate chan struct{} // guarded by mu
	slow time.Duration
}

// hangs returns what a command waits for.
func (m *hangsOn) hangs() chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.gate
}

// free releases what hangs, and makes what comes hang at another gate.
func (m *hangsOn) free() {
	m.mu.Lock()
	defer m.mu.Unlock()
	close(m.gate)
	m.gate = make(chan struct{})
}

func (m *hangsOn) Apply(entries []statemachine.Entry) error {
	for _, e := range entries {
		switch string(e.Data) {
		case "hang":
			<-m.hangs()
		case "slow":
			<-time.After(m.slow)
		}
	}
	return nil
}

// manyOf opens so many groups of one host, with ids from 1, with one kind of machine.
func manyOf(t *testing.T, n int, m statemachine.Machine, c host.GroupConfig) (h *host.Host, groups []*host.Group) {
	h, _ = openSolo(t, nil)
	for id := range uint64(n) {
		c.ID, c.Members = id+1, []uint64{1}
		groups = append(groups, openLeaderWith(t, h, c, m))
	}
	return h, groups
}

// submitAll gives each group a command, and returns when nothing moves any more without time.
func submitAll(t *testing.T, groups []*host.Group, command string) {
	t.Helper()
	for _, g := range groups {
		if _, err := g.Submit([]byte(command)); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Wait()
}

// applies returns how long all groups, asked at once, need to apply one more command.
func applies(t *testing.T, groups []*host.Group) time.Duration {
	t.Helper()
	began := time.Now()
	reads := make([]host.Read, len(groups))
	for i, g := range groups {
		r, err := g.Propose(deadline(t), []byte("x"))
		if err != nil {
			t.Fatal(err)
		}
		g.StartApplied(&reads[i], r.Index)
	}
	for i, g := range groups {
		if _, err := reads[i].Wait(deadline(t)); err != nil {
			t.Errorf("%v: %s", err, g.Explain())
		}
	}
	return time.Since(began)
}

// Most groups of a host hang at once in their state machines. The others are applied within a second, and
// from then on as if nothing hung, also when the machines hang for a second time.
func TestHungMachinesCostTheOthersNothing(t *testing.T) {
	const others = 4
	for _, hung := range []int{1, 8, 40, 120} {
		t.Run(fmt.Sprint(hung), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &hangsOn{gate: make(chan struct{})}
				h, groups := manyOf(t, hung+others, m, host.GroupConfig{})
				for range 2 {
					submitAll(t, groups[:hung], "hang")
					if took := applies(t, groups[hung:]); took > time.Second {
						t.Errorf("beside %d groups that hang the others waited for %v", hung, took)
					}
					<-time.After(2 * time.Second) // virtual: all that hang are known to
					for range 3 {
						if took := applies(t, groups[hung:]); took > time.Millisecond {
							t.Errorf("%d groups hang for two seconds, and the others still wait for %v", hung, took)
						}
					}
					m.free()
					applies(t, groups)
				}
				if lanes := h.Metrics().Lanes; lanes.ApplyHung > 0 || lanes.ApplySubstitutes > hung+others {
					t.Errorf("nothing hangs any more: %+v; there is a lane for each group at most, apart from those wanted", lanes)
				}
				close(m.gate)
				if err := h.Close(deadline(t)); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A hundred machines take a fifth of a second for each round. A group whose rounds are quick waits for the
// end of one such round at most.
func TestSlowMachinesCostTheOthersARound(t *testing.T) {
	const slow, others, round = 100, 2, 200 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		h, groups := manyOf(t, slow+others, &hangsOn{slow: round}, host.GroupConfig{})
		for i := range 5 {
			submitAll(t, groups[:slow], "slow")
			if i == 0 {
				<-time.After(slow * round) // virtual: each of them is known to be slow
				continue
			}
			<-time.After(3 * round)
			if took := applies(t, groups[slow:]); took > round {
				t.Errorf("the quick groups waited for %v", took)
			}
			<-time.After(slow * round)
		}
		applies(t, groups[:slow])
		if err := h.Close(deadline(t)); err != nil {
			t.Error(err)
		}
	})
}

// Forty machines hang in turns, against their word (NonBlocking). Each costs the others a heartbeat interval,
// once.
func TestHungTurnsAreAllLeftBehind(t *testing.T) {
	const hung, others, heartbeat = 40, 4, 20 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		m := &hangsOn{gate: make(chan struct{})}
		h, groups := manyOf(t, hung+others, m, host.GroupConfig{NonBlocking: true})
		submitAll(t, groups[:hung], "hang")
		if took := applies(t, groups[hung:]); took > (hung+2)*heartbeat*5/4 {
			t.Errorf("beside %d turns that hang the others waited for %v", hung, took)
		}
		if took := applies(t, groups[hung:]); took > time.Millisecond {
			t.Errorf("%d turns hang, and the others still wait for %v", hung, took)
		}
		close(m.gate)
		applies(t, groups)
		if err := h.Close(deadline(t)); err != nil {
			t.Error(err)
		}
	})
}

// hangsWriting is a state machine whose snapshots hang while they are written, as long as hangs is set.
type hangsWriting struct {
	hangsOn
	hangs atomic.Bool
}

func (m *hangsWriting) Snapshot() (statemachine.Snapshot, error) {
	if m.hangs.Load() {
		return m, nil
	}
	return &hangsWriting{}, nil
}

func (m *hangsWriting) WriteTo(_ context.Context, w io.Writer) error {
	if m.hangs.Load() {
		<-m.gate
	}
	_, err := w.Write([]byte("state"))
	return err
}

func (m *hangsWriting) Close() error { return nil }

func (m *hangsWriting) Restore(context.Context, io.Reader) error { return nil }

// The snapshots of twenty groups hang while they are written. Two of them are given up as hanging each half
// minute, and then another group's is taken.
func TestHungSnapshotsLeaveLanes(t *testing.T) {
	const hung = 20
	synctest.Test(t, func(t *testing.T) {
		m := &hangsWriting{hangsOn: hangsOn{gate: make(chan struct{})}}
		m.hangs.Store(true)
		h, groups := manyOf(t, hung+1, m, host.GroupConfig{})
		for _, g := range groups[:hung] {
			g.StartSnapshot()
		}
		synctest.Wait()
		<-time.After(hung / 2 * 31 * time.Second) // virtual
		m.hangs.Store(false)
		synctest.Wait()
		if _, err := groups[hung].TakeSnapshot(deadline(t)); err != nil {
			t.Errorf("beside %d snapshots that hang: %v", hung, err)
		}
		close(m.gate)
		if err := h.Close(deadline(t)); err != nil {
			t.Error(err)
		}
	})
}
