//go:build linux

package chaos

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// Hosts run in a directory of their own, and all their paths are relative to it: data, log, snapshots, admin
// socket, certificates, key, CA. The fault changes the working directory of one while it runs.

// elsewhere is the directory to which a host's process goes.
func (h *host) elsewhere() string { return filepath.Join(h.base, "elsewhere") }

// relative returns a path as the process of a host names it.
func (h *host) relative(path string) string {
	if short, err := filepath.Rel(h.base, path); err == nil {
		return short
	}
	return path
}

// overlay writes the list of files that the build adds to the program of the hosts, and returns its path.
func overlay(base string) (string, error) {
	added, err := filepath.Abs(filepath.Join("testdata", "chdir.go"))
	if err != nil {
		return "", err
	}
	to, err := filepath.Abs(filepath.Join("..", "..", "examples", "kv", "chaos_chdir.go"))
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(map[string]any{"Replace": map[string]string{to: added}})
	if err != nil {
		return "", err
	}
	list := filepath.Join(base, "overlay.json")
	return list, os.WriteFile(list, text, 0o600)
}

// makeChdir changes the working directory of a host. It must take a snapshot afterwards, and write nothing
// into the new directory. Its certificates are read again, and its next start is in the old directory.
func makeChdir(e *episode, f fault) error {
	h, err := e.hold(f)
	if err != nil {
		return err
	}
	defer h.lock.Unlock()
	l := h.last()
	cwd := fmt.Sprintf("/proc/%d/cwd", l.cmd.Process.Pid)
	err = e.eventually(maxWait, fmt.Sprintf("host %d answers", h.id), func() error {
		_, err := h.status() // it takes signals
		return err
	})
	if err != nil || !h.isUp() {
		return err
	}
	if err := h.signal(syscall.SIGUSR1); err != nil {
		return err
	}
	taken := 0
	err = e.eventually(maxWait, fmt.Sprintf("host %d is in its new working directory", h.id), func() error {
		if to, err := os.Readlink(cwd); err != nil || to != h.elsewhere() {
			return fmt.Errorf("it is in %q (%v)", to, err)
		}
		if taken = h.count("group_snapshots_taken_total"); taken < 0 {
			return errors.New("it does not answer")
		}
		return nil
	})
	if err != nil {
		return err
	}
	e.hit(f.kind.name)
	_ = e.wait(f.lasts)
	err = e.eventually(maxWait, fmt.Sprintf("host %d takes a snapshot in its new working directory", h.id), func() error {
		if n := h.count("group_snapshots_taken_total"); n <= taken {
			return fmt.Errorf("it has taken %d", n)
		}
		return nil
	})
	return errors.Join(err, h.wroteElsewhere())
}

// wroteElsewhere says what a host has written into a directory that is only its working directory.
func (h *host) wroteElsewhere() error {
	names, err := os.ReadDir(h.elsewhere())
	if err != nil || len(names) == 0 {
		return err
	}
	return fmt.Errorf("host %d has changed its working directory, and %s, which was empty, has %v", h.id, h.elsewhere(), names)
}
