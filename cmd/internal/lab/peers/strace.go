package peers

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/report"
	"github.com/millrace/millrace/cmd/lab/peer"
)

// Each system counts its own fsyncs, or a metric of its library does. strace counts the system calls from
// outside too: once, before the rounds, each system does a short load of one client under it. With one client
// no two writes share an fsync, so that each acknowledged write needs those of a majority. (What a system
// syncs to open and close its files is in the count too.)

// count is what strace saw of one system.
type count struct {
	System string
	Ops    uint64 // acknowledged in the window; more were written before
	Syncs  uint64 // from the start of the process to its end
	Own    float64
}

func (c count) perOp() float64 { return report.Ratio(float64(c.Syncs), float64(c.Ops)) }

const (
	countedLength = 500 * time.Millisecond
	syncCalls     = "fsync,fdatasync,sync_file_range,msync"
)

// countAll lets strace count. A system that fails under strace is named and measured all the same.
func (r *runner) countAll(ctx context.Context) error {
	for i, system := range r.plan.Systems {
		r.progress.Point(i, "fsyncs of "+system.Name+", counted by strace", countedLength)
		r.progress.Phase("count")
		c, err := r.countOne(ctx, i)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			r.missing = append(r.missing, fmt.Sprintf("fsyncs of %s, counted by strace: %v", system.Name, err))
		default:
			r.counted = append(r.counted, c)
			r.progress.PointDone(report.Result{})
		}
	}
	return nil
}

func (r *runner) countOne(ctx context.Context, system int) (count, error) {
	into := filepath.Join(r.work.Path, "strace")
	defer os.Remove(into)
	command := append([]string{r.plan.Strace, "-f", "-qq", "--seccomp-bpf", "-c", "-U", "calls,name", "-e", "trace=" + syncCalls, "-o", into},
		r.plan.Systems[system].Command...)
	result, err := r.measure(ctx, point{system: system, clients: 1}, command, func(pt point, dir string) peer.Request {
		request := r.plan.request(pt, dir)
		request.Warmup, request.Length = 0, countedLength
		return request
	})
	if err != nil {
		return count{}, err
	}
	text, err := os.Open(into)
	if err != nil {
		return count{}, err
	}
	defer text.Close()
	syncs, err := readStrace(text)
	return count{System: r.plan.Systems[system].Name, Ops: result.Ops, Syncs: syncs, Own: result.FsyncsPerOp}, err
}

// readStrace adds up the calls in strace's summary: lines of a number and a name. A process that made none
// has no summary.
func readStrace(text io.Reader) (calls uint64, err error) {
	lines := bufio.NewScanner(text)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) != 2 || words[1] == "total" || !strings.Contains(","+syncCalls+",", ","+words[1]+",") {
			continue
		}
		n, err := strconv.ParseUint(words[0], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("strace's line %q cannot be read", lines.Text())
		}
		calls += n
	}
	return calls, lines.Err()
}
