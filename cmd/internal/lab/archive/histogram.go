package archive

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Latencies are kept in HdrHistogram's interval log, format 1.3: one line for each interval and tag, with the
// start and the length of the interval in seconds, its maximum in milliseconds, and the histogram (V2,
// compressed, base64). Values are nanoseconds. Tags are operations ("write", "read-index") and, for the open
// loop, what is measured of them: "write.service" and "write.lag" beside "write", which counts from the
// intended start. HdrHistogram's own viewers open these files.
//
// Our own reader is strict. The library's skips lines that it does not understand, and a report would then
// show a run with a hole in it as if it were whole.

// Suffixes of tags.
const (
	TagService = ".service" // from the actual send
	TagLag     = ".lag"     // from the intended to the actual send
)

const (
	maxHistogramLogBytes  = 256 << 20
	maxHistogramLineBytes = 4 << 20
	maxIntervals          = 1_000_000
)

var tagName = regexp.MustCompile(`^[a-z0-9][a-z0-9.+-]{0,63}$`)

// Interval is the latencies of one operation in [Start, End).
type Interval struct {
	Tag       string
	Start     time.Time // to the millisecond
	End       time.Time
	Histogram *hdrhistogram.Histogram // nanoseconds
}

// HistogramLog writes one file. It belongs to one goroutine.
type HistogramLog struct {
	name string
	file *pendingFile
	buf  *bufio.Writer
	log  *hdrhistogram.HistogramLogWriter
}

// Histograms begins the file NAME.hlog. It has that name only after Close.
func (w *Writer) Histograms(name string, began time.Time) (*HistogramLog, error) {
	name += ".hlog"
	if !fileName.MatchString(name) {
		return nil, fmt.Errorf("%q is no name for histograms", name)
	}
	file, err := createPending(filepath.Join(w.dir, name))
	if err != nil {
		return nil, err
	}
	buf := bufio.NewWriter(file)
	l := &HistogramLog{name: name, file: file, buf: buf, log: hdrhistogram.NewHistogramLogWriter(buf)}
	err = errors.Join(
		l.log.OutputComment("[Latencies of one repeat in nanoseconds, logged by millrace lab]"),
		l.log.OutputLogFormatVersion(),
		l.log.OutputStartTime(began.UnixMilli()),
		l.log.OutputLegend())
	if err != nil {
		l.Discard()
		return nil, err
	}
	return l, nil
}

// Add appends an interval. Intervals are added in the order of their start; those of several tags may
// alternate. The histogram's own tag and times are overwritten.
func (l *HistogramLog) Add(i Interval) error {
	if !tagName.MatchString(i.Tag) || i.End.Before(i.Start) {
		return fmt.Errorf("%s: interval %q from %v to %v is none", l.name, i.Tag, i.Start, i.End)
	}
	i.Histogram.SetTag(i.Tag)
	i.Histogram.SetStartTimeMs(i.Start.UnixMilli())
	i.Histogram.SetEndTimeMs(i.End.UnixMilli())
	return l.log.OutputIntervalHistogram(i.Histogram)
}

// Close makes the file durable under its name, and returns it for Repeat.Histograms.
func (l *HistogramLog) Close() (name string, err error) {
	if err := l.buf.Flush(); err != nil {
		l.Discard()
		return "", err
	}
	return l.name, l.file.publish()
}

// Discard removes the file. It may be called at any time, and does nothing after Close.
func (l *HistogramLog) Discard() { l.file.discard() }

// ReadHistograms calls f with each interval of a file of the directory, in the order of the file. It stops
// at the first error of f.
func (a *Archive) ReadHistograms(name string, f func(Interval) error) error {
	if !fileName.MatchString(name) {
		return damaged(a.Dir, name, "that is no name for histograms")
	}
	file, err := os.Open(filepath.Join(a.Dir, name))
	if err != nil {
		return cannotRead(a.Dir, name, err)
	}
	defer file.Close()
	lines := bufio.NewScanner(io.LimitReader(file, maxHistogramLogBytes+1))
	lines.Buffer(make([]byte, 0, 64<<10), maxHistogramLineBytes)
	count := 0
	for number := 1; lines.Scan(); number++ {
		line := lines.Text()
		if line == "" || strings.HasPrefix(line, "#") || strings.HasPrefix(line, `"`) {
			continue
		}
		if count++; count > maxIntervals {
			return damaged(a.Dir, name, fmt.Sprintf("more than %d intervals", maxIntervals))
		}
		interval, err := parseInterval(line)
		if err != nil {
			return damaged(a.Dir, name, fmt.Sprintf("line %d: %v", number, err))
		}
		if err := f(interval); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return damaged(a.Dir, name, err.Error())
	}
	if at, err := file.Seek(0, io.SeekCurrent); err == nil && at > maxHistogramLogBytes {
		return damaged(a.Dir, name, fmt.Sprintf("more than %d MiB", maxHistogramLogBytes>>20))
	}
	return nil
}

func parseInterval(line string) (Interval, error) {
	var i Interval
	if tagged, ok := strings.CutPrefix(line, "Tag="); ok {
		if i.Tag, line, ok = strings.Cut(tagged, ","); !ok || !tagName.MatchString(i.Tag) {
			return i, fmt.Errorf("its tag is %q", clip(i.Tag))
		}
	}
	fields := strings.Split(line, ",")
	if len(fields) != 4 {
		return i, fmt.Errorf("%d fields, want start, length, maximum and histogram", len(fields))
	}
	start, err1 := strconv.ParseFloat(fields[0], 64)
	length, err2 := strconv.ParseFloat(fields[1], 64)
	if err1 != nil || err2 != nil || !(start >= 0 && start < math.MaxInt32*1e3) || !(length >= 0 && length <= maxRepeatTime.Seconds()) {
		return i, fmt.Errorf("it begins at %q and lasts %q seconds", clip(fields[0]), clip(fields[1]))
	}
	i.Start = time.UnixMilli(int64(math.Round(start * 1e3))).UTC()
	i.End = i.Start.Add(time.Duration(math.Round(length*1e3)) * time.Millisecond)
	var err error
	if i.Histogram, err = decode(fields[3]); err != nil {
		return i, fmt.Errorf("its histogram: %w", err)
	}
	return i, nil
}

// decode turns what the decoder may do with damaged bytes into an error.
func decode(text string) (h *hdrhistogram.Histogram, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("it cannot be decoded (%v)", p)
		}
	}()
	return hdrhistogram.Decode([]byte(text))
}
