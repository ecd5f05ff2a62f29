package bench

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/load"
)

func TestBareCohortReplicates(t *testing.T) {
	for _, s := range []load.Setup{{Hosts: 1, ValueBytes: 100, InFlight: 1}, {Hosts: 3, ValueBytes: 1024, InFlight: 20}, {Hosts: 3, ValueBytes: 1024, InFlight: 600}} {
		s.Dir, s.Brief = t.TempDir(), true
		target, err := openBareCohort(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		b := target.(*bare)
		t.Cleanup(func() {
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		})
		l := acknowledged(t, b, s)
		if err := b.Verify(t.Context(), l.Ledger()); err != nil {
			t.Fatal(err)
		}
	}
}

// ruleOf is a bare of which only the rule is there.
func ruleOf() *bare {
	b := newBare(load.Setup{Hosts: 1, ValueBytes: 100, InFlight: 1})
	b.cohort = &cohort{target: 1}
	return b
}

// add puts n records into the ring, and returns how many of them began a batch.
func (b *bare) add(n int) (batches int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for range n {
		b.ring.append(make([]byte, 100))
		if b.cohort.added(b) {
			batches++
		}
	}
	return batches
}

// commitAll ends the round.
func (b *bare) commitAll(answered int) (more bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.commit = b.cohort.released
	return b.cohort.committed(b, answered)
}

func (b *bare) pending() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.cohort.waiting
}

// The rule, clause by clause, in virtual time.
func TestCohortRule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := ruleOf()
		if n := b.add(1); n != 1 {
			t.Fatal("with nothing under way a record does not begin a batch")
		}
		if n := b.add(15); n != 0 {
			t.Error("a batch begins while one is under way")
		}
		<-time.After(300 * time.Microsecond)
		if b.commitAll(1) || b.pending() != 15 {
			t.Error("the client that was answered is not waited for")
		}
		if n := b.add(1); n != 1 || b.pending() != 0 {
			t.Error("with all clients back no batch begins")
		}
		<-time.After(300 * time.Microsecond)
		if b.commitAll(16) {
			t.Error("a batch of nothing begins")
		}
		b.add(15)
		<-time.After(2 * maxCohortWait)
		synctest.Wait()
		if b.pending() != 0 {
			t.Error("the wait does not end")
		}
		for range 1 << b.cohort.misses { // rounds without a wait
			<-time.After(300 * time.Microsecond)
			b.commitAll(16)
			if b.add(1) != 1 {
				t.Error("it waits again at once after a wait for nothing")
			}
		}
		<-time.After(300 * time.Microsecond)
		b.commitAll(16)
		if b.add(15) != 0 || b.add(1) != 1 || b.cohort.misses != 0 {
			t.Error("it waits never again after a wait for nothing")
		}
		if n := b.add(cohortCommands + 1); n != 1 {
			t.Error("a large batch does not begin beside the one under way")
		}
		if n := b.add(cohortCommands); n != 1 || b.pending() != 1 {
			t.Error("the next large batch does not begin")
		}
	})
}

// No client is there when the wait ends: the next client does not wait.
func TestCohortThatStaysAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := ruleOf()
		b.add(1)
		b.add(9)
		<-time.After(300 * time.Microsecond)
		if b.commitAll(1); b.add(1) != 1 {
			t.Fatal("no batch of ten")
		}
		<-time.After(300 * time.Microsecond)
		b.commitAll(10)
		<-time.After(2 * maxCohortWait)
		synctest.Wait()
		if b.add(1) != 1 {
			t.Error("the first that comes after the wait waits")
		}
	})
}

// One client costs no timer.
func TestCohortOfOne(t *testing.T) {
	b := ruleOf()
	for range 3 {
		if b.add(1) != 1 || b.commitAll(1) || b.cohort.timer != nil {
			t.Error("one client waits for itself")
		}
	}
}

// A log begins with segments of the stock, unless it must be young.
func TestClusterBeginsWithWrittenSegments(t *testing.T) {
	p := Plan{ValueBytes: 1024}
	for _, young := range []bool{false, true} {
		p.Young = young
		s := load.Setup{Hosts: 1, Dir: t.TempDir(), ValueBytes: 1024, InFlight: 1, WrittenBytes: p.writtenBytes(10, time.Second)}
		target, err := openInline(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		c := target.(*cluster)
		if err := c.Propose(context.Background(), load.NewSource(1024, 1).Value(load.ValueID{})); err != nil {
			t.Error(err)
		}
		if young {
			if err := until(t.Context(), "a young tail", func() (bool, error) { return c.hosts[0].LogStats().TailYoung, nil }); err != nil {
				t.Error(err)
			}
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if stats := c.hosts[0].LogStats(); !young && (stats.TailYoung || stats.ZeroedBytes > 0) {
			t.Errorf("the log has written %d zeros itself", stats.ZeroedBytes)
		}
	}
}
