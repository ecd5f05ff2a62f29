package remote

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/load"
)

// What a process has used counts from its first answer, over its restarts, and never goes back.
func TestUsesNeverJump(t *testing.T) {
	var u used
	for i, tc := range []struct {
		life    uint64
		used    int // by the process, since it began
		renewed bool
		want    int // by the member, since its first answer
	}{
		{life: 1, used: 5000, want: 0},
		{life: 1, used: 5007, want: 7},
		{life: 1, used: 5003, want: 7}, // came late
		{life: 2, used: 2, renewed: true, want: 9},
		{life: 2, used: 4, want: 11},
	} {
		n := uint64(tc.used)
		renewed := u.take(Usage{Life: tc.life, Process: load.Usage{CPU: time.Duration(tc.used), Switches: n, Allocs: n}, Counters: load.Counters{Fsyncs: n, SentBytes: n}})
		process, counters, want := u.earlier.Process.Add(u.last.Process), u.earlier.Counters.Add(u.last.Counters), uint64(tc.want)
		if renewed != tc.renewed || process != (load.Usage{CPU: time.Duration(tc.want), Switches: want, Allocs: want}) || counters != (load.Counters{Fsyncs: want, SentBytes: want}) {
			t.Errorf("answer %d: %+v, %+v, renewed: %v; want %d of each", i, process, counters, renewed, tc.want)
		}
	}
}

// A machine that is of another load has started again and reads its log, or another load has begun.
func TestLoadsBeforeAndAfter(t *testing.T) {
	r := &Run{Cluster: &Cluster{groups: 1}, run: load.NewRun(), acked: make([]atomic.Uint64, 1), beganAt: []uint64{10}}
	state := GroupState{Run: load.NewRun(), Machine: load.MachineState{Applied: 9, Entries: 5}}
	if behind, err := r.behind([][]GroupState{{state}}); err != nil || behind == nil {
		t.Errorf("a load before: %v, behind: %v", err, behind)
	}
	state.Machine.Applied = 11
	if _, err := r.behind([][]GroupState{{state}}); err == nil || !strings.Contains(err.Error(), "another load") {
		t.Errorf("a load after: %v", err)
	}
}
