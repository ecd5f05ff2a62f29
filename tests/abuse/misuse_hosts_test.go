package abuse_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/host/event"
)

// The hosts of a scene: what they do, and how what they say gets on the page.

// reserved are the addresses that hosts of all scenes have.
var reserved = struct {
	sync.Mutex
	addrs map[string]bool
}{addrs: map[string]bool{}}

// host returns host id of the scene, which does not run yet.
func (s *scene) host(id uint64) *actor {
	var p *party
	for taken := true; taken; {
		p = newParty(s.T, id)
		reserved.Lock()
		taken = reserved.addrs[p.addr]
		reserved.addrs[p.addr] = true
		reserved.Unlock()
	}
	a := &actor{party: p, scene: s, name: fmt.Sprintf("Host %d", id), log: &notebook{}}
	s.hosts = append(s.hosts, a)
	s.label(p.addr, fmt.Sprintf("<addr %d>", id))
	s.label(filepath.Join(p.dir, "data"), fmt.Sprintf("<path %d>", id))
	return a
}

// trio returns hosts 1, 2 and 3, which do not run yet.
func (s *scene) trio() (a, b, c *actor) { return s.host(1), s.host(2), s.host(3) }

// label gives a name to what differs from run to run. A second one of the same name gets another letter.
func (s *scene) label(text, name string) {
	if _, ok := s.labels[text]; ok || text == "" {
		return
	}
	base, taken := name, map[string]bool{}
	for _, n := range s.labels {
		taken[n] = true
	}
	for letter := 'b'; taken[name]; letter++ {
		name = strings.TrimSuffix(base, ">") + string(letter) + ">"
	}
	s.labels[text] = name
}

// notebook keeps the lines of a log.
type notebook struct {
	mu    sync.Mutex
	lines []string
}

// Write receives a line.
func (n *notebook) Write(line []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lines = append(n.lines, strings.TrimSpace(string(line)))
	return len(line), nil
}

func (n *notebook) all() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.lines)
}

// find returns the first line with all words, or "".
func (n *notebook) find(words []string) string {
	lines := n.all()
	if i := slices.IndexFunc(lines, func(line string) bool { return containsAll(line, words) }); i >= 0 {
		return lines[i]
	}
	return ""
}

// actor is one host of a scene.
type actor struct {
	*party
	*scene
	name string
	log  *notebook
}

// learn gives names to what the host has drawn: its directories and clusters.
func (a *actor) learn() {
	var id struct {
		Cluster     uint64
		Incarnation string
	}
	if readJSON(filepath.Join(a.dir, "data", "identity.json"), &id) {
		a.label(id.Incarnation, fmt.Sprintf("<dir %d>", a.id))
		if id.Cluster > 1000 { // it was derived from a list
			a.label(fmt.Sprint(id.Cluster), "<cluster>")
		}
	}
}

// try opens the host and closes it again if that succeeds.
func (a *actor) try(c host.Config) error {
	h, err := a.openWith(c)
	if err == nil {
		err = errors.Join(h.Close(context.Background()))
	}
	return err
}

func (a *actor) openWith(c host.Config) (*host.Host, error) {
	logger := slog.New(slog.NewTextHandler(a.log, &slog.HandlerOptions{Level: slog.LevelWarn, ReplaceAttr: withoutTime}))
	return host.Open(context.Background(), c, host.WithLogger(logger), host.WithEvents(func(e event.Event) {
		select {
		case a.party.said <- e:
		default:
		}
	}))
}

func withoutTime(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}

// start opens the host with a configuration.
func (a *actor) start(c host.Config) *actor {
	a.Helper()
	h, err := a.openWith(c)
	if err != nil {
		a.Fatal(err)
	}
	a.party.Host = h
	a.Cleanup(func() { h.Close(context.Background()) })
	a.learn()
	return a
}

// serve opens theGroup.
func (a *actor) serve(c host.GroupConfig) *host.Group {
	a.Helper()
	c.ID, a.party.journal = theGroup, newJournal()
	g, err := a.OpenGroup(context.Background(), c, a.party.journal)
	if err != nil {
		a.Fatal(err)
	}
	return g
}

// group is theGroup on this host.
func (a *actor) group() *host.Group { return a.Group(theGroup) }

// up opens the host with the addresses of some hosts, and theGroup.
func (a *actor) up(peers ...*actor) *actor {
	a.Helper()
	a.start(a.config(addresses(peers...)))
	a.serve(host.GroupConfig{})
	return a
}

func addresses(hosts ...*actor) map[uint64]string {
	all := map[uint64]string{}
	for _, a := range hosts {
		all[a.id] = a.addr
	}
	return all
}

// found opens hosts that found theGroup, and waits until they have applied a command and know each other.
func (s *scene) found(hosts ...*actor) {
	s.Helper()
	for _, a := range hosts {
		a.up(hosts...)
	}
	s.work("first", hosts...)
	for _, a := range hosts {
		a.remembers(len(hosts)-1, 1)
	}
}

// work returns when a command is applied by these hosts.
func (s *scene) work(command string, hosts ...*actor) {
	s.Helper()
	var ps []*party
	for _, a := range hosts {
		ps = append(ps, a.party)
	}
	write(s.T, ps, command)
}

// logs waits until the host logs a line with all words, and adds it to the page.
func (a *actor) logs(words ...string) {
	a.Helper()
	a.logged(a.name, a.waitLog([]*actor{a}, words))
}

// leaderLogs is logs for the leader, which is one of the hosts: the page does not say which.
func (s *scene) leaderLogs(words ...string) {
	s.Helper()
	s.logged("The leader", theHost.ReplaceAllString(s.waitLog(s.hosts, words), " host=<leader>"))
}

var theHost = regexp.MustCompile(` host=\d+`)

func (s *scene) logged(who, line string) {
	s.says(who+" logs", line)
}

// waitLog waits until one of some hosts logs a line with all words.
func (s *scene) waitLog(hosts []*actor, words []string) (line string) {
	s.Helper()
	ctx, again := deadline(s.T), time.NewTicker(5*time.Millisecond)
	defer again.Stop()
	for {
		for _, a := range hosts {
			if line := a.log.find(words); line != "" {
				return line
			}
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			s.Fatalf("%s does not log %q", hosts[0].name, words)
		}
	}
}

// stops waits until theGroup has stopped on this host, and adds why.
func (a *actor) stops(words ...string) {
	a.Helper()
	select {
	case <-a.group().Failed():
	case <-deadline(a.T).Done():
		a.Fatalf("theGroup of %s has not stopped: %+v", a.name, a.group().Status())
	}
	if err := a.group().Err(); !containsAll(err.Error(), words) {
		a.Fatalf("theGroup of %s has stopped with %v, want %q", a.name, err, words)
	}
	a.says(a.name+", Group.Err", a.group().Err().Error())
}

// times are durations in what Explain says.
var times = regexp.MustCompile(`\b\d+(\.\d+)?(µs|ms|s)\b`)

// explains waits until Explain finds a cause with these words, and adds it.
func (a *actor) explains(code diagnosis.Code, words ...string) {
	a.Helper()
	a.until(fmt.Sprintf("cause %q with %q", code, words), func() bool {
		for _, c := range a.group().Explain().Causes {
			if c.Code == code && containsAll(c.Evidence+c.Fix, words) {
				seen := times.ReplaceAllString(c.Evidence, "<time>")
				a.says(a.name+", Explain", fmt.Sprintf("%s: what is seen: %s; what to do: %s", c.Code, seen, c.Fix))
				return true
			}
		}
		return false
	})
}

// until waits for what no log says.
func (a *actor) until(what string, is func() bool) {
	a.Helper()
	ctx, again := deadline(a.T), time.NewTicker(5*time.Millisecond)
	defer again.Stop()
	for !is() {
		select {
		case <-again.C:
		case <-ctx.Done():
			a.Fatalf("%s: no %s; Explain says\n%v", a.name, what, a.group().Explain())
		}
	}
}

// rejectCommand waits until a command is refused with an error that has these words, and adds it.
func (a *actor) rejectCommand(words ...string) {
	a.Helper()
	a.until(fmt.Sprintf("refusal of a command with %q", words), func() bool {
		_, err := a.group().Propose(deadline(a.T), []byte("a command"))
		if err == nil || !containsAll(err.Error(), words) {
			return false
		}
		a.says(a.name+", Propose returns", err.Error())
		return true
	})
}
