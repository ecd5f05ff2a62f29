package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
)

// Each point of the bench of logs is measured in a process of its own, a child, ours like the others: a library's garbage,
// caches and goroutines are gone with it, and two libraries need not agree on their dependencies. The child reads
// one LogRequest as JSON from its input, does it, and writes one logAnswer.

// LogRequest asks a child for one point.
type LogRequest struct {
	// Dir exists and is empty.
	Dir string `json:"dir"`
	// Appenders put values in at once; with 0 the point is a recovery of RecoverBytes instead.
	Appenders    int           `json:"appenders"`
	Groups       int           `json:"groups"`
	ValueBytes   int           `json:"value_bytes"`
	KeepBytes    int64         `json:"keep_bytes"`
	RecoverBytes int64         `json:"recover_bytes"`
	Warmup       time.Duration `json:"warmup_ns"`
	Length       time.Duration `json:"length_ns"`
	Seed         uint64        `json:"seed"`
}

// logAnswer has a result or an error. Mismatch tells a log that lost something from one that failed.
type logAnswer struct {
	Result   *LogResult `json:"result,omitempty"`
	Error    string     `json:"error,omitempty"`
	Mismatch bool       `json:"mismatch,omitempty"`
}

// LogResult is one row: what one log did under one load. Of Result, Pipeline is the log's name and Clients the appenders;
// there is one node, and nothing is applied.
type LogResult struct {
	Result
	Groups          int     `json:"groups"`
	MBPerSec        float64 `json:"mb_per_sec"` // values only; 1 MB is 1e6 bytes
	Fsyncs          uint64  `json:"fsyncs"`     // in the window; of files and directories
	EntriesPerFsync float64 `json:"entries_per_fsync"`
	RecoveredBytes  int64   `json:"recovered_bytes,omitempty"` // a recovery: values in the log; MeanUs is the time of an open
	PeakBytes       int64   `json:"peak_bytes,omitempty"`      // a recovery: the most resident memory that an open added
	Descriptors     int     `json:"descriptors,omitempty"`     // a recovery: those of the log when it is open
}

func (r *LogResult) isRecovery() bool { return r.RecoveredBytes > 0 }

// ServeLog is the main function of a child: it answers the one request on in.
func ServeLog(in io.Reader, out io.Writer, library LogLibrary) error {
	var request LogRequest
	if err := json.NewDecoder(in).Decode(&request); err != nil {
		return fmt.Errorf("cannot read the request: %w", err)
	}
	answer := logAnswer{}
	result, err := measureLog(request, library)
	if err != nil {
		answer.Error, answer.Mismatch = err.Error(), errors.Is(err, ErrMismatch)
	} else {
		answer.Result = &result
	}
	return json.NewEncoder(out).Encode(answer)
}

// mostLanesInFsync bounds the processors that are added for logs that sync many files at once.
const mostLanesInFsync = 8

func measureLog(r LogRequest, library LogLibrary) (LogResult, error) {
	if r.Groups < 1 || r.ValueBytes < MinValueBytes || r.Appenders < 0 {
		return LogResult{}, fmt.Errorf("a request for %d groups, %d appenders and values of %d bytes makes no sense", r.Groups, r.Appenders, r.ValueBytes)
	}
	if r.Appenders == 0 {
		return measureRecovery(r, library)
	}
	setup := LogSetup{Dir: r.Dir, Groups: r.Groups, KeepBytes: r.KeepBytes}
	source := newValueSource(r.ValueBytes, r.Seed)
	target, err := openLogTarget(library, setup, source)
	if err != nil {
		return LogResult{}, err
	}
	defer roomForDisks(min(len(target.lanes), mostLanesInFsync))()
	result, err := loadLog(r, target, source)
	return result, errors.Join(err, target.Close())
}

func loadLog(r LogRequest, target *logTarget, source *valueSource) (LogResult, error) {
	l := newLoad(target, source, r.Warmup, r.Length)
	used, err := l.run(context.Background(), func(string) {}, func(ctx context.Context, wg *sync.WaitGroup) {
		l.startClosed(ctx, r.Appenders, wg)
	})
	if err != nil {
		return LogResult{}, err
	}
	if failed := l.failed.Load(); failed > 0 {
		return LogResult{}, fmt.Errorf("%d appends failed", failed)
	}
	ctx, cancel := context.WithTimeout(context.Background(), verifyTimeout)
	defer cancel()
	if err := target.Verify(ctx, l.ledger); err != nil {
		return LogResult{}, err
	}
	result := LogResult{Groups: r.Groups, Fsyncs: used.used.Fsyncs}
	result.Result = Result{Pipeline: target.library.Name, Nodes: 1, Clients: r.Appenders, ValueBytes: r.ValueBytes, WarmupSec: r.Warmup.Seconds(), Seed: r.Seed}
	result.setLatencies(l.latency.merged())
	result.setRates(l.completed.Load(), l.length, used.cpu, used.allocs)
	result.setCounters(used.used)
	result.mark()
	result.MBPerSec = result.OpsPerSec * float64(r.ValueBytes) / 1e6
	result.EntriesPerFsync = ratio(float64(used.used.AppendedEntries), float64(used.used.Fsyncs))
	return result, nil
}

const (
	recoveryOpens      = 3    // measured, after one that fills the page cache
	recoveryBatch      = 1000 // entries
	mostRecoveredBytes = 64 << 30
)

// measureRecovery fills a log of one group in large batches, closes it, and measures how long it takes to open.
func measureRecovery(r LogRequest, library LogLibrary) (LogResult, error) {
	if r.RecoverBytes < int64(r.ValueBytes) || r.RecoverBytes > mostRecoveredBytes {
		return LogResult{}, fmt.Errorf("a recovery of %d bytes is not between one value and %d", r.RecoverBytes, int64(mostRecoveredBytes))
	}
	setup := LogSetup{Dir: r.Dir, Groups: 1, KeepBytes: r.RecoverBytes}
	entries := uint64(r.RecoverBytes) / uint64(r.ValueBytes)
	if err := fillLog(library, setup, newValueSource(r.ValueBytes, r.Seed), entries); err != nil {
		return LogResult{}, err
	}
	var took []time.Duration
	var cpu time.Duration
	var peak footprint
	for i := range recoveryOpens + 1 {
		resetFootprint()
		empty, before, start := readFootprint(), readProcessUsage(), time.Now()
		store, err := library.Open(setup)
		if err != nil {
			return LogResult{}, fmt.Errorf("open again: %w", err)
		}
		if i > 0 {
			took = append(took, time.Since(start))
			cpu += readProcessUsage().cpu - before.cpu
		}
		full := readFootprint()
		peak.peakBytes = max(peak.peakBytes, full.peakBytes-empty.peakBytes)
		peak.descriptors = max(peak.descriptors, full.descriptors-empty.descriptors)
		if err := store.Close(); err != nil {
			return LogResult{}, err
		}
	}
	slices.Sort(took)
	median := took[len(took)/2]
	result := LogResult{Groups: 1, RecoveredBytes: int64(entries) * int64(r.ValueBytes), PeakBytes: peak.peakBytes, Descriptors: peak.descriptors}
	result.Result = Result{Pipeline: library.Name, Nodes: 1, ValueBytes: r.ValueBytes, Seed: r.Seed, Marks: []string{}}
	result.Ops, result.DurationSec = entries, median.Seconds()
	result.OpsPerSec = ratio(float64(entries), median.Seconds())
	result.MeanUs, result.MaxUs = micros(median), micros(took[len(took)-1])
	result.CPUUsPerOp = ratio(micros(cpu)/recoveryOpens, float64(entries))
	result.MBPerSec = ratio(float64(result.RecoveredBytes)/1e6, median.Seconds())
	return result, nil
}

// fillLog appends entries, and reads them back.
func fillLog(library LogLibrary, setup LogSetup, source *valueSource, entries uint64) (err error) {
	store, err := library.Open(setup)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	batch := make([]LogEntry, 0, recoveryBatch)
	for index := uint64(1); index <= entries; {
		batch = batch[:0]
		for ; index <= entries && len(batch) < cap(batch); index++ {
			batch = append(batch, LogEntry{Index: index, Data: source.value(valueID{seq: index})})
		}
		if err := store.Append(batch); err != nil {
			return fmt.Errorf("append: %w", err)
		}
	}
	next := uint64(1)
	err = store.Read(func(e LogEntry) error {
		if id, _, ok := parseValue(e.Data); !ok || id.seq != next || e.Index != next {
			return fmt.Errorf("%w: entry %d is not the one written as %d", ErrMismatch, e.Index, next)
		}
		next++
		return nil
	})
	if err == nil && next != entries+1 {
		err = fmt.Errorf("%w: the log ends at entry %d of %d", ErrMismatch, next-1, entries)
	}
	return err
}

// LogChild is a log that can be measured: its name, and the command line of a program that calls ServeLog.
type LogChild struct {
	Name    string
	Command []string
	Peer    bool // somebody else's: the run goes on without it if it fails
}

// measure runs the child for one point. The process is killed when ctx ends.
func (c LogChild) measure(ctx context.Context, request LogRequest) (LogResult, error) {
	text, err := json.Marshal(request)
	if err != nil {
		return LogResult{}, err
	}
	process := exec.CommandContext(ctx, c.Command[0], c.Command[1:]...)
	process.WaitDelay = time.Second
	process.Stdin = bytes.NewReader(text)
	var out bytes.Buffer
	var errs tail
	process.Stdout, process.Stderr = &out, &errs
	failed := process.Run()
	if ctx.Err() != nil {
		return LogResult{}, context.Cause(ctx)
	}
	if failed != nil {
		return LogResult{}, fmt.Errorf("its process ended with %w: %s", failed, errs.text())
	}
	var answer logAnswer
	if err := json.Unmarshal(out.Bytes(), &answer); err != nil {
		return LogResult{}, fmt.Errorf("its process gave no answer that can be read: %w", err)
	}
	switch {
	case answer.Mismatch:
		return LogResult{}, fmt.Errorf("%w: %s", ErrMismatch, strings.TrimPrefix(answer.Error, ErrMismatch.Error()+": "))
	case answer.Error != "":
		return LogResult{}, errors.New(answer.Error)
	case answer.Result == nil:
		return LogResult{}, errors.New("its process answered neither a result nor an error")
	}
	answer.Result.Pipeline = c.Name
	return *answer.Result, nil
}

// tail keeps the end of what a process says on its error output.
type tail struct{ kept []byte }

const mostTailBytes = 4 << 10

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p...)
	if over := len(t.kept) - mostTailBytes; over > 0 {
		t.kept = t.kept[:copy(t.kept, t.kept[over:])]
	}
	return len(p), nil
}

func (t *tail) text() string {
	return strings.ReplaceAll(strings.TrimSpace(string(t.kept)), "\n", "; ")
}
