package recipe

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/labtest"
	"github.com/millrace/millrace/cmd/internal/lab/report"
	"github.com/millrace/millrace/internal/scratch"
)

func briefSnapshots(dir string) snapshotsPlan {
	return snapshotsPlan{
		StateBytes: 2 << 20, Sections: []snapshotsSection{sectionLoad, sectionRestart, sectionTransfer}, Clients: 4, LoadPercent: 50, ValueBytes: 64, Hosts: 3, Logs: []int{1, 0}, SendBytesPerSecond: 64 << 20,
		Duration: 20 * time.Millisecond, Warmup: time.Millisecond, Runs: 1, Dir: dir, Seed: 1,
	}
}

// A ratio is of windows of one run, and the row has the median of the runs' ratios.
func TestSnapshotRatiosAreOfOneRun(t *testing.T) {
	row := func(ops, p99 float64) snapshotsResult {
		return snapshotsResult{Result: report.Result{OpsPerSec: ops, P99Us: p99, Runs: 1}}
	}
	rows := compareWays([][]snapshotsResult{{row(100, 1), row(1000, 2), row(10, 4)}, {row(50, 3), row(900, 4), row(6, 12)}})
	if rows[0].Ratio != 1 || rows[1].Ratio != 0.6 || rows[1].P99Ratio != 3 || rows[1].OpsPerSec != 50 {
		t.Errorf("%+v", rows)
	}
}

// Everything, on real hosts, briefly. Run checks what was acknowledged, and compares the states.
func TestSnapshotsRun(t *testing.T) {
	plan := briefSnapshots(scratch.Dir(t))
	r, err := measureSnapshots(t.Context(), plan, report.Silence{})
	if err != nil || len(r.Rows) != len(plan.Points()) {
		t.Fatalf("%+v, %v", r, err)
	}
	sent := map[string]float64{}
	for _, row := range r.Rows {
		if row.Failed > 0 {
			t.Errorf("%+v", row)
		}
		if sent[row.Machine+" "+row.Way] = report.Ratio(float64(row.SentBytes), float64(row.StateBytes)); row.Section == sectionLoad && row.Way != string(withoutSnapshot) && (row.Snapshots == 0 || row.StateBytes < plan.StateBytes) {
			t.Errorf("%+v", row)
		}
	}
	for _, machine := range []string{"memory ", "files "} {
		if sent[machine+string(nothingThere)] < 0.9 || sent[machine+string(wholly)] < 0.9 {
			t.Errorf("%s: the whole state was changed, and only a share of it was sent: %v", machine, sent)
		}
	}
	// The state in memory is one part here, and the check of the last window is in it.
	if sent["files "+string(unchanged)] > 0.05 || sent["files "+string(onePlace)] > 0.05 {
		t.Errorf("more was sent than has changed: %v", sent)
	}
	labtest.Empty(t, plan.Dir)
}

func TestSnapshotsInterrupted(t *testing.T) {
	interrupted := errors.New("interrupted")
	plan := briefSnapshots(t.TempDir())
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(interrupted)
	r, err := measureSnapshots(ctx, plan, report.Silence{})
	if !errors.Is(err, interrupted) || len(r.Rows) > 0 {
		t.Errorf("%+v, %v", r, err)
	}
	labtest.Empty(t, plan.Dir)
}

// A frozen version stays as it is, also when pages of neighbours, and the same pages again, are written.
func TestPagesAreCopiedWhenWritten(t *testing.T) {
	const n = leafPages + 10
	base := newPages(n)
	want := base.sum()
	p := base.clone().thawed()
	for i := range n {
		scramble(p.writable(i)[:], uint64(i)+1)
	}
	first := p.freeze()
	if first.sum() == want || base.sum() != want {
		t.Fatal("writing has changed nothing, or the base too")
	}
	sums := []uint32{first.sum()}
	frozen := []*pages{first}
	for round := range 5 {
		p.writable(round * 100)[0]++
		p.writable(n - 1)[7]++
		frozen = append(frozen, p.freeze())
		sums = append(sums, frozen[len(frozen)-1].sum())
	}
	for i, f := range frozen {
		if f.sum() != sums[i] || i > 0 && sums[i] == sums[i-1] {
			t.Errorf("version %d sums up to %08x, was %08x", i, f.sum(), sums[i])
		}
	}
	var stream bytes.Buffer
	if err := p.freeze().writeTo(&stream); err != nil {
		t.Fatal(err)
	}
	read, err := readPages(n, bytes.NewReader(stream.Bytes()))
	if err != nil || read.freeze().sum() != sums[len(sums)-1] {
		t.Error("what was read is not what was written", err)
	}
	if _, err := readPages(n, io.LimitReader(&stream, 5000)); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
}

// A command is decoded as it was encoded, and other bytes are refused.
func TestCommandCodec(t *testing.T) {
	for _, c := range []stateCommand{
		{kind: writeCommand, window: 7, value: []byte("value")}, {kind: fillCommand, first: 1, n: 2, seed: 3}, {kind: padCommand, value: []byte("pad")},
	} {
		b, err := commandCodec{}.Append([]byte("x"), c)
		if err != nil {
			t.Fatal(err)
		}
		have, err := commandCodec{}.Decode(b[1:])
		if err != nil || have.kind != c.kind || have.window != c.window || have.first != c.first || have.n != c.n || have.seed != c.seed || !bytes.Equal(have.value, c.value) {
			t.Errorf("%+v, want %+v, %v", have, c, err)
		}
	}
	for _, b := range []string{"", "w", "f1", "x"} {
		if c, err := (commandCodec{}).Decode([]byte(b)); err == nil {
			t.Errorf("%q was decoded as %+v", b, c)
		}
	}
}
