package host_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"testing"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/pipeline"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/internal/scratch"
)

// savedJournal is a journal that takes snapshots: of its hash and its last index.
type savedJournal struct {
	*journal
	restored *uint64 // by OpenGroup
}

type journalForm struct {
	Index    uint64
	Hash     uint32
	Commands int
}

type journalView journalForm

func (j savedJournal) Snapshot() (statemachine.Snapshot, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return journalView{j.index, j.hash, len(j.applied)}, nil
}

func (v journalView) WriteTo(_ context.Context, w io.Writer) error {
	return json.NewEncoder(w).Encode(journalForm(v))
}

func (journalView) Close() error { return nil }

func (j savedJournal) Restore(_ context.Context, r io.Reader) error {
	var f journalForm
	if err := json.NewDecoder(r).Decode(&f); err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.index, j.hash, j.applied, *j.restored = f.Index, f.Hash, make([]string, f.Commands), f.Index
	return nil
}

// Three hosts on TCP and on real files take snapshots and compact while clients propose and others ask for
// snapshots. After a restart all have what they had.
func TestSnapshotsOfACluster(t *testing.T) {
	const group, writers, each = 2, 4, 300
	dir := scratch.Dir(t)
	c := openCluster(t, 3, dir, pipeline.Async{})
	config := host.GroupConfig{ID: group, Snapshots: host.SnapshotPolicy{LogBytes: 20_000, KeepBytes: 60_000}}
	var journals []savedJournal
	for _, h := range c.hosts {
		j := savedJournal{newJournal(), new(uint64)}
		if _, err := h.OpenGroup(t.Context(), config, j); err != nil {
			t.Fatal(err)
		}
		journals = append(journals, j)
	}
	ctx := deadline(t)
	propose := func(command string) uint64 {
		for k := 0; ; k++ {
			g := c.hosts[k%3].Group(group)
			r, err := g.Propose(ctx, []byte(command))
			switch {
			case err == nil:
				return r.Index
			case ctx.Err() != nil:
				t.Error(err)
				return 0
			}
			_, _ = g.WaitLeader(ctx)
			runtime.Gosched()
		}
	}
	first := propose("the first command") // before that there is nothing that a snapshot could hold
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				propose(fmt.Sprintf("command %d of client %d %0100d", i, w, 0))
			}
		})
	}
	for _, h := range c.hosts {
		wg.Go(func() {
			for h.Group(group).Status().Applied < first && ctx.Err() == nil {
				runtime.Gosched()
			}
			for range 5 {
				if _, err := h.Group(group).TakeSnapshot(ctx); err != nil && ctx.Err() == nil {
					t.Errorf("host %d: %v", h.Group(group).Status().ID, err)
				}
				h.Group(group).Metrics()
				h.Group(group).Explain()
			}
		})
	}
	wg.Wait()
	last := propose("the last command")
	for i, j := range journals {
		j.waitForIndex(t, last)
		s := c.hosts[i].Group(group)
		if info, ok := s.LatestSnapshot(); !ok || s.Status().FirstIndex == 1 {
			t.Errorf("host %d: the latest snapshot is %+v, %t, the log begins at %d", i+1, info, ok, s.Status().FirstIndex)
		}
	}
	want := journals[0].hash
	c.close(t)
	for i := range c.hosts {
		if journals[i].hash != want {
			t.Errorf("host %d has hash %x, want %x", i+1, journals[i].hash, want)
		}
		h, err := openOne(c.configs[i], newJournal(), host.WithLogger(quiet))
		if err != nil {
			t.Fatal(err)
		}
		j := savedJournal{newJournal(), new(uint64)}
		g, err := h.OpenGroup(t.Context(), config, j)
		if err != nil {
			t.Fatal(err)
		}
		if info, ok := g.LatestSnapshot(); !ok || *j.restored == 0 || *j.restored > info.Index {
			t.Errorf("host %d begins at %d, from %+v", i+1, *j.restored, info)
		}
		if err := h.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if _, err := g.TakeSnapshot(ctx); !errors.Is(err, outcome.ErrStopped) {
			t.Errorf("after Close: %v", err)
		}
	}
}
