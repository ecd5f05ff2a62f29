package rig

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Chill takes the files of some hosts, which are closed, out of the memory of the kernel, as after a start
// of the machine. It reads them once, each host's one after the other and all hosts at once. perSecond is
// how many bytes a second the disk gives to the host with the most bytes. After the reading it takes them
// out again. errors.ErrUnsupported means that this system cannot do that.
func (c *Cluster) Chill(ctx context.Context, which []int) (perSecond float64, err error) {
	if err := c.OnEach(which, (*Member).forget); err != nil {
		return 0, err
	}
	began := time.Now()
	if err := c.OnEach(which, func(m *Member) error { return m.read(ctx) }); err != nil {
		return 0, err
	}
	took, most := time.Since(began), int64(0)
	for _, i := range which {
		n, err := c.members[i].LogBytes()
		if err != nil {
			return 0, err
		}
		most = max(most, n)
	}
	return float64(most) / took.Seconds(), c.OnEach(which, (*Member).forget)
}

// eachFile calls f for each file of a host.
func (m *Member) eachFile(f func(*os.File) error) error {
	return filepath.WalkDir(m.cluster.dir(int(m.ID-1)), func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		file, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		return errors.Join(f(file), file.Close())
	})
}

func (m *Member) read(ctx context.Context) error {
	block := make([]byte, 1<<20)
	return m.eachFile(func(f *os.File) error {
		for ctx.Err() == nil {
			if _, err := f.Read(block); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
		}
		return context.Cause(ctx)
	})
}
