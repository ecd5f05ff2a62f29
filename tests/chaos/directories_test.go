//go:build linux

package chaos

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

// Faults of directories: lost, exchanged, copied, restored. Only one of them, and no change of the members,
// is under way at a time: two lost directories of three are more than the group may survive.

// copyPlace is where a second copy of a host runs in the network. No member has this id.
const copyPlace = maxHosts

// holdDirectory holds e.plans and a host whose directory is not on the small disk.
func (e *episode) holdDirectory(f fault) (h *host, release func(), err error) {
	e.plans.Lock()
	if h, err = e.hold(f); err == nil && h.id == e.plan.disk {
		h.lock.Unlock()
		ids := e.memberIDs()
		f.leader, f.place = false, slices.Index(ids, h.id)+1
		h, err = e.hold(f)
	}
	if err != nil {
		e.plans.Unlock()
		return nil, nil, err
	}
	return h, func() {
		h.lock.Unlock()
		e.plans.Unlock()
	}, nil
}

// refused starts a host on a directory that is not its last one, and waits until it has ended by itself with
// a sentence.
func (e *episode) refused(h *host, words ...string) error {
	if err := h.launch(true); err != nil {
		return err
	}
	if err := h.waitEnd(fmt.Sprintf("although its directory should be refused: %q", words)); err != nil {
		return err
	}
	exit := (*exec.ExitError)(nil)
	if !errors.As(h.last().err, &exit) || exit.ExitCode() != 1 || h.says(words...) == "" {
		return fmt.Errorf("host %d ended with %v, want status 1 and a sentence with %q\n%s", h.id, h.last().err, words, h.tail())
	}
	e.say("host %d was refused: %s", h.id, h.says(words...))
	return nil
}

func makeWiped(e *episode, f fault) error {
	h, release, err := e.holdDirectory(f)
	if err != nil {
		return err
	}
	defer release()
	if err := h.kill(); err != nil {
		return err
	}
	if err := os.RemoveAll(h.dir); err != nil {
		return err
	}
	e.hit(f.kind.name)
	_ = e.wait(f.lasts)
	if e.isOfFounders(h.id) {
		h.args = e.flags(h, e.founders, e.net.raft)
		if err := e.refused(h, "a majority of its members, refuse the directory", fmt.Sprintf("has another directory than host %d had before", h.id)); err != nil {
			return err
		}
	}
	return e.replaceLost(h, f.rng().IntN(2) == 0)
}

// isOfFounders reports whether a host and a majority beside it are founders that are members still. Only
// these tell a host on an empty directory, which knows no others, that it is refused. Otherwise it waits.
func (e *episode) isOfFounders(id int) bool {
	rest := slices.DeleteFunc(slices.Clone(e.founders), func(f int) bool { return f == id || !slices.Contains(e.memberIDs(), f) })
	return slices.Contains(e.founders, id) && len(rest) > len(e.founders)/2
}

func makeExchanged(e *episode, f fault) error {
	h, release, err := e.holdDirectory(f)
	if err != nil {
		return err
	}
	defer release()
	other := e.members()[0]
	if other == h {
		other = e.members()[1]
	}
	if err := h.kill(); err != nil {
		return err
	}
	own := h.dir + "-own"
	if err := os.Rename(h.dir, own); err != nil {
		return err
	}
	if err := copyDir(h.dir, other.dir); err != nil {
		return err
	}
	e.hit(f.kind.name)
	_ = e.wait(f.lasts)
	if err := e.refused(h, "belongs to host", fmt.Sprintf("Config.ID is %d", h.id)); err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(h.dir), os.Rename(own, h.dir)); err != nil {
		return err
	}
	return h.start()
}

// copied stops a host, copies its directory, starts it again, and waits until all others have seen this later
// life of the directory.
func (e *episode) copied(h *host, to string) error {
	if err := h.kill(); err != nil {
		return err
	}
	if err := copyDir(to, h.dir); err != nil {
		return err
	}
	before := map[int]uint64{}
	for _, other := range e.members() {
		before[other.id], _ = generation(other, h.id)
	}
	if err := h.start(); err != nil {
		return err
	}
	return e.eventually(maxWait, fmt.Sprintf("all others have seen the life of host %d after the copy", h.id), func() error {
		for _, other := range e.members() {
			if other == h {
				continue
			}
			if g, err := generation(other, h.id); err != nil || g <= before[other.id] {
				return fmt.Errorf("host %d has recorded life %d of the directory, and life %d before it (%v)", other.id, g, before[other.id], err)
			}
		}
		return nil
	})
}

// generation returns the life of the directory of a host that another one has recorded.
func generation(by *host, of int) (uint64, error) {
	text, err := os.ReadFile(filepath.Join(by.dir, "peers.json"))
	if err != nil {
		return 0, err
	}
	var file struct {
		Peers []struct {
			ID         int
			Generation uint64
		}
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return 0, err
	}
	for _, p := range file.Peers {
		if p.ID == of {
			return p.Generation, nil
		}
	}
	return 0, fmt.Errorf("host %d has recorded nothing of host %d", by.id, of)
}

// turnedAway waits until all others have refused a host that runs on a copy of the directory of a host, and
// checks that it takes no part. It does not end by itself: it cannot know which of the two is the copy.
func (e *episode) turnedAway(h *host) error {
	const sentence = "runs on a copy or an old backup of the directory"
	err := e.eventually(maxWait, fmt.Sprintf("all others refuse the copy of host %d", h.id), func() error {
		for _, id := range e.memberIDs() {
			if id != h.id && h.says(fmt.Sprintf("peer=%d ", id), sentence) == "" {
				return fmt.Errorf("host %d has not said so to it", id)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	e.say("a copy of host %d was refused: %s", h.id, h.says(sentence))
	if s, err := h.status(); err != nil || s.Leader != 0 {
		return fmt.Errorf("host %d runs on a copy of its directory, which all others refuse, and takes part: %+v (%v)", h.id, s, err)
	}
	return nil
}

func makeCopied(e *episode, f fault) error {
	h, release, err := e.holdDirectory(f)
	if err != nil {
		return err
	}
	defer release()
	second := newHost(e, h.id)
	second.place, second.base = copyPlace, h.base+"-copy"
	second.dir = filepath.Join(second.base, "data")
	if err := e.copied(h, second.dir); err != nil {
		return err
	}
	second.args = e.argsNow(second)
	if err := second.start(); err != nil {
		return err
	}
	e.hit(f.kind.name)
	if err := errors.Join(e.turnedAway(second), second.kill()); err != nil {
		return err
	}
	return os.RemoveAll(second.base)
}

func makeRestored(e *episode, f fault) error {
	h, release, err := e.holdDirectory(f)
	if err != nil {
		return err
	}
	defer release()
	backup := h.dir + "-backup"
	if err := e.copied(h, backup); err != nil {
		return err
	}
	_ = e.wait(f.lasts)
	if err := h.kill(); err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(h.dir), os.Rename(backup, h.dir), h.start()); err != nil {
		return err
	}
	e.hit(f.kind.name)
	if err := errors.Join(e.turnedAway(h), h.kill()); err != nil {
		return err
	}
	return e.replaceLost(h, f.rng().IntN(2) == 0)
}

// copyDir copies a directory. A process may still use it: its sockets, and files that vanish meanwhile, are
// left out.
func copyDir(to, from string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, name), 0o700)
		}
		if d.Type()&fs.ModeSocket != 0 {
			return nil
		}
		if err := copyFile(filepath.Join(to, name), path); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
}

func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
