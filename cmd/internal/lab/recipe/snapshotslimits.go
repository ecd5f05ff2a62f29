package recipe

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/report"
	"github.com/millrace/millrace/vfs"
)

// diskLimits is what the disk does with the bytes of the state when nothing else runs.
type diskLimits struct {
	WriteMiBPerSec float64 `json:"write_mib_per_s"` // to a new file, with one sync
	ReadMiBPerSec  float64 `json:"read_mib_per_s"`  // of the same file, from the memory of the kernel mostly
}

func (r *snapshotsRun) measureLimits(ctx context.Context) error {
	_, err := lab.InFreshDir(r.work, func(dir string) (_ struct{}, err error) {
		began := time.Now()
		f, err := lab.CreateZeroed(vfs.OS(), filepath.Join(dir, "raw"), r.StateBytes)
		if err != nil {
			return struct{}{}, err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		r.of.Limits.WriteMiBPerSec = mibPerSec(r.StateBytes, time.Since(began))
		began = time.Now()
		if _, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, io.NewSectionReader(f, 0, r.StateBytes), make([]byte, 64<<10)); err != nil {
			return struct{}{}, err
		}
		r.of.Limits.ReadMiBPerSec = mibPerSec(r.StateBytes, time.Since(began))
		return struct{}{}, context.Cause(ctx)
	})
	return err
}

func mibPerSec(bytes int64, took time.Duration) float64 {
	return report.Ratio(float64(bytes)/(1<<20), took.Seconds())
}
