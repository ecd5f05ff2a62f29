//go:build linux

package chaos

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/tests/history"
)

// The clients of an episode. They are in groups of four, each with keys of its own: a few that are in demand,
// on which operations overlap, and many others. A key is in use for some operations, and then a fresh one
// takes its place: a short history of a key is checked in no time. Three clients of four number their changes
// in a session and send each until it is answered, to any host: it must take effect once. The fourth sends
// once, and may never learn what happened.

const (
	clients       = 64
	perGroup      = 4
	coldKeys      = 62 // of a group, in use at a time
	hotKeys       = 2
	coldLife      = 20  // about how many operations a key gets
	hotLife       = 120 // and one in demand
	clientTimeout = 400 * time.Millisecond
)

// load is the clients, and what they have seen.
type load struct {
	e        *episode
	http     *http.Client
	began    time.Time
	recorder history.Recorder
	pacing   time.Duration
	answers  atomic.Int64 // changes that were answered
	adds     atomic.Int64 // to counters, by clients with sessions, answered
	retries  atomic.Int64 // changes that were sent again under their number
	lost     atomic.Int64 // changes that were applied and whose result no host has any more
	done     chan struct{}
	stopping sync.Once
	running  sync.WaitGroup
	groups   [clients / perGroup]struct{ cold, hot atomic.Int64 } // operations so far

	ended time.Duration  // when the load was stopped
	final map[string]int // the counters then

	mu     sync.Mutex
	places []place
	sums   []sum
	faulty struct{ from, to time.Duration } // when the first fault began and the last one ended
}

// place is what an answer says about its operation's place in the log.
type place struct {
	call, back time.Duration
	// index is that of the entry, of a change; all through it was in the state, of a read.
	index  uint64
	change bool
	what   string
}

// sum is a counter of one client, which no other one changes.
type sum struct {
	key string
	// n is what its adds make, all answered; open is one more that may have taken effect.
	n    int
	open bool
}

func startLoad(e *episode, rng *rand.Rand) *load {
	l := &load{
		e: e, began: time.Now(), done: make(chan struct{}), pacing: time.Duration(clients) * time.Second / time.Duration(*rate),
		http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients, MaxConnsPerHost: 2 * clients}},
	}
	for id := range clients {
		k := &client{load: l, id: id, group: id / perGroup, rng: rand.New(rand.NewPCG(rng.Uint64(), 3)), seen: map[string]seen{}}
		k.sum.key = fmt.Sprintf("sum-%d", id)
		l.running.Go(k.run)
	}
	return l
}

// stop ends the load and waits until no client runs.
func (l *load) stop() {
	l.stopping.Do(func() {
		l.ended = l.now()
		close(l.done)
	})
	l.running.Wait()
	l.http.CloseIdleConnections()
}

func (l *load) isOver() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

func (l *load) now() time.Duration { return time.Since(l.began) }

func (l *load) mark() {
	if l.faulty.from == 0 {
		l.faulty.from = l.now()
	} else {
		l.faulty.to = l.now()
	}
}

// waitForMore waits until n more changes were answered.
func (l *load) waitForMore(n int64, when string) error {
	was := l.answers.Load()
	return l.e.eventually(maxWait, fmt.Sprintf("%d more changes are answered %s", n, when), func() error {
		if more := l.answers.Load() - was; more < n {
			return fmt.Errorf("%d were", more)
		}
		return nil
	})
}

// client is one goroutine with one request at a time.
type client struct {
	*load
	id, group int
	rng       *rand.Rand
	session   string // "": none
	at        int    // id of the host that answered last
	number    int    // of the last change of the session
	writes    int
	seen      map[string]seen // what each key had when this client saw it last
	sum       sum
}

// seen is the value of a key, "" if it does not exist, and its ETag.
type seen struct{ value, etag string }

func (k *client) run() {
	next := time.NewTimer(time.Duration(k.rng.Int64N(int64(k.pacing))))
	defer next.Stop()
	due := time.Now()
	for {
		select {
		case <-next.C:
		case <-k.done:
			k.end()
			return
		}
		switch {
		case k.isOver(): // and the outcome of its last add may be unknown, so that a later sum says nothing
		case k.session == "" && k.id%perGroup != 0:
			k.begin()
		case k.session != "" && k.rng.IntN(8) == 0:
			k.add()
		default:
			k.operate()
		}
		// A client that has waited does not make up for more than a second.
		if due = due.Add(k.pacing); time.Since(due) > time.Second {
			due = time.Now()
		}
		next.Reset(time.Until(due))
	}
}

// end hands the counter of this client over.
func (k *client) end() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.session != "" {
		k.sums = append(k.sums, k.sum)
	}
}

// begin draws a session.
func (k *client) begin() {
	r, err := plain.Post("http://"+k.e.net.client(k.host())+"/sessions", "", nil)
	if err != nil {
		k.at = 0
		return
	}
	defer r.Body.Close()
	if b, err := io.ReadAll(r.Body); err == nil && r.StatusCode == http.StatusCreated {
		k.session = strings.TrimSpace(string(b))
	}
}

// key chooses one of the keys in use.
func (k *client) key() string {
	g := &k.groups[k.group]
	if k.rng.IntN(3) == 0 {
		return fmt.Sprintf("hot-%d-%d-%d", k.group, g.hot.Add(1)/(hotKeys*hotLife), k.rng.IntN(hotKeys))
	}
	return fmt.Sprintf("key-%d-%d-%d", k.group, g.cold.Add(1)/(coldKeys*coldLife), k.rng.IntN(coldKeys))
}

// operate makes one operation on a shared key.
func (k *client) operate() {
	o := history.Operation{Client: k.id, Key: k.key()}
	last, known := k.seen[o.Key]
	switch n := k.rng.IntN(100); {
	case n < 45:
		o.Kind = history.Get
	case n < 70 || !known:
		o.Kind = history.Put
	case n < 95:
		o.Kind, o.Want = history.Swap, last.value
	case last.value != "":
		o.Kind, o.Want = history.Delete, last.value
	default:
		o.Kind = history.Put
	}
	if o.Kind == history.Put || o.Kind == history.Swap {
		k.writes++
		o.Value = fmt.Sprintf("%d.%d.%s", k.id, k.writes, padding[:k.rng.IntN(len(padding))])
	}
	o.Call = k.now()
	a := k.perform(&o)
	o.Return = k.now()
	k.recorder.Add(o)
	if o.Outcome == history.Answered {
		k.observe(o, a)
	}
}

var padding = strings.Repeat("=", 1500)

// observe keeps what an answer says about its place in the log.
func (k *client) observe(o history.Operation, a answer) {
	if o.Kind != history.Get {
		k.answers.Add(1)
	}
	if a.index == 0 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.places = append(k.places, place{o.Call, o.Return, a.index, o.Kind != history.Get, fmt.Sprintf("client %d: %v %s", k.id, o.Kind, o.Key)})
}

// perform sends an operation, and notes its results in it.
func (k *client) perform(o *history.Operation) answer {
	r := request{method: http.MethodGet, key: o.Key}
	switch o.Kind {
	case history.Get:
		if k.rng.IntN(3) == 0 {
			r.query = "?consistency=lease" // as new as the other, as long as clocks run alike
		}
	case history.Put, history.Swap:
		r.method, r.body = http.MethodPut, o.Value
	case history.Delete:
		r.method = http.MethodDelete
	}
	if o.Kind == history.Swap && o.Want == "" {
		r.header = [2]string{"If-None-Match", "*"}
	} else if o.Kind == history.Swap || o.Kind == history.Delete {
		r.header = [2]string{"If-Match", k.seen[o.Key].etag}
	}
	a := k.send(r)
	if o.Outcome = a.outcome; a.lost && o.Kind == history.Put {
		o.Outcome = history.Answered
		return a
	}
	if o.Outcome != history.Answered {
		return a
	}
	switch {
	case o.Kind == history.Get && a.code == http.StatusOK:
		o.Got = a.body
		k.see(o.Key, seen{a.body, a.etag})
	case o.Kind == history.Get && a.code == http.StatusNotFound:
		k.see(o.Key, seen{})
	case (o.Kind == history.Put || o.Kind == history.Swap) && a.code == http.StatusOK:
		o.Took = o.Kind == history.Swap
		k.see(o.Key, seen{o.Value, a.etag})
	case o.Kind == history.Delete && a.code == http.StatusNoContent:
		o.Took = true
		k.see(o.Key, seen{})
	case (o.Kind == history.Swap || o.Kind == history.Delete) && a.code == http.StatusPreconditionFailed:
		o.Got = a.body // "" with no ETag: the key does not exist
		k.see(o.Key, seen{a.body, a.etag})
	default:
		k.e.fail(fmt.Errorf("%.200s: status %d: %.200s", o.String(), a.code, a.body))
	}
	return a
}

func (k *client) see(key string, now seen) {
	if len(k.seen) > 1000 {
		clear(k.seen)
	}
	k.seen[key] = now
}

// add adds one to this client's counter. The sum tells whether each add took effect once.
func (k *client) add() {
	o := history.Operation{Client: k.id, Key: k.sum.key, Kind: history.Put, Call: k.now()}
	a := k.send(request{method: http.MethodPost, key: k.sum.key + "/add"})
	o.Return = k.now()
	switch {
	case a.lost: // and counted
		k.sum.n++
	case a.outcome == history.Unknown:
		k.sum.open = true // the load has ended
	case a.outcome == history.Refused:
	case a.code != http.StatusOK || a.body != strconv.Itoa(k.sum.n+1):
		k.e.fail(fmt.Errorf("client %d: add %d was answered %d: %.100q, want the sum %d", k.id, k.number, a.code, a.body, k.sum.n+1))
	default:
		k.sum.n++
		k.adds.Add(1)
		k.observe(o, a)
	}
}
