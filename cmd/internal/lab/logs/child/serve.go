package child

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/cmd/internal/lab/report"
)

// Request asks a child for one point.
type Request struct {
	// Dir exists and is empty.
	Dir string `json:"dir"`
	// Appenders put values in at once. With 0 the point is a recovery of RecoverBytes instead.
	Appenders    int           `json:"appenders"`
	Groups       int           `json:"groups"`
	ValueBytes   int           `json:"value_bytes"`
	KeepBytes    int64         `json:"keep_bytes"`
	RecoverBytes int64         `json:"recover_bytes"`
	Warmup       time.Duration `json:"warmup_ns"`
	Length       time.Duration `json:"length_ns"`
	Seed         uint64        `json:"seed"`
}

// Result is a row: what one log did under one load. In the embedded row, Pipeline is the log's name and
// Clients are the appenders; 0 appenders mean a recovery.
type Result struct {
	report.Result
	Groups          int     `json:"groups"`
	MBPerSec        float64 `json:"mb_per_sec"` // values only; 1 MB is 1e6 bytes
	Fsyncs          uint64  `json:"fsyncs"`     // in the window; of files and directories
	EntriesPerFsync float64 `json:"entries_per_fsync"`
	RecoveredBytes  int64   `json:"recovered_bytes,omitempty"` // a recovery: values in the log; MeanUs is the time of an open
	PeakBytes       int64   `json:"peak_bytes,omitempty"`      // a recovery: the most resident memory that an open added
	Descriptors     int     `json:"descriptors,omitempty"`     // a recovery: those of the log when it is open
}

// IsRecovery reports whether the row is of a recovery.
func (r *Result) IsRecovery() bool { return r.RecoveredBytes > 0 }

// Serve is the main function of a child: it answers the one request on in.
func Serve(in io.Reader, out io.Writer, library Library) error {
	return lab.ServeChild(in, out, func(r Request) (Result, error) { return measure(r, library) })
}

// maxAddedProcessors bounds the processors that are added for logs that sync many files at once.
const maxAddedProcessors = 8

func measure(r Request, library Library) (Result, error) {
	if r.Groups < 1 || r.ValueBytes < load.MinValueBytes || r.Appenders < 0 {
		return Result{}, fmt.Errorf("a request for %d groups, %d appenders and values of %d bytes makes no sense", r.Groups, r.Appenders, r.ValueBytes)
	}
	if r.Appenders == 0 {
		return measureRecovery(r, library)
	}
	setup := Setup{Dir: r.Dir, Groups: r.Groups, KeepBytes: r.KeepBytes}
	source := load.NewSource(r.ValueBytes, r.Seed)
	t, err := openTarget(library, setup, source)
	if err != nil {
		return Result{}, err
	}
	defer load.AddProcessors(min(len(t.batchers), maxAddedProcessors))()
	result, err := measureLoad(r, t, source)
	return result, errors.Join(err, t.Close())
}

func measureLoad(r Request, t *target, source *load.Source) (Result, error) {
	l := load.New(t, source, r.Warmup, r.Length)
	outcome, err := l.Run(context.Background(), func(string) {}, load.Closed{Clients: r.Appenders})
	if err != nil {
		return Result{}, err
	}
	if outcome.Failed > 0 {
		return Result{}, fmt.Errorf("%d appends failed", outcome.Failed)
	}
	ctx, cancel := context.WithTimeout(context.Background(), load.VerifyTimeout)
	defer cancel()
	if err := t.Verify(ctx, l.Ledger()); err != nil {
		return Result{}, err
	}
	result := Result{Groups: r.Groups, Fsyncs: outcome.Used.Fsyncs}
	result.Result = report.Result{Pipeline: t.library.Name, Hosts: 1, Clients: r.Appenders, ValueBytes: r.ValueBytes, Seed: r.Seed}
	result.SetOutcome(outcome)
	result.MBPerSec = result.OpsPerSec * float64(r.ValueBytes) / 1e6
	result.EntriesPerFsync = report.Ratio(float64(outcome.Used.AppendedEntries), float64(outcome.Used.Fsyncs))
	return result, nil
}
