package flight

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
)

// Readers see what was recorded after each Ready, and when Publish says so: inputs that lead to no Ready, and
// the input in which the core panics.
func TestPublication(t *testing.T) {
	w := newFixture(t, 1, 1<<20, Lengths)
	m := w.members[0]
	for _, step := range []struct {
		what string
		do   func()
		want []Kind // at the end of what readers see
	}{
		{"Ready", func() { m.node.Ready() }, []Kind{Ready, Handed}},
		{"an input", func() { m.node.TickQuiesced() }, []Kind{Ready, Handed}},
		{"Publish", m.node.Publish, []Kind{Ready, Handed, TickQuiesced}},
		{"two inputs", func() { m.node.TickQuiesced(); m.node.ReportUnreachable(2) }, []Kind{Ready, Handed, TickQuiesced}},
		{"Ready", func() { m.node.Ready() }, []Kind{TickQuiesced, TickQuiesced, ReportUnreachable, Ready, Handed}},
		{"an input in which a rule is broken", func() {
			defer func() {
				if _, ours := recover().(*raft.BrokenInvariant); !ours {
					t.Error("an answer about entries that were never handed out is accepted")
				}
				m.node.Publish()
			}()
			m.node.Step(raftpb.Message{Type: raftpb.MsgStorageApplyResp, From: raft.LocalApplyThread, To: 1, Entries: []raftpb.Entry{{Index: 1 << 40}}})
		}, []Kind{Ready, Handed, Stepped}},
	} {
		step.do()
		if have := kindsOf(t, m.recorder); len(have) < len(step.want) || !slices.Equal(have[len(have)-len(step.want):], step.want) {
			t.Errorf("after %s readers see %v, want it to end with %v", step.what, have, step.want)
		}
	}
}

// kindsOf returns the kinds of all records that a reader sees.
func kindsOf(t *testing.T, r *Recorder) (kinds []Kind) {
	t.Helper()
	var b bytes.Buffer
	if err := r.WriteTo(&b, Meta{}); err != nil {
		t.Fatal(err)
	}
	f, err := Read(&b)
	if err != nil {
		t.Fatal(err)
	}
	for i := range f.Stretches {
		for record, err := range f.Stretches[i].Records() {
			if err != nil {
				t.Fatal(err)
			}
			kinds = append(kinds, record.Kind)
		}
	}
	return kinds
}

// A question that may wait for a disk is asked when readers see the input that led to it.
func TestPublicationBeforeADisk(t *testing.T) {
	r := NewRecorder(1<<20, Lengths, func() time.Duration { return 0 })
	l := r.Open(1)
	l.stretch = r.begin(l)
	disk := &slowDisk{t: t, recorder: r}
	s := &recorded{disk, l}
	for _, question := range []func(){
		func() { s.Entries(1, 2, 3) },
		func() { s.EntriesFor(1, 2, 3, 4) },
		func() { s.Changes(1, 2) },
	} {
		l.input(Tick)
		question()
	}
	if disk.questions != 3 {
		t.Errorf("%d questions", disk.questions)
	}
}

// slowDisk demands that readers see a Tick and all before it while it is asked.
type slowDisk struct {
	Storage
	t         *testing.T
	recorder  *Recorder
	questions int
}

func (d *slowDisk) asked() {
	if kinds := kindsOf(d.t, d.recorder); len(kinds) != 2*d.questions+1 || kinds[2*d.questions] != Tick {
		d.t.Errorf("question %d is asked when readers see %v", d.questions, kinds)
	}
	d.questions++
}

func (d *slowDisk) Entries(_, _, _ uint64) ([]raftpb.Entry, error) {
	d.asked()
	return nil, raft.ErrUnavailable
}

func (d *slowDisk) EntriesFor(_, _, _, _ uint64) ([]raftpb.Entry, error) {
	d.asked()
	return nil, raft.ErrUnavailable
}

func (d *slowDisk) Changes(_, _ uint64) ([]uint64, error) {
	d.asked()
	return nil, raft.ErrUnavailable
}
