//go:build linux

package chaos

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/millrace/millrace/tests/history/pki"
)

// makeNewCertificates replaces the CA, and the certificates and keys of all hosts, in the three steps of
// docs/operate/tls.md, while other faults are under way. A host gets a file only while it runs, and is not
// disturbed until it has loaded it and the group knows its new key: a host with a key that it has never named
// is a stranger.
func makeNewCertificates(e *episode, f fault) error {
	e.plans.Lock()
	defer e.plans.Unlock()
	steps, err := e.certificates.Rotation()
	if err != nil {
		return err
	}
	for i, step := range steps {
		e.say("%s", step.Name)
		var all sync.WaitGroup
		errs := make([]error, maxHosts+1)
		for id := 1; id <= maxHosts; id++ {
			all.Go(func() { errs[id] = e.replaceFiles(step, id, i == 1) })
		}
		if all.Wait(); errors.Join(errs...) != nil {
			return fmt.Errorf("%s: %w", step.Name, errors.Join(errs...))
		}
	}
	e.hit(f.kind.name)
	return nil
}

// replaceFiles makes one step for one host, and waits until it has its effect.
func (e *episode) replaceFiles(step pki.Step, id int, newKey bool) error {
	h := e.host(id)
	if h == nil || !slices.Contains(e.memberIDs(), id) {
		return step.Write(id)
	}
	h.lock.Lock()
	defer h.lock.Unlock()
	loads, bound := -1, ""
	err := e.eventually(maxWait, fmt.Sprintf("host %d answers", id), func() (err error) {
		if loads = h.count("certificate_loads_total"); loads < 0 {
			return errors.New("it does not")
		}
		bound, err = e.boundKey(id)
		return err
	})
	if err != nil {
		return err
	}
	if err := step.Write(id); err != nil {
		return err
	}
	return e.eventually(maxWait, fmt.Sprintf("host %d has loaded new files", id), func() error {
		if n := h.count("certificate_loads_total"); n <= loads {
			return fmt.Errorf("it has loaded %d times", n)
		}
		if key, err := e.boundKey(id); newKey && (err != nil || key == bound) {
			return fmt.Errorf("the group is not bound to its new key (%v)", err)
		}
		return nil
	})
}

// boundKey asks the leader to which key a member is bound.
func (e *episode) boundKey(id int) (key string, err error) {
	err = errors.New("no leader is known")
	for _, h := range e.members() {
		s, asked := h.status()
		if asked != nil || s.Leader != uint64(h.id) {
			continue
		}
		var m memberList
		if m, err = h.members(); err != nil {
			continue
		}
		if key = m.keyOf(id); key == "" {
			err = fmt.Errorf("host %d knows no key of host %d", h.id, id)
			continue
		}
		return key, nil
	}
	return key, err
}
