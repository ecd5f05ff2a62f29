package history

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/scratch"
)

var memberRounds = flag.Int("member-rounds", 1, "how many rounds of changes TestMembers makes")

// TestMembers changes the members of a cluster under load: three processes become five; members are demoted,
// promoted and replaced, some with their directory wiped, while leaders are killed; the five become three
// others, and each of those moves to another address. What the clients saw must be linearizable, and no
// acknowledged change may be lost.
func TestMembers(t *testing.T) {
	d := startMembers(t)
	d.must(t, 1, "add", fmt.Sprintf("4=%s", d.hosts[3].raft), "add", fmt.Sprintf("5=%s", d.hosts[4].raft))
	l := startLoad(t, d.cluster, loadOptions{
		clients: 8, sessions: 3, readers: 5, keys: 4, perKey: 150, pace: 5 * time.Millisecond, timeout: 400 * time.Millisecond,
		reads: []read{{}, {}, {query: "consistency=lease"}, {"consistency=bounded&age=100ms", 100 * time.Millisecond}},
	})
	d.load = l
	l.waitForMore(t, 100, "with five members")
	for range *memberRounds {
		d.round(t, l)
	}
	d.must(t, 3, "remove", "1", "remove", "2")
	d.left(t, 1)
	d.left(t, 2)
	rest := d.hosts[2:]
	l.waitForMore(t, 100, "with three other members")
	for _, p := range rest {
		p.terminate(t)
		p.raft = scratch.Address(t)
		p.args = d.args(p, rest)
		p.start(t, p.args)
		l.waitForMore(t, 30, "after a member has moved")
		d.waitLevel(t, p, rest)
	}
	l.waitForMore(t, 100, "after all have moved")
	l.stop()
	l.check(t, rest)
	judge(t, l)
	t.Logf("%d plans carried out, %d directories wiped, of which %d were replaced by join tokens, %d leaders killed; the longest plan took %v", d.plans, d.wiped, d.tokens, d.killed, d.longest.Round(time.Millisecond))
	const heartbeat = 50 * time.Millisecond
	h := l.recorder.History()
	plans := gaps(h, d.planned)
	t.Logf("longest time without an answered change, in heartbeats of %v: during a plan %s", heartbeat, percentiles(plans, heartbeat))
	d.explain(t, plans, 2*heartbeat)
	t.Logf("and after a leader was killed, in election timeouts of %v: %s", 10*heartbeat, percentiles(gaps(h, d.deaths), 10*heartbeat))
	for _, p := range rest {
		p.terminate(t)
	}
}

// membersRun is five processes: three found a cluster, two wait to join it.
type membersRun struct {
	*cluster
	number               uint64 // of the cluster
	plans, wiped, killed int
	byToken              bool // the last directory that was lost was replaced by a token
	tokens               int  // so far
	longest              time.Duration
	load                 *load
	planned, deaths      []span
}

// span is a part of a run in which something happened to the members.
type span struct {
	what       string
	begin, end time.Duration
}

// gap is the longest time in a span without an answered change, and when it began.
type gap struct {
	span
	long, since time.Duration
}

// explain logs what the hosts said around the longest gap of plans, if that is longer than it should be.
func (d *membersRun) explain(t *testing.T, sorted []gap, atMost time.Duration) {
	t.Helper()
	if len(sorted) == 0 || sorted[len(sorted)-1].long <= atMost {
		return
	}
	g := sorted[len(sorted)-1]
	from, to := d.load.began.Add(g.since-time.Second), d.load.began.Add(g.since+g.long+time.Second/2)
	t.Logf("%s: no change was answered from %v for %v; the hosts logged:", g.what, d.load.began.Add(g.since).Format(time.StampMilli), g.long.Round(time.Millisecond))
	for _, p := range d.hosts {
		for _, line := range p.between(from, to) {
			t.Log(line)
		}
	}
}

// gaps returns one for each span, the shortest first. A span ends with the first answer after it.
func gaps(h History, spans []span) (all []gap) {
	var answers []time.Duration
	for _, o := range h {
		if o.Kind != Get && o.Outcome != Unknown && o.Return != Never {
			answers = append(answers, o.Return)
		}
	}
	slices.Sort(answers)
	for _, s := range spans {
		g, last := gap{span: s}, s.begin
		for _, at := range answers {
			if at < s.begin {
				continue
			}
			if at-last > g.long {
				g.long, g.since = at-last, last
			}
			last = at
			if at > s.end {
				break
			}
		}
		all = append(all, g)
	}
	slices.SortFunc(all, func(a, b gap) int { return cmp.Compare(a.long, b.long) })
	return all
}

// percentiles is a line about sorted times.
func percentiles(sorted []gap, unit time.Duration) string {
	if len(sorted) == 0 {
		return "none"
	}
	at := func(percent int) float64 {
		return float64(sorted[min(len(sorted)-1, len(sorted)*percent/100)].long) / float64(unit)
	}
	text := fmt.Sprintf("median %.1f, p99 %.1f, longest %.1f of %d; the longest:", at(50), at(99), at(100), len(sorted))
	for _, g := range sorted[max(0, len(sorted)-5):] {
		text += fmt.Sprintf(" %.1f (%s, at %v),", float64(g.long)/float64(unit), g.what, g.since.Round(time.Millisecond))
	}
	return strings.TrimSuffix(text, ",")
}

func startMembers(t *testing.T) *membersRun {
	t.Helper()
	binary, err := build()
	if err != nil {
		t.Fatal(err)
	}
	d := &membersRun{cluster: &cluster{}}
	dir := t.TempDir()
	for id := 1; id <= 5; id++ {
		d.hosts = append(d.hosts, &process{id: id, binary: binary, dir: filepath.Join(dir, strconv.Itoa(id)), raft: scratch.Address(t), address: scratch.Address(t)})
	}
	t.Cleanup(func() { d.end(t) })
	founders := d.hosts[:3]
	for _, p := range founders {
		p.args = d.args(p, founders)
		p.start(t, p.args)
	}
	s, err := d.leaderOf(t, founders).status()
	if err != nil {
		t.Fatal(err)
	}
	if d.number, err = strconv.ParseUint(s.Cluster.String(), 10, 64); err != nil {
		t.Fatal(err)
	}
	for _, p := range d.hosts[3:] {
		p.args = append(d.args(p, append(slices.Clone(founders), p)), d.joins()...)
		p.start(t, p.args)
	}
	return d
}

// joinByToken starts a host, on an empty directory, with a token that replaces its lost one, and waits until
// it is a voter again.
func (d *membersRun) joinByToken(t *testing.T, p *process, by int) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	eventually(t, fmt.Sprintf("host %d makes a join token", by), func() error {
		r, err := plain.PostForm("http://"+d.hosts[by-1].address+"/members/token", url.Values{"member": {strconv.Itoa(p.id)}})
		if err != nil {
			return err
		}
		defer r.Body.Close()
		text, err := io.ReadAll(r.Body)
		if err == nil && r.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s: %s", r.Status, text)
		}
		if err != nil {
			return err
		}
		return os.WriteFile(file, text, 0o600)
	})
	at := d.load.now()
	p.args = append(d.args(p, d.hosts), "-join-token-file", file)
	p.start(t, p.args)
	eventually(t, fmt.Sprintf("host %d has joined by its token", p.id), func() error {
		m, err := d.list(p.id)
		if err == nil && (m.Plan != "" || !slices.Contains(m.Voters, p.id)) {
			err = fmt.Errorf("%+v", m)
		}
		return err
	})
	d.tokens++
	d.plans++
	d.planned = append(d.planned, span{"token " + strconv.Itoa(p.id), at, d.load.now()})
}

func (d *membersRun) joins() []string {
	return []string{"-joins", "-cluster", strconv.FormatUint(d.number, 10)}
}

// args are the arguments of a process that knows these hosts.
func (d *membersRun) args(p *process, known []*process) []string {
	return []string{"-id", strconv.Itoa(p.id), "-dir", p.dir, "-heartbeat", "50ms", fmt.Sprint("-snapshot-bytes=", *snapshotBytes), "-timeout", "20s",
		"-peers", list(known, func(p *process) string { return p.raft }), "-http", list(known, func(p *process) string { return p.address })}
}

// change asks a host to change the members, and returns what it says.
func (d *membersRun) change(by int, pairs ...string) (text string, err error) {
	form := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		form.Add(pairs[i], pairs[i+1])
	}
	client := http.Client{Timeout: 40 * time.Second}
	r, err := client.PostForm("http://"+d.hosts[by-1].address+"/members", form)
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err == nil && r.StatusCode != http.StatusOK {
		err = fmt.Errorf("host %d: %s: %s", by, r.Status, b)
	}
	return string(b), err
}

// must changes the members, whatever disturbs it: a plan is asked for again until it is carried out, here or
// before.
func (d *membersRun) must(t *testing.T, by int, pairs ...string) {
	t.Helper()
	began, at := time.Now(), time.Duration(0)
	if d.load != nil {
		at = d.load.now()
	}
	eventually(t, fmt.Sprintf("the members are changed by %v", pairs), func() error {
		_, err := d.change(by, pairs...)
		if err != nil && d.isDone(by, pairs) {
			return nil
		}
		return err
	})
	d.plans++
	d.longest = max(d.longest, time.Since(began))
	if d.load != nil {
		d.planned = append(d.planned, span{strings.Join(pairs, " "), at, d.load.now()})
	}
}

// memberList is the part of GET /members that the tests need.
type memberList struct {
	Voters, Learners, Removed []int
	Plan                      string
}

func (d *membersRun) list(by int) (m memberList, err error) {
	r, err := plain.Get("http://" + d.hosts[by-1].address + "/members")
	if err != nil {
		return m, err
	}
	defer r.Body.Close()
	return m, json.NewDecoder(r.Body).Decode(&m)
}

// isDone reports whether members are as changes want them, and no plan is under way: an earlier answer was
// lost.
func (d *membersRun) isDone(by int, pairs []string) bool {
	m, err := d.list(by)
	if err != nil || m.Plan != "" {
		return false
	}
	for i := 0; i < len(pairs); i += 2 {
		text, _, _ := strings.Cut(pairs[i+1], "=")
		id, _ := strconv.Atoi(text)
		is := map[string]bool{"add": slices.Contains(m.Voters, id), "promote": slices.Contains(m.Voters, id), "demote": slices.Contains(m.Learners, id), "remove": slices.Contains(m.Removed, id)}[pairs[i]]
		if !is {
			return false
		}
	}
	return true
}

// left waits until the process of a removed member has ended by itself.
func (d *membersRun) left(t *testing.T, id int) {
	t.Helper()
	p := d.hosts[id-1]
	select {
	case <-p.ended:
		p.cmd = nil
	case <-time.After(maxWait):
		t.Fatalf("host %d was removed, and runs\n%s", id, p.tail())
	}
	if p.line("was removed from group") == "" {
		t.Errorf("host %d was removed, and does not say so:\n%s", id, p.tail())
	}
}

// round changes the members in several ways, with a leader killed in the middle of a plan, and one directory
// lost.
func (d *membersRun) round(t *testing.T, l *load) {
	t.Helper()
	for range 2 {
		id := 1 + rand.IntN(5)
		by := 1 + id%5
		d.must(t, by, "demote", strconv.Itoa(id))
		l.waitForMore(t, 20, "with a learner")
		d.must(t, by, "promote", strconv.Itoa(id))
		l.waitForMore(t, 20, "with five voters")
	}
	leader := d.leader(t)
	other := 1 + leader.id%5
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = d.change(other, "demote", strconv.Itoa(leader.id))
	}()
	leader.kill(t)
	at := l.now()
	d.killed++
	<-done
	l.waitForMore(t, 20, "after a leader was killed")
	d.deaths = append(d.deaths, span{fmt.Sprintf("leader %d", leader.id), at, l.now()})
	leader.start(t, leader.args)
	d.waitLevel(t, leader, d.without(leader))
	if m, err := d.list(other); err == nil && slices.Contains(m.Learners, leader.id) {
		d.must(t, other, "promote", strconv.Itoa(leader.id))
		l.waitForMore(t, 20, "with the killed leader as a voter again") // the gap of a plan ends before the next kill
	}

	lost := d.hosts[rand.IntN(5)]
	by := 1 + lost.id%5
	leads := d.leader(t) == lost
	lost.kill(t)
	at = l.now()
	l.waitForMore(t, 20, "with four members")
	if leads {
		d.deaths = append(d.deaths, span{fmt.Sprintf("leader %d", lost.id), at, l.now()})
		d.killed++
	}
	if err := os.RemoveAll(lost.dir); err != nil {
		t.Fatal(err)
	}
	d.wiped++
	if d.byToken = !d.byToken; d.byToken {
		d.joinByToken(t, lost, by)
	} else {
		lost.args = append(d.args(lost, d.hosts), d.joins()...)
		lost.start(t, lost.args)
		d.must(t, by, "replace", strconv.Itoa(lost.id))
	}
	d.waitLevel(t, lost, d.without(lost))
	l.waitForMore(t, 20, "with a directory that was replaced")
}
