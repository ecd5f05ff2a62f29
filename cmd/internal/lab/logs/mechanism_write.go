package logs

import (
	"errors"
	"os"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/load"
)

// batchWriter carries a mechanism out. One goroutine uses it.
type batchWriter struct {
	mechanism
	path    string
	batch   int64
	file    batchFile
	off     int64
	latency *load.Latencies
	spent   time.Duration
	cpu     time.Duration
}

// roll starts a new file, or the zeroed one again.
func (w *batchWriter) roll() error {
	w.off = 0
	if w.file != nil {
		if w.prepare == zeroed {
			return nil
		}
		if err := errors.Join(w.file.Close(), os.Remove(w.path)); err != nil {
			return err
		}
	}
	file, err := openBatchFile(w.mechanism, w.path, w.batch)
	if err != nil {
		return err
	}
	w.file = file
	return nil
}

// one makes one batch durable.
func (w *batchWriter) one() error {
	start := time.Now()
	if err := w.write(); err != nil {
		return err
	}
	if err := w.flush(w.off - w.batch); err != nil {
		return err
	}
	w.latency.Record(time.Since(start))
	return nil
}

func (w *batchWriter) write() error {
	err := w.file.write(w.off, w.batch)
	w.off += w.batch
	return err
}

// flush makes the batch at off durable, if the write did not.
func (w *batchWriter) flush(off int64) error {
	if w.ranged {
		if err := w.file.writeBack(off, w.batch); err != nil {
			return err
		}
	}
	if w.dsync {
		return nil
	}
	return w.file.sync()
}

// maxOverlapped is how many batches overlapped writes before the caller looks at the clock.
const maxOverlapped = 256

// overlapped writes up to the end of the file. Each batch but the first is written while the one before it is
// being synced. The sync of a batch starts after its write has ended; one sync at a time is under way.
func (w *batchWriter) overlapped() error {
	written := make(chan time.Time)
	synced := make(chan error, 1)
	go func() {
		var failed error
		for start := range written {
			if failed = errors.Join(failed, w.file.sync()); failed == nil {
				w.latency.Record(time.Since(start))
			}
		}
		synced <- failed
	}()
	var err error
	for i := 0; i < maxOverlapped && w.off+w.batch <= mechanismFileBytes && err == nil; i++ {
		start := time.Now()
		if err = w.write(); err == nil {
			written <- start
		}
	}
	close(written)
	return errors.Join(err, <-synced)
}
