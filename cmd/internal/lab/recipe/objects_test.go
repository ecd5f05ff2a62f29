package recipe

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/labtest"
	"github.com/millrace/millrace/cmd/internal/lab/report"
	"github.com/millrace/millrace/internal/scratch"
)

var briefObjects = objectsPlan{ObjectBytes: 300_000, Uploads: 4, Rate: 500, ValueBytes: 64, Hosts: 3, Duration: 20 * time.Millisecond, Warmup: time.Millisecond, Seed: 1}

// The heap has grown for each upload that was under way at a time: beside commands that is one.
func TestHeapOfAnUpload(t *testing.T) {
	for _, tc := range []struct {
		way     objectsWay
		uploads int
		want    float64
	}{{rawFiles, 0, 0}, {oneUpload, 1, 14 << 20}, {uploadsTogether, 8, 14 << 20 / 8}, {commandsBeside, 8, 14 << 20}} {
		r := objectsResult{Way: tc.way, Uploads: tc.uploads, HeapBytes: 24 << 20, HeapBefore: 10 << 20}
		if have := r.UploadBytes(); have != tc.want {
			t.Errorf("%s: %v bytes per upload, want %v", tc.way, have, tc.want)
		}
	}
}

// Everything, on real hosts, briefly. Run reads every object on every host, and checks what was acknowledged.
func TestObjectsRun(t *testing.T) {
	plan := briefObjects
	var rows []objectsResult
	for plan.Duration = range labtest.Lengths(plan.Duration) {
		var err error
		if rows, err = plan.Run(t.Context(), 1, scratch.Dir(t), report.Silence{}, func(objectsWay) {}); err != nil || len(rows) != len(objectsWays) {
			t.Fatalf("%+v, %v", rows, err)
		}
		none := func(row objectsResult) bool { return row.BytesPerSec == 0 && row.Ops == 0 }
		if !slices.ContainsFunc(rows, none) {
			break
		}
	}
	for _, row := range rows {
		if row.Failed > 0 || row.BytesPerSec == 0 && row.Ops == 0 || row.HeapBytes < row.HeapBefore || row.HeapBefore == 0 {
			t.Errorf("%+v", row)
		}
	}
}

// What a host answers is compared with what was uploaded.
func TestWrongContentIsFound(t *testing.T) {
	c := &objectsCluster{plan: briefObjects, content: newContent(1, 1)}
	right := func() *repeated { return &repeated{content: c.content, n: c.plan.ObjectBytes} }
	if err := c.compare(t.Context(), right()); err != nil {
		t.Error(err)
	}
	wrong := bytes.Clone(c.content)
	wrong[c.plan.ObjectBytes-1]++
	if err := c.compare(t.Context(), &repeated{content: wrong, n: c.plan.ObjectBytes}); !errors.Is(err, lab.ErrMismatch) {
		t.Errorf("a last byte that is wrong: %v, want ErrMismatch", err)
	}
	if err := c.compare(t.Context(), strings.NewReader("short")); err == nil {
		t.Error("5 bytes were taken for the object")
	}
}

func TestObjectsInterrupted(t *testing.T) {
	interrupted := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	rows, err := briefObjects.Run(ctx, 1, t.TempDir(), report.Silence{}, func(objectsWay) { cancel(interrupted) })
	if !errors.Is(err, interrupted) || rows != nil {
		t.Errorf("%+v, %v", rows, err)
	}
}
