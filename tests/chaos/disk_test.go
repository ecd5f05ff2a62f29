//go:build linux

package chaos

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// smallDisk is an ext4 filesystem of its own in a file, which takes a part for itself. There is space for
// the segment that a log writes and for its reserve, without which a log that is opened again takes no
// entries; and ballast in the place of others. The mount is in the namespace of the tests, and the kernel
// frees the loop device when the mount is gone.
type smallDisk struct{ image, mount string }

const (
	smallDiskBytes = 512 << 20
	noteBytes      = 512 << 10
	hogBytes       = 900 << 10 // of a value that makes logs grow
	maxHogs        = 300
)

func newSmallDisk(base string, space int64) (d *smallDisk, err error) {
	d = &smallDisk{filepath.Join(base, "disk.img"), filepath.Join(base, "disk")}
	if err := os.MkdirAll(d.mount, 0o700); err != nil {
		return nil, err
	}
	if err := os.WriteFile(d.image, nil, 0o600); err != nil {
		return nil, err
	}
	if err := os.Truncate(d.image, smallDiskBytes); err != nil {
		return nil, err
	}
	if err := theWorld.run(nil, "", theWorld.mkfs, "-q", "-F", "-m", "0", d.image); err != nil {
		return nil, err
	}
	if err := theWorld.run(nil, "", "mount", "-o", "loop", d.image, d.mount); err != nil {
		return nil, err
	}
	var s unix.Statfs_t
	if err := unix.Statfs(d.mount, &s); err != nil {
		return nil, errors.Join(err, d.close())
	}
	if err := d.fill("ballast", int64(s.Bavail)*s.Bsize-space); err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

func (d *smallDisk) data() string { return filepath.Join(d.mount, "data") }

// fill takes n bytes of the disk for a file with this name.
func (d *smallDisk) fill(name string, n int64) error {
	file, err := os.Create(filepath.Join(d.mount, name))
	if err != nil {
		return err
	}
	defer file.Close()
	return unix.Fallocate(int(file.Fd()), 0, 0, n)
}

// fillRest takes what is free, apart from the blocks that the filesystem needs to note it.
func (d *smallDisk) fillRest() error {
	var s unix.Statfs_t
	if err := unix.Statfs(d.mount, &s); err != nil {
		return err
	}
	n := int64(s.Bavail)*s.Bsize - noteBytes
	if n <= 0 {
		return nil
	}
	if err := d.fill("rest", n); !errors.Is(err, unix.ENOSPC) {
		return err
	}
	return nil // the host has written meanwhile, and the disk is full
}

// free removes all ballast.
func (d *smallDisk) free() error {
	for _, name := range []string{"ballast", "rest"} {
		if err := os.Remove(filepath.Join(d.mount, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func (d *smallDisk) close() error { return unix.Unmount(d.mount, unix.MNT_DETACH) }

// makeFullDisk fills the small disk, so that its host can take no snapshot and its log needs all of its
// segments, and writes large values until the log needs one that does not fit. It keeps it so for a while.
// The host must live, and take entries again when there is space. No other fault restarts it meanwhile: a
// start needs some space.
func makeFullDisk(e *episode, f fault) error {
	h := e.host(e.plan.disk)
	h.lock.Lock()
	defer h.lock.Unlock()
	if !slices.Contains(e.memberIDs(), h.id) || !h.isUp() {
		return nil // it was replaced before
	}
	if err := e.disk.fillRest(); err != nil {
		return err
	}
	if err := e.hog(f, h); err != nil {
		return err
	}
	if h.count("group_disk_full") == 1 {
		e.hit(f.kind.name)
		e.say("the disk of host %d is full", h.id)
		_ = e.wait(second)
	}
	if err := e.disk.free(); err != nil {
		return err
	}
	return e.eventually(maxWait, fmt.Sprintf("host %d takes entries again", h.id), func() error {
		if n := h.count("group_disk_full"); n != 0 {
			return fmt.Errorf("group_disk_full is %d", n)
		}
		return nil
	})
}

// hog overwrites one key with large values until a host says that its disk is full, or the fault has lasted
// its time.
func (e *episode) hog(f fault, h *host) error {
	ctx, cancel := context.WithTimeout(e.ctx, f.lasts)
	defer cancel()
	k := &client{load: e.load, id: clients}
	ids := slices.DeleteFunc(e.memberIDs(), func(id int) bool { return id == h.id })
	for i := range maxHogs {
		if ctx.Err() != nil || h.count("group_disk_full") == 1 {
			break
		}
		_ = k.ask(ctx, ids[i%len(ids)], request{method: http.MethodPut, key: "hog", body: strings.Repeat("h", hogBytes)}, "")
	}
	if e.ctx.Err() != nil {
		return errEnded
	}
	return nil
}
