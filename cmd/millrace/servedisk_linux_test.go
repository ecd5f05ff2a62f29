package main

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	smallDisk = 160 << 20 // for one segment of the log, and a part of the next
	largeDisk = 1 << 30
	hogBytes  = 256 << 10
	maxHogs   = 800
)

// TestServeOnAFullDisk fills the disk of one of three processes while clients write. That member must say
// what is full and what to do, in its readiness, when it ends, and when it is started without space. The
// others go on. With space and a start it is level with them.
func TestServeOnAFullDisk(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes half a minute")
	}
	dir := t.TempDir()
	small := filepath.Join(dir, "0")
	if err := os.Mkdir(small, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", small, "tmpfs", 0, fmt.Sprint("mode=700,size=", smallDisk)); err != nil {
		t.Skipf("a small disk needs root: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(small, unix.MNT_DETACH) })
	members := startServants(t, dir)
	lame, others := members[0], members[1:]
	if err := within(time.Minute, func() error { return lame.put("first") }); err != nil {
		t.Fatal(err)
	}
	fillDisk(t, filepath.Join(small, "filler"))

	const advice = "Make space on the disk, then restart it"
	value, written := base64.StdEncoding.EncodeToString(make([]byte, hogBytes)), 0
	// It says so of its readiness. If the database cannot continue behind that, the process has ended.
	saysSo := func() bool {
		ready := lame.readyz()
		return strings.Contains(ready, advice) || ready == "" && strings.Contains(lame.said(t), advice)
	}
	for !saysSo() {
		key := base64.StdEncoding.EncodeToString(fmt.Append(nil, "hog", written))
		_, _ = others[written%2].post("/v3/kv/put", fmt.Sprintf(`{"key":%q,"value":%q}`, key, value))
		if written++; written > maxHogs {
			t.Fatalf("the disk is not full after %d values:\n%s\n%s", written, lame.readyz(), lame.said(t))
		}
	}
	for k, s := range others { // the two go on
		if err := within(time.Minute, func() error { return s.put(fmt.Sprint("beside", k)) }); err != nil {
			t.Error(err)
		}
	}
	if status := lame.end(syscall.SIGTERM); status != exitCannot || !strings.Contains(lame.said(t), "millrace: the disk of the database was full") {
		t.Errorf("the member ends with status %d and says\n%s", status, lame.said(t))
	}

	fillDisk(t, filepath.Join(small, "more"))
	lame.log += "-full"
	lame.start()
	_ = lame.cmd.Wait()
	if said := lame.said(t); lame.cmd.ProcessState.ExitCode() != exitCannot || !strings.Contains(strings.ToLower(said), "make space") || strings.Contains(said, "goroutine ") {
		t.Errorf("a start on a full disk ends with status %d and says\n%s", lame.cmd.ProcessState.ExitCode(), said)
	}

	if err := unix.Mount("tmpfs", small, "tmpfs", unix.MS_REMOUNT, fmt.Sprint("size=", largeDisk)); err != nil {
		t.Fatal(err)
	}
	lame.log += "-more"
	lame.start()
	if err := within(time.Minute, func() error {
		hash := lame.hash()
		if a, b := others[0].hash(), others[1].hash(); hash == "" || hash != a || hash != b {
			return fmt.Errorf("the states differ: %s, %s, %s", hash, a, b)
		}
		return nil
	}); err != nil {
		t.Errorf("%v\n%s", err, lame.said(t))
	}
}

// fillDisk writes a file until nothing fits, not even a small block.
func fillDisk(t *testing.T, name string) {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		return // no space for a file either
	}
	defer f.Close()
	for size := 1 << 20; size >= 512; {
		if _, err := f.Write(make([]byte, size)); errors.Is(err, syscall.ENOSPC) {
			size /= 2
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// within calls f until it succeeds.
func within(d time.Duration, f func() error) error {
	for end := time.Now().Add(d); ; <-time.After(100 * time.Millisecond) {
		if err := f(); err == nil || time.Now().After(end) {
			return err
		}
	}
}

func (s *servant) said(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(s.log)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// readyz is what the member says of its readiness, "" if it does not answer.
func (s *servant) readyz() string {
	r, err := (&http.Client{Timeout: 20 * time.Second}).Get("http://" + s.addr + "/readyz?verbose")
	if err != nil {
		return ""
	}
	defer r.Body.Close()
	b, _ := io.ReadAll(r.Body)
	return string(b)
}

// hash is the revision of the member and the hash of its keys, "" if it does not say.
func (s *servant) hash() string {
	answer, err := s.post("/v3/maintenance/hashkv", "{}")
	if err != nil {
		return ""
	}
	return fmt.Sprint(answer["hash_revision"], " ", answer["hash"])
}
