package wal

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/wal/record"
)

// BenchmarkScan opens a log of 1 KiB entries from the page cache, with one thread and with two, and also
// only reads its files. It alternates between them and takes the fastest of each. It reports MB of files
// per second and two ratios: two threads ÷ one, and two threads ÷ reading the files. Open is an Inspect
// here, which reads with the same functions and changes nothing.
func BenchmarkScan(b *testing.B) {
	dir := b.TempDir()
	l := mustOpen(b, Options{Dir: dir, Scheduler: env.Real().Scheduler, SegmentBytes: 16 << 20})
	const batch = 500
	for i := uint64(1); i <= 400_000; i += batch {
		mustAppend(b, l, Write{Group: 1, Entries: entries(i, i+batch, 1, 1024)})
	}
	mustClose(b, l)
	names, err := filepath.Glob(filepath.Join(dir, "*"+record.SegmentSuffix))
	if err != nil {
		b.Fatal(err)
	}
	scan := func(threads int) {
		in, err := Inspect(b.Context(), InspectOptions{Dir: dir, ScanThreads: threads})
		if err != nil || len(in.Findings) > 0 {
			b.Fatal(in, err)
		}
		if err := in.Close(); err != nil {
			b.Fatal(err)
		}
	}
	bytes := int64(0)
	buf := make([]byte, 16<<20)
	read := func(int) {
		bytes = 0
		for _, name := range names {
			f, err := os.Open(name)
			if err != nil {
				b.Fatal(err)
			}
			n, _ := f.ReadAt(buf, 0) // a short read would show in the results
			bytes += int64(n)
			f.Close()
		}
	}
	var took [4]time.Duration
	runs := []struct {
		name    string
		do      func(threads int)
		threads int
	}{{"read", read, 0}, {"1-thread", scan, 1}, {"2-threads", scan, 2}, {"4-threads", scan, 4}}
	for b.Loop() {
		for i, r := range runs {
			start := time.Now()
			r.do(r.threads)
			if t := time.Since(start); took[i] == 0 || t < took[i] {
				took[i] = t
			}
		}
	}
	for i, r := range runs {
		b.ReportMetric(float64(bytes)/1e6/took[i].Seconds(), fmt.Sprintf("MB/s-%s", r.name))
	}
	b.ReportMetric(took[1].Seconds()/took[2].Seconds(), "2-threads/1")
	b.ReportMetric(took[0].Seconds()/took[2].Seconds(), "2-threads/read")
	b.ReportMetric(0, "ns/op")
}
