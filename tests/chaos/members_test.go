//go:build linux

package chaos

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The members of the cluster, changed over HTTP as an operator does it.

// memberList is the part of GET /members that the tests need.
type memberList struct {
	Voters, Learners, Removed []int
	Plan                      string
	All                       []struct {
		ID  int
		Key string // in hexadecimal digits
	}
}

func (h *host) members() (m memberList, err error) { return m, h.ask("/members", &m) }

// keyOf returns the key of a certificate to which a member is bound, as this host has applied it.
func (m memberList) keyOf(id int) (key string) {
	for _, member := range m.All {
		if member.ID == id {
			key = member.Key
		}
	}
	return key
}

// list is a flag of the program: addresses by host.
func list(ids []int, address func(id int) string) string {
	var items []string
	for _, id := range ids {
		items = append(items, fmt.Sprintf("%d=%s", id, address(id)))
	}
	return strings.Join(items, ",")
}

// flags are the arguments of a host that knows these hosts and reaches them at their addresses.
func (e *episode) flags(h *host, known []int, address func(id int) string) []string {
	args := []string{"-id", strconv.Itoa(h.id), "-dir", h.relative(h.dir), "-heartbeat", "50ms", "-snapshot-bytes", "262144", "-timeout", "20s",
		fmt.Sprint("-redirect=", h.id%3 == 0), "-peers", list(known, address), "-http", list(known, func(id int) string {
			if id == h.id {
				return e.net.client(h.place)
			}
			return e.net.client(id)
		})}
	if theWorld.namespaces {
		args = append(args, "-public")
	}
	for i, arg := range e.certificates.Flags(h.id) {
		if i%2 == 1 {
			arg = h.relative(arg)
		}
		args = append(args, arg)
	}
	return args
}

// argsNow are the arguments of a host that knows all members, and reaches them over the links of the network.
func (e *episode) argsNow(h *host) []string {
	known := e.memberIDs()
	if !slices.Contains(known, h.id) {
		known = append(known, h.id)
	}
	return e.flags(h, known, func(id int) string {
		if id == h.id {
			return e.net.raft(h.place)
		}
		return e.net.seen(h.id, id)
	})
}

func (e *episode) joins() []string {
	return []string{"-joins", "-cluster", strconv.FormatUint(e.cluster, 10)}
}

// changer asks for changes of the members. It tries hosts in turn.
var changer = &http.Client{Timeout: 25 * time.Second}

// post posts a form to a host.
func (e *episode) post(by *host, path string, form url.Values) (text string, err error) {
	r, err := changer.PostForm("http://"+e.net.client(by.place)+path, form)
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err == nil && r.StatusCode != http.StatusOK {
		err = fmt.Errorf("host %d: %s: %s", by.id, r.Status, b)
	}
	return string(b), err
}

// change makes one change of the members, whatever disturbs it: it is asked for again until it is in force.
// Only hosts for which by is true are asked; nil is all members. The caller holds e.plans.
func (e *episode) change(word, what string, by func(id int) bool) error {
	text, _, _ := strings.Cut(what, "=")
	id, _ := strconv.Atoi(text)
	isDone := func(asked *host) bool {
		m, err := asked.members()
		if err != nil || m.Plan != "" {
			return false
		}
		switch word {
		case "add", "promote":
			return slices.Contains(m.Voters, id)
		case "demote":
			return slices.Contains(m.Learners, id)
		case "remove":
			return slices.Contains(m.Removed, id)
		}
		return false
	}
	turn := 0
	return e.eventually(maxWait, fmt.Sprintf("the members are changed by %s %s", word, what), func() error {
		ids := slices.DeleteFunc(e.memberIDs(), func(id int) bool { return by != nil && !by(id) })
		if len(ids) == 0 {
			return errors.New("no host can be asked yet")
		}
		asked := e.host(ids[turn%len(ids)])
		turn++
		_, err := e.post(asked, "/members", url.Values{word: {what}})
		if err != nil && isDone(asked) {
			return nil
		}
		return err
	})
}

// replaceLost puts a new directory in the place of one that is lost: the host joins as a new one, by a token
// or by a plan. The caller holds e.plans and the lock of the host, which does not run.
func (e *episode) replaceLost(h *host, byToken bool) error {
	if err := os.RemoveAll(h.dir); err != nil {
		return err
	}
	if byToken {
		return e.joinByToken(h)
	}
	h.args = append(e.argsNow(h), e.joins()...)
	if err := h.start(); err != nil {
		return err
	}
	// A plan binds the directory with which the host came last, as the member that makes the plan knows it: one
	// that has refused the new directory does.
	met := func(id int) bool {
		return h.says(fmt.Sprintf("peer=%d ", id), fmt.Sprintf("has another directory than host %d had before", h.id)) != ""
	}
	if err := e.change("replace", strconv.Itoa(h.id), met); err != nil {
		return err
	}
	return e.waitVoter(h)
}

func (e *episode) joinByToken(h *host) error {
	file := filepath.Join(h.base, "token")
	turn := 0
	err := e.eventually(maxWait, fmt.Sprintf("a join token for host %d is made", h.id), func() error {
		others := slices.DeleteFunc(e.memberIDs(), func(id int) bool { return id == h.id })
		by := e.host(others[turn%len(others)])
		turn++
		text, err := e.post(by, "/members/token", url.Values{"member": {strconv.Itoa(h.id)}})
		if err != nil {
			return err
		}
		return os.WriteFile(file, []byte(text), 0o600)
	})
	if err != nil {
		return err
	}
	h.args = append(e.argsNow(h), "-join-token-file", file)
	if err := h.start(); err != nil {
		return err
	}
	return e.waitVoter(h)
}

// waitVoter waits until a host that was added or replaced votes and is level.
func (e *episode) waitVoter(h *host) error {
	return e.eventually(maxWait, fmt.Sprintf("host %d is a voter", h.id), func() error {
		m, err := h.members()
		if err == nil && (m.Plan != "" || !slices.Contains(m.Voters, h.id)) {
			err = fmt.Errorf("it sees voters %v, learners %v, plan %q", m.Voters, m.Learners, m.Plan)
		}
		return err
	})
}

// exchange adds a new host and removes an old one, which must end by itself. The caller holds e.plans.
func (e *episode) exchange(old *host) error {
	fresh, err := e.newMember()
	if err != nil {
		return err
	}
	if err := e.join(fresh); err != nil {
		return err
	}
	old.lock.Lock()
	defer old.lock.Unlock()
	old.wantEnd()
	if err := e.change("remove", strconv.Itoa(old.id), func(id int) bool { return id != old.id }); err != nil {
		return err
	}
	e.setMembers(slices.DeleteFunc(e.memberIDs(), func(id int) bool { return id == old.id }))
	if err := old.waitEnd("after it was removed"); err != nil {
		return err
	}
	if old.says("was removed from group") == "" {
		return fmt.Errorf("host %d was removed, and does not say so:\n%s", old.id, old.tail())
	}
	return nil
}

// join makes a new host a member.
func (e *episode) join(fresh *host) error {
	fresh.lock.Lock()
	defer fresh.lock.Unlock()
	fresh.args = append(e.argsNow(fresh), e.joins()...)
	if err := fresh.start(); err != nil {
		return err
	}
	if err := e.change("add", fmt.Sprintf("%d=%s", fresh.id, e.net.raft(fresh.id)), nil); err != nil {
		return err
	}
	if err := e.waitVoter(fresh); err != nil {
		return err
	}
	e.setMembers(append(e.memberIDs(), fresh.id))
	return nil
}
