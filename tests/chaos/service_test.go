//go:build linux

package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// The episodes of `millrace serve`: the same hosts, links, disks and faults as of examples/kv, and etcd's
// clients. The clients are in serviceclients_test.go, and their watches in servicewatches_test.go. What
// `millrace serve log` says in the end is read in servicelog_test.go. servicejudge_test.go has the verdict.
// A setting (servicesetting_test.go) adds compactions, snapshots or TLS.

// electionTimeout is the default of the service, which the hosts run with.
const electionTimeout = time.Second

// service is the program `millrace serve`.
type service struct {
	*episode
	secrets *secrets // nil: without TLS
	http    *http.Client
	clients *clients3
	watches []*watch3
	last    int64 // revision of the last write

	mu    sync.Mutex
	ids   map[uint64]int // of the hosts, by what the service calls them
	logs  map[int]*serviceLog
	whole wholeLog // of copies until the end, then of all logs
	model *model
	seen  serviceTally

	copying    sync.WaitGroup
	stopCopies context.CancelFunc
}

func newService(e *episode) *service {
	return &service{episode: e, http: plain, ids: map[uint64]int{}, logs: map[int]*serviceLog{}}
}
func (s *service) command(seed uint64) string { return command("TestService", seed) }

// diskBytes are three segments of the log, so that a start always has space, and little more.
func (s *service) diskBytes() int64 { return 210 << 20 }

// takesSignals: a member that is told to stop while it starts has status 130.
func (s *service) takesSignals(h *host) bool { return h.says("msg=stopping") != "" }

func (s *service) mark() {}

func (s *service) founding(h *host) []string {
	url := func(id int) string { return s.scheme() + s.net.raft(id) }
	var all []string
	for _, id := range s.founders {
		all = append(all, fmt.Sprintf("m%d=%s", id, url(id)))
	}
	client := s.scheme() + s.net.client(h.id)
	flags := []string{
		"serve", fmt.Sprintf("--name=m%d", h.id), "--data-dir=" + h.relative(h.dir), "--initial-cluster=" + strings.Join(all, ","),
		"--initial-advertise-peer-urls=" + url(h.id), "--listen-peer-urls=" + url(h.id), "--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--log-format=console", "--watch-progress-notify-interval=500ms", "--watch-feed-bytes=65536", // so that watches replay the history
	}
	if s.plan.with.snapshots {
		flags = append(flags, fmt.Sprintf("--snapshot-log-bytes=%d", shortLogBytes))
	}
	if s.secrets != nil {
		flags = append(flags, s.secrets.flags(h.id)...)
	}
	return flags
}

// scheme begins the URLs of the hosts.
func (s *service) scheme() string {
	if s.plan.with.tls {
		return "https://"
	}
	return "http://"
}

// prepare makes the certificates of an episode with TLS.
func (s *service) prepare() (err error) {
	if !s.plan.with.tls {
		return nil
	}
	peers, clients := map[int]string{}, map[int]string{}
	for _, id := range s.founders {
		peers[id], clients[id] = s.scheme()+s.net.raft(id), s.net.client(id)
	}
	if s.secrets, err = newSecrets(filepath.Join(s.dir, "tls"), peers, clients); err != nil {
		return err
	}
	s.http = s.secrets.http
	return nil
}

// status asks the gateway, which needs no connection from before.
func (s *service) status(h *host) (st status, err error) {
	r, err := s.http.Post(s.scheme()+s.net.client(h.place)+"/v3/maintenance/status", "application/json", strings.NewReader("{}"))
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
		to = append(to, s.scheme()+s.net.client(id))
	}
	c := clientv3.Config{
		Endpoints: to, Logger: zap.NewNop(), DialKeepAliveTime: 5 * time.Second, DialKeepAliveTimeout: time.Second,
		MaxCallRecvMsgSize: 64 << 20,
	}
	if s.secrets != nil {
		c.TLS = s.secrets.client
	}
	return clientv3.New(c)
}

// load starts clients and watches, and waits until writes are acknowledged.
func (s *service) load() (err error) {
	if err = s.watch(); err != nil {
		return err
	}
	if s.plan.with.snapshots {
		ctx, cancel := context.WithCancel(s.ctx)
		s.stopCopies = cancel
		s.copying.Go(func() { s.copyLogs(ctx) })
	}
	if s.clients, err = s.startClients(rand.New(rand.NewPCG(s.seed, 1))); err != nil {
		return err
	}
	if s.plan.with.compactions {
		if err := s.watchOld(); err != nil {
			return err
		}
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
	r, err := s.http.Post(s.scheme()+s.net.client(h.place)+path, "application/json", strings.NewReader(body))
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
		if w.old {
			continue
		}
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
	s.countSnapshots()
	return nil
}

func (s *service) stop() {
	if s.stopCopies != nil {
		s.stopCopies()
		s.copying.Wait()
	}
	if s.clients != nil {
		s.clients.stop()
	}
	for _, w := range s.watches {
		w.stop()
	}
}
