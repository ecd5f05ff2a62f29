//go:build linux

package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// The episodes of `millrace serve`: the same hosts, links, disks and faults as of examples/kv, and etcd's
// clients. The clients are in serviceclients_test.go, and their watches in servicewatches_test.go. What
// `millrace serve log` says in the end is read in servicelog_test.go. servicejudge_test.go has the verdict.

// electionTimeout is the default of the service, which the hosts run with.
const electionTimeout = time.Second

// service is the program `millrace serve`.
type service struct {
	*episode
	clients *clients3
	watches []*watch3
	last    int64 // revision of the last write

	mu    sync.Mutex
	ids   map[uint64]int // of the hosts, by what the service calls them
	logs  map[int]*serviceLog
	model *model
	seen  serviceTally
}

// serviceTally is what an episode has counted.
type serviceTally struct {
	gaps                           []time.Duration // from the kill of a leader to the next write
	busy                           time.Duration   // of the gaps, when the machine ran nothing of the tests; the gaps do not have it
	acknowledged, unknown, reads   int
	watches, reconnects, events    int
	progress, multiples            int // progress notifications, events that share their revision
	revisions, compared, afterKill int // of the log; lines that logs share; lines of the log of a killed member
	dropped, slowed                int // packets, syncs
	heal, judged                   time.Duration
}

func newService(e *episode) *service {
	return &service{episode: e, ids: map[uint64]int{}, logs: map[int]*serviceLog{}}
}
func (s *service) command(seed uint64) string { return command("TestService", seed) }

// diskBytes are three segments of the log, so that a start always has space, and little more.
func (s *service) diskBytes() int64 { return 210 << 20 }

// takesSignals: a member that is told to stop while it starts has status 130.
func (s *service) takesSignals(h *host) bool { return h.says("msg=stopping") != "" }

func (s *service) mark() {}

func (s *service) founding(h *host) []string {
	url := func(id int) string { return "http://" + s.net.raft(id) }
	var all []string
	for _, id := range s.founders {
		all = append(all, fmt.Sprintf("m%d=%s", id, url(id)))
	}
	client := "http://" + s.net.client(h.id)
	return []string{
		"serve", fmt.Sprintf("--name=m%d", h.id), "--data-dir=" + h.relative(h.dir), "--initial-cluster=" + strings.Join(all, ","),
		"--initial-advertise-peer-urls=" + url(h.id), "--listen-peer-urls=" + url(h.id), "--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--log-format=console", "--watch-progress-notify-interval=500ms", "--watch-feed-bytes=65536", // so that watches replay the history
	}
}

// status asks the gateway, which needs no connection from before.
func (s *service) status(h *host) (st status, err error) {
	r, err := plain.Post("http://"+s.net.client(h.place)+"/v3/maintenance/status", "application/json", strings.NewReader("{}"))
	if err != nil {
		return st, err
	}
	defer r.Body.Close()
	var text struct {
		Header struct {
			Member uint64 `json:"member_id,string"`
		}
		Leader  uint64 `json:"leader,string"`
		Term    uint64 `json:"raftTerm,string"`
		Index   uint64 `json:"raftIndex,string"`
		Applied uint64 `json:"raftAppliedIndex,string"`
	}
	if err := json.NewDecoder(r.Body).Decode(&text); err != nil {
		return st, fmt.Errorf("status of host %d: %w", h.id, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ids[text.Header.Member] = h.id
	return status{
		ID: uint64(h.id), Term: text.Term, Leader: uint64(s.ids[text.Leader]), Applied: text.Applied, Committed: text.Index, Cluster: "1",
	}, nil
}

// connect returns a client of these hosts, which asks them in turn.
func (s *service) connect(hosts ...int) (*clientv3.Client, error) {
	var to []string
	for _, id := range hosts {
		to = append(to, s.net.client(id))
	}
	return clientv3.New(clientv3.Config{
		Endpoints: to, Logger: zap.NewNop(), DialKeepAliveTime: 5 * time.Second, DialKeepAliveTimeout: time.Second,
		MaxCallRecvMsgSize: 64 << 20,
	})
}

// load starts clients and watches, and waits until writes are acknowledged.
func (s *service) load() (err error) {
	if err = s.watch(); err != nil {
		return err
	}
	if s.clients, err = s.startClients(rand.New(rand.NewPCG(s.seed, 1))); err != nil {
		return err
	}
	return s.eventually(maxWait, "100 writes are acknowledged before the first fault", func() error {
		if n := s.clients.acknowledged(); n < 100 {
			return fmt.Errorf("%d were", n)
		}
		return nil
	})
}

// leaderKills are made in each episode when all faults have ended. Then nothing else delays the next write.
const leaderKills = 2

// heal waits until all members run and agree on a leader. Then it kills leaders, and stops the clients.
func (s *service) heal() error {
	began := time.Now()
	for _, h := range s.members() {
		if !h.isUp() {
			return fmt.Errorf("host %d does not run\n%s", h.id, h.tail())
		}
	}
	for k := range leaderKills {
		leader, err := s.waitLeader(leaderWithin)
		if err != nil {
			return err
		}
		if k == 0 {
			s.seen.heal = time.Since(began)
		}
		if err := s.everyHostReads(); err != nil {
			return err
		}
		if err := s.killLeader(leader); err != nil {
			return err
		}
	}
	if _, err := s.waitLeader(leaderWithin); err != nil {
		return err
	}
	if err := s.everyHostReads(); err != nil {
		return err
	}
	s.clients.stop()
	return s.level()
}

// everyHostReads waits until each member answers a linearizable read.
func (s *service) everyHostReads() error {
	for _, h := range s.members() {
		err := s.eventually(readWithin, fmt.Sprintf("host %d answers a linearizable read", h.id), func() error {
			_, err := s.post(h, "/v3/kv/range", `{"key":"AA=="}`)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// post asks the gateway of a host.
func (s *service) post(h *host, path, body string) (answer map[string]any, err error) {
	r, err := plain.Post("http://"+s.net.client(h.place)+path, "application/json", strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	err = json.NewDecoder(r.Body).Decode(&answer)
	if r.StatusCode != http.StatusOK {
		err = fmt.Errorf("host %d: %s %s: %s: %v", h.id, path, body, r.Status, answer)
	}
	return answer, err
}

// killLeader kills the leader, and measures how long it takes until a write is acknowledged that began behind
// the kill.
func (s *service) killLeader(h *host) error {
	h.lock.Lock()
	defer h.lock.Unlock()
	at, stood := s.clients.now(), s.stood.Load()
	if err := h.kill(); err != nil {
		return err
	}
	var gap time.Duration
	err := s.eventually(maxWait, "a write is acknowledged after the kill of the leader", func() error {
		back, ok := s.clients.nextWrite(at)
		if !ok {
			return errors.New("none was")
		}
		gap = back - at
		return nil
	})
	if err != nil {
		return err
	}
	busy := time.Duration(s.stood.Load() - stood)
	s.say("the leader, host %d, was killed; the next write was acknowledged after %v, of which the machine stood %v", h.id, gap, busy)
	s.seen.gaps, s.seen.busy = append(s.seen.gaps, (gap-busy).Round(time.Millisecond)), s.seen.busy+busy
	return h.start()
}

// level writes a last time, waits until all members have applied it, and compares their states.
func (s *service) level() error {
	cl, err := s.connect(s.memberIDs()...)
	if err != nil {
		return err
	}
	defer cl.Close()
	err = s.eventually(writeWithin, "the last write is acknowledged", func() error {
		ctx, cancel := context.WithTimeout(s.ctx, time.Second)
		defer cancel()
		r, err := cl.Put(ctx, "end", "")
		if err == nil {
			s.last = r.Header.Revision
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, w := range s.watches {
		if err := w.waitThrough(s.last); err != nil {
			return err
		}
	}
	return s.eventually(levelWithin, "all members have the same state", func() error {
		var first map[string]any
		for _, h := range s.members() {
			now, err := s.post(h, "/v3/maintenance/hashkv", fmt.Sprintf(`{"revision":"%d"}`, s.last))
			if err != nil {
				return err
			}
			delete(now, "header")
			if first == nil {
				first = now
			}
			if fmt.Sprint(now) != fmt.Sprint(first) || now["hash"] == nil {
				return fmt.Errorf("at revision %d: %v on host %d, and %v on host %d", s.last, first, s.founders[0], now, h.id)
			}
		}
		return nil
	})
}

// end kills one member, stops the others in good order, and reads the logs of all.
func (s *service) end() error {
	s.stop()
	killed := s.members()[rand.New(rand.NewPCG(s.seed, 4)).IntN(len(s.founders))]
	if err := killed.kill(); err != nil {
		return err
	}
	for _, h := range s.members() {
		if h != killed {
			if err := h.terminate(); err != nil {
				return err
			}
		}
		var err error
		if s.logs[h.id], err = readServiceLog(s.ctx, s.binary, h.dir); err != nil {
			return fmt.Errorf("the log of host %d: %w", h.id, err)
		}
	}
	s.seen.afterKill = len(s.logs[killed.id].lines)
	return nil
}

func (s *service) stop() {
	if s.clients != nil {
		s.clients.stop()
	}
	for _, w := range s.watches {
		w.stop()
	}
}

// TestService runs episodes of `millrace serve`. One that fails keeps its directory, with the logs of all
// hosts, and the test prints the command that draws the same schedule again. It continues with the next.
func TestService(t *testing.T) {
	if !theWorld.namespaces {
		t.Skipf("the hosts of the service need network namespaces, because their ids come from their addresses: %s", theWorld.why)
	}
	base := makeBase(t)
	endOnSignal(base)
	t.Log(theWorld)
	possible, err := possibleKinds(theWorld, serviceKinds)
	if err != nil {
		t.Fatal(err)
	}
	binary, err := buildService(base)
	if err != nil {
		t.Fatal(err)
	}
	run := serviceRun{made: map[string]int{}, hit: map[string]int{}}
	for _, plan := range servicePlans(possible) {
		began := time.Now()
		var of *service
		counted, err := runEpisode(base, binary, plan, func(e *episode) program {
			of = newService(e)
			return of
		})
		t.Logf("%s, %.0f s", run.add(of, counted, err), time.Since(began).Seconds())
		if err != nil {
			t.Errorf("%v\n%v\nlogs: %s\nreplay: %s", plan, err, filepath.Join(base, fmt.Sprintf("seed-%d", plan.seed)), of.command(plan.seed))
		}
		if run.failed == maxFailed {
			t.Errorf("%d episodes have failed, the others are left out", run.failed)
			break
		}
	}
	t.Logf("\n%s", run)
	for _, wrong := range run.wrong() {
		t.Error(wrong)
	}
	if !*keep {
		_ = os.Remove(binary)
		_ = os.Remove(base) // if nothing in it was kept
	}
}

// servicePlans are drawn, if flags say how many, or with which seeds or kinds. Otherwise there is a short
// plan: each of the five disturbances that the service must survive, once.
func servicePlans(possible []*kind) (plans []schedule) {
	drawn := false
	flag.Visit(func(f *flag.Flag) {
		drawn = drawn || slices.Contains([]string{"seed", "episodes", "faults", "hosts"}, f.Name)
	})
	if drawn {
		for i := range *episodes {
			plans = append(plans, drawSchedule(*firstSeed+uint64(i), possible, *size))
		}
		return plans
	}
	short := schedule{seed: *firstSeed, hosts: 3}
	for _, f := range []struct {
		kind      string
		at, lasts time.Duration
		leader    bool
		place     int
	}{
		{"full-disk", 0, 0, false, 2}, {"kill", 0, 500 * ms, true, 0}, {"isolated", 2 * second, 2 * second, true, 0},
		{"slow-disk", 4 * second, 3 * second, false, 1}, {"pause", 5 * second, second, false, 0},
	} {
		if at := slices.IndexFunc(possible, func(k *kind) bool { return k.name == f.kind }); at >= 0 {
			k := possible[at]
			if k.disk {
				short.disk = 1 + f.place
			}
			short.faults = append(short.faults, fault{kind: k, at: f.at, lasts: f.lasts, leader: f.leader, place: f.place, draw: 1})
		}
	}
	return []schedule{short}
}

// maxFailed ends a run in which too much is wrong.
const maxFailed = 3

func buildService(base string) (string, error) {
	binary := filepath.Join(base, "millrace")
	cmd := exec.Command("go", "build", "-o", binary, "./millrace")
	cmd.Dir = filepath.Join("..", "..", "cmd")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("go build in %s: %w\n%s", cmd.Dir, err, &out)
	}
	return binary, nil
}

// serviceRun adds up the episodes of a run.
type serviceRun struct {
	made, hit        map[string]int
	episodes, failed int
	sum              serviceTally
}

// add adds an episode, and returns its line.
func (r *serviceRun) add(s *service, t tally, err error) string {
	r.episodes++
	result := "passed"
	if err != nil {
		r.failed++
		result = "FAILED"
	}
	var faults []string
	for _, k := range serviceKinds {
		if t.made[k.name] > 0 {
			faults = append(faults, fmt.Sprintf("%s %d", k.name, t.made[k.name]))
		}
		r.made[k.name] += t.made[k.name]
		r.hit[k.name] += t.hit[k.name]
	}
	if s == nil {
		return result
	}
	n, to := s.seen, &r.sum
	to.gaps, to.busy = append(to.gaps, n.gaps...), to.busy+n.busy
	to.acknowledged, to.unknown, to.reads = to.acknowledged+n.acknowledged, to.unknown+n.unknown, to.reads+n.reads
	to.watches, to.reconnects, to.events = to.watches+n.watches, to.reconnects+n.reconnects, to.events+n.events
	to.progress, to.multiples = to.progress+n.progress, to.multiples+n.multiples
	to.revisions, to.compared, to.afterKill = to.revisions+n.revisions, to.compared+n.compared, to.afterKill+n.afterKill
	to.dropped, to.slowed = to.dropped+t.dropped, to.slowed+t.slowed
	to.heal, to.judged = max(to.heal, n.heal), max(to.judged, n.judged)
	return fmt.Sprintf("%d: seed %d %s: %d hosts, %s; %d writes, %d unknown, %d reads; %d events in %d watches, %d reconnects; gaps %v; judged in %v", r.episodes, s.seed, result,
		len(s.founders), strings.Join(faults, ", "), n.acknowledged, n.unknown, n.reads, n.events, n.watches, n.reconnects, n.gaps, round(n.judged))
}

// quantile returns a value that a share of the gaps does not exceed.
func quantile(gaps []time.Duration, share float64) time.Duration {
	if len(gaps) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(gaps))
	return sorted[min(int(share*float64(len(sorted))), len(sorted)-1)]
}

func (r serviceRun) String() string {
	lines := []string{"kind of fault\tmade\thad its effect\texpected beside safety"}
	for _, k := range serviceKinds {
		if r.made[k.name] > 0 {
			lines = append(lines, fmt.Sprintf("%s\t%d\t%d\t%s", k.name, r.made[k.name], r.hit[k.name], k.expects))
		}
	}
	n := r.sum
	in := func(d time.Duration) string {
		return fmt.Sprintf("%v (%.2f election timeouts)", d.Round(time.Millisecond), d.Seconds()/electionTimeout.Seconds())
	}
	return table(lines...) + "\n" + table(
		fmt.Sprintf("episodes\t%d, of which %d failed", r.episodes, r.failed),
		fmt.Sprintf("answers judged\t%d writes acknowledged, %d reads; %d changes of unknown outcome", n.acknowledged, n.reads, n.unknown),
		fmt.Sprintf("watches judged\t%d, with %d events (%d share their revision), %d progress notifications, %d reconnects", n.watches, n.events, n.multiples, n.progress, n.reconnects),
		fmt.Sprintf("logs\t%d revisions; %d lines of different members compared, %d of members that were killed", n.revisions, n.compared, n.afterKill),
		fmt.Sprintf("links and disks\t%d packets dropped, %d syncs slowed", n.dropped, n.slowed),
		fmt.Sprintf("longest until all members agreed on a leader\t%v after the last fault", round(n.heal)),
		fmt.Sprintf("kill of a leader to the next write\t%d kills: p50 %s, p99 %s, longest %s; without %v in which the machine ran nothing of the tests", len(n.gaps),
			in(quantile(n.gaps, 0.5)), in(quantile(n.gaps, 0.99)), in(quantile(n.gaps, 1)), round(n.busy)),
	)
}

// maxGap bounds the time from the kill of a leader to the next write, at the 99th percentile.
const maxGap = 3 * electionTimeout

// wrong says what the run has not shown.
func (r serviceRun) wrong() (all []string) {
	for _, k := range serviceKinds {
		if r.made[k.name] > 0 && r.hit[k.name] == 0 {
			all = append(all, fmt.Sprintf("%s was made %d times, and had no effect", k.name, r.made[k.name]))
		}
	}
	if gap := quantile(r.sum.gaps, 0.99); gap > maxGap {
		all = append(all, fmt.Sprintf("p99 from the kill of a leader to the next write is %v, want at most %v; all: %v", gap, maxGap, r.sum.gaps))
	}
	return all
}
