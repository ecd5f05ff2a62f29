package experiment

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/vfs"
)

// Sizes of the probes. Together they write at most 128 MiB, and less on a slow disk.
const (
	fsyncBytes     = 4 << 10
	fsyncFileBytes = 16 << 20
	streamBytes    = 1 << 20
	maxStreamBytes = 96 << 20
	networkBytes   = 1 << 10
	memoryBytes    = 64 << 10
	maxMeasured    = time.Minute

	// ProbeBytes is the most that a probe writes into the directory at a time.
	ProbeBytes = fsyncFileBytes + maxStreamBytes
)

// ProbeMachine fills in e.Disk, e.Network and e.Memory by trying, for about length altogether. It works in
// a new directory under dir, which is gone when it returns. When ctx ends it stops with ctx's cause.
func ProbeMachine(ctx context.Context, e *archive.Environment, dir string, length time.Duration) (err error) {
	work, err := os.MkdirTemp(dir, ".millrace-probe-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	share := length / 4
	disk := &archive.Disk{}
	if err := measureFsync(ctx, disk, work, share); err != nil {
		return fmt.Errorf("probing the disk: %w", err)
	}
	if err := measureStream(ctx, disk, work, share); err != nil {
		return fmt.Errorf("probing the disk: %w", err)
	}
	e.Disk = disk
	if e.Network, err = measureLoopback(ctx, share); err != nil {
		return fmt.Errorf("probing loopback: %w", err)
	}
	e.Memory, err = measureMemory(ctx, share)
	return err
}

// during calls step until length is over, at least once, and returns the durations in nanoseconds.
func during(ctx context.Context, length time.Duration, step func() error) (*hdrhistogram.Histogram, error) {
	h := hdrhistogram.New(100, int64(maxMeasured), 3)
	for start, begin := time.Now(), time.Now(); h.TotalCount() == 0 || begin.Sub(start) < length; {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err := step(); err != nil {
			return nil, err
		}
		now := time.Now()
		_ = h.RecordValue(int64(min(now.Sub(begin), maxMeasured))) // cannot fail within the bounds
		begin = now
	}
	return h, nil
}

func micros(h *hdrhistogram.Histogram, percentile float64) float64 {
	return float64(h.ValueAtPercentile(percentile)) / 1e3
}

// measureFsync overwrites a file of written zeros in a circle, 4 KiB and one fdatasync at a time: the least
// that a durable log can do.
func measureFsync(ctx context.Context, into *archive.Disk, dir string, length time.Duration) (err error) {
	f, err := lab.CreateZeroed(vfs.OS(), filepath.Join(dir, "fsync"), fsyncFileBytes)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	block, at := make([]byte, fsyncBytes), int64(0)
	h, err := during(ctx, length, func() error {
		if _, err := f.WriteAt(block, at); err != nil {
			return err
		}
		at = (at + fsyncBytes) % fsyncFileBytes
		return f.Sync()
	})
	if err != nil {
		return err
	}
	into.Fsyncs, into.FsyncP50Us, into.FsyncP99Us, into.FsyncMaxUs = int(h.TotalCount()), micros(h, 50), micros(h, 99), float64(h.Max())/1e3
	return nil
}

// measureStream writes a file in large pieces, with one fdatasync at the end that counts too.
func measureStream(ctx context.Context, into *archive.Disk, dir string, length time.Duration) (err error) {
	f, err := vfs.OS().Create(filepath.Join(dir, "stream"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	piece, start, at := make([]byte, streamBytes), time.Now(), int64(0)
	for at == 0 || (at < maxStreamBytes && time.Since(start) < length) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if _, err := f.WriteAt(piece, at); err != nil {
			return err
		}
		at += streamBytes
	}
	if err := f.Sync(); err != nil {
		return err
	}
	into.WriteBytesSec = float64(at) / time.Since(start).Seconds()
	return nil
}

// measureLoopback sends 1 KiB to and fro over one TCP connection.
func measureLoopback(ctx context.Context, length time.Duration) (_ *archive.Network, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer listener.Close()
	done := make(chan error, 1)
	go func() { done <- echo(listener) }()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		return nil, errors.Join(err, listener.Close(), <-done)
	}
	buf := make([]byte, networkBytes)
	h, err := during(ctx, length, func() error {
		if _, err := conn.Write(buf); err != nil {
			return err
		}
		_, err := io.ReadFull(conn, buf)
		return err
	})
	if err = errors.Join(err, conn.Close(), <-done); err != nil {
		return nil, err
	}
	return &archive.Network{Path: "loopback", RoundTrips: int(h.TotalCount()), RTTP50Us: micros(h, 50), RTTP99Us: micros(h, 99)}, nil
}

// echo answers one connection until its other end closes it.
func echo(listener net.Listener) error {
	conn, err := listener.Accept()
	if err != nil {
		return err
	}
	defer conn.Close()
	buf := make([]byte, networkBytes)
	for {
		if _, err := io.ReadFull(conn, buf); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if _, err := conn.Write(buf); err != nil {
			return err
		}
	}
}

// measureMemory checks and copies 64 KiB again and again on one core.
func measureMemory(ctx context.Context, length time.Duration) (*archive.Memory, error) {
	from, to := make([]byte, memoryBytes), make([]byte, memoryBytes)
	table, sum := crc32.MakeTable(crc32.Castagnoli), uint32(0)
	rate := func(step func()) (float64, error) {
		const often = 64 // between two looks at the clock
		steps, start := 0, time.Now()
		_, err := during(ctx, length/2, func() error {
			for range often {
				step()
			}
			steps += often
			return nil
		})
		return float64(steps) * memoryBytes / time.Since(start).Seconds(), err
	}
	m := &archive.Memory{}
	var err error
	if m.CRCBytesSec, err = rate(func() { sum = crc32.Update(sum, table, from) }); err != nil {
		return nil, err
	}
	from[0] = byte(sum) // the sums are used, so none may be left out
	m.CopyBytesSec, err = rate(func() { copy(to, from) })
	return m, err
}
