package history

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/raft/raftpb"
)

// Clients that read and change a few keys while the processes are disturbed, and record what they know. Each
// goes to any host. Half of the clients have no session: an operation without an answer stays unknown. The
// others number their changes and send each again, to other hosts, until one answers: the change must take
// effect once. Beside them, readers wait at one host each, however long it takes: a host that wakes from a
// pause finds their requests before anything else.

// load is the clients of a run.
type load struct {
	hosts    []*process
	options  loadOptions
	http     *http.Client
	began    time.Time
	recorder Recorder
	answers  atomic.Int64 // changes that were answered
	adds     atomic.Int64 // of the clients with sessions, answered
	retries  atomic.Int64 // changes that were sent again under the same number
	lost     atomic.Int64 // changes that were applied and whose result no host has any more
	gaveUp   atomic.Int64 // requests that the client ended itself before the answer
	ctx      context.Context
	stopped  context.CancelFunc
	running  sync.WaitGroup

	mu    sync.Mutex
	fault error // the first answers that no fault of a process explains
	sums  []sum // what each counter must have
}

// sum is a counter of one client, which no other client changes.
type sum struct {
	key string
	// n is what its adds make, all answered; open is one more add that may have taken effect.
	n    int
	open bool
}

type loadOptions struct {
	clients, sessions int           // sessions of the clients have a session
	readers           int           // that wait at one host
	keys              int           // that are in use at a time
	perKey            int           // about how many operations a key gets before another one takes its place
	pace              time.Duration // between the operations of one client; 0: none
	timeout           time.Duration // for one answer
	reads             []read        // one of them for each Get
}

func startLoad(t *testing.T, c *cluster, o loadOptions) *load {
	t.Helper()
	l := &load{
		hosts: c.hosts, options: o, began: time.Now(),
		http: &http.Client{
			Transport: &http.Transport{MaxIdleConnsPerHost: o.clients + o.readers},
		},
	}
	l.ctx, l.stopped = context.WithCancel(context.Background())
	t.Cleanup(l.stop)
	for id := range o.clients {
		k := &client{load: l, id: id, rng: rand.New(rand.NewPCG(rand.Uint64(), uint64(id))), seen: map[string]seen{}}
		if id < o.sessions {
			k.session = newSession(t, c.hosts[0])
		}
		l.running.Go(k.run)
	}
	for id := range o.readers {
		k := &client{load: l, id: o.clients + id, rng: rand.New(rand.NewPCG(rand.Uint64(), uint64(id))), seen: map[string]seen{}}
		k.at = id % len(k.hosts)
		l.running.Go(k.read)
	}
	return l
}

func (l *load) stop() {
	l.stopped()
	l.running.Wait()
}

func (l *load) now() time.Duration { return time.Since(l.began) }

func (l *load) report(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fault = errors.Join(l.fault, err)
	l.stopped()
}

// waitForMore waits until n more changes have been answered.
func (l *load) waitForMore(t *testing.T, n int64, when string) {
	t.Helper()
	was := l.answers.Load()
	eventually(t, fmt.Sprintf("%d more changes are answered %s", n, when), func() error {
		if l.ctx.Err() != nil {
			l.mu.Lock()
			defer l.mu.Unlock()
			t.Fatal(l.fault)
		}
		if more := l.answers.Load() - was; more < n {
			return fmt.Errorf("%d were", more)
		}
		return nil
	})
}

// newSession asks a host for a session.
func newSession(t *testing.T, p *process) (id string) {
	t.Helper()
	eventually(t, "a session begins", func() error {
		r, err := plain.Post("http://"+p.address+"/sessions", "", nil)
		if err != nil {
			return err
		}
		defer r.Body.Close()
		b, err := io.ReadAll(r.Body)
		if err == nil && r.StatusCode != http.StatusCreated {
			err = fmt.Errorf("%s: %s", r.Status, b)
		}
		id = strings.TrimSpace(string(b))
		return err
	})
	return id
}

// client is one goroutine with one request at a time.
type client struct {
	*load
	id      int
	rng     *rand.Rand
	session string // "": none
	at      int    // the host that answered last
	number  int    // of the last change of the session
	writes  int
	seen    map[string]seen // what each key had when this client saw it last
	sum     sum
}

func (k *client) run() {
	var ticks <-chan time.Time
	if k.options.pace > 0 {
		ticker := time.NewTicker(k.options.pace)
		defer ticker.Stop()
		ticks = ticker.C
	}
	k.at = k.id % len(k.hosts)
	k.sum.key = fmt.Sprintf("sum-%d", k.id)
	for k.ctx.Err() == nil {
		if ticks != nil {
			select {
			case <-ticks:
			case <-k.ctx.Done():
			}
		}
		if k.session != "" && k.rng.IntN(8) == 0 {
			k.add()
		} else {
			k.operate()
		}
	}
	if k.session != "" {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.sums = append(k.sums, k.sum)
	}
}

// read reads from one host until the run ends, with a request under way at almost any time.
func (k *client) read() {
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for k.ctx.Err() == nil {
		o := Operation{Client: k.id, Key: k.key(), Kind: Get, Call: k.now()}
		if k.rng.IntN(2) == 0 {
			o.Key = lasting
		}
		kind := k.options.reads[k.rng.IntN(len(k.options.reads))]
		o.MaxAge = kind.maxAge
		a := k.ask(k.ctx, k.at, request{method: http.MethodGet, key: o.Key, query: kind.query}, "")
		o.Return, o.Outcome = k.now(), a.outcome
		if a.outcome == Answered {
			o.Got, o.Index = a.body, a.index
			if a.code == http.StatusNotFound {
				o.Got = ""
			} else if a.code != http.StatusOK {
				k.report(fmt.Errorf("%v: status %d: %s", o, a.code, a.body))
			}
			k.recorder.Add(o)
		}
		select {
		case <-ticker.C:
		case <-k.ctx.Done():
		}
	}
}

// lasting is a key that is in use for the whole run.
const lasting = "lasting"

// key chooses one of the keys in use.
func (k *client) key() string {
	if k.rng.IntN(10) == 0 {
		return lasting
	}
	generation := k.recorder.Len() / (k.options.keys * k.options.perKey)
	return fmt.Sprintf("key-%d-%d", generation, k.rng.IntN(k.options.keys))
}

// operate makes one operation on a shared key.
func (k *client) operate() {
	o := Operation{Client: k.id, Key: k.key()}
	last, known := k.seen[o.Key]
	switch n := k.rng.IntN(100); {
	case n < 50:
		o.Kind = Get
	case n < 70 || !known:
		o.Kind = Put
	case n < 95:
		o.Kind, o.Want = Swap, last.value
	case last.value != "":
		o.Kind, o.Want = Delete, last.value
	default:
		o.Kind = Put
	}
	if o.Kind == Put || o.Kind == Swap {
		k.writes++
		o.Value = fmt.Sprintf("%d.%d", k.id, k.writes)
	}
	o.Call = k.now()
	k.perform(&o)
	o.Return = k.now()
	if k.ctx.Err() != nil && o.Outcome == 0 {
		o.Outcome = Unknown
	}
	k.recorder.Add(o)
	if o.Outcome == Answered && o.Kind != Get {
		k.answers.Add(1)
	}
}

// read is a consistency, as a query, and how old its answers may be.
type read struct {
	query  string
	maxAge time.Duration
}

// seen is the value of a key, "" if it does not exist, and its ETag.
type seen struct{ value, etag string }

func (k *client) note(key string, now seen) {
	if len(k.seen) > 1000 {
		clear(k.seen)
	}
	k.seen[key] = now
}

// perform sends an operation, again and again if it is a change of a session.
func (k *client) perform(o *Operation) {
	r := request{key: o.Key}
	switch o.Kind {
	case Get:
		kind := k.options.reads[k.rng.IntN(len(k.options.reads))]
		r.method, r.query, o.MaxAge = http.MethodGet, kind.query, kind.maxAge
	case Put, Swap:
		r.method, r.body = http.MethodPut, o.Value
	case Delete:
		r.method = http.MethodDelete
	}
	if o.Kind == Swap && o.Want == "" {
		r.header = [2]string{"If-None-Match", "*"}
	} else if o.Kind == Swap || o.Kind == Delete {
		r.header = [2]string{"If-Match", k.seen[o.Key].etag}
	}
	a := k.send(r)
	if o.Outcome = a.outcome; a.lost && o.Kind == Put {
		o.Outcome = Answered
		return
	}
	if o.Outcome != Answered {
		return
	}
	o.Index = a.index
	switch {
	case o.Kind == Get && a.code == http.StatusOK:
		o.Got = a.body
		k.note(o.Key, seen{a.body, a.etag})
	case o.Kind == Get && a.code == http.StatusNotFound:
		k.note(o.Key, seen{})
	case (o.Kind == Put || o.Kind == Swap) && a.code == http.StatusOK:
		o.Took = o.Kind == Swap
		k.note(o.Key, seen{o.Value, a.etag})
	case o.Kind == Delete && a.code == http.StatusNoContent:
		o.Took = true
		k.note(o.Key, seen{})
	case (o.Kind == Swap || o.Kind == Delete) && a.code == http.StatusPreconditionFailed:
		o.Got = a.body // "" with no ETag: the key does not exist
		k.note(o.Key, seen{a.body, a.etag})
	default:
		k.report(fmt.Errorf("%v: status %d: %s", o, a.code, a.body))
	}
}

// add adds one to this client's counter. Its sum tells whether each add took effect once.
func (k *client) add() {
	a := k.send(request{method: http.MethodPost, key: k.sum.key + "/add"})
	switch {
	case a.lost: // and counted
		k.sum.n++
	case a.outcome == Unknown:
		k.sum.open = true // the run has ended
	case a.outcome == Refused:
	case a.code != http.StatusOK || a.body != strconv.Itoa(k.sum.n+1):
		k.report(fmt.Errorf("client %d: add %d was answered %d: %q", k.id, k.sum.n+1, a.code, a.body))
	default:
		k.sum.n++
		k.adds.Add(1)
		k.answers.Add(1)
	}
}

// request is what a client wants to have done.
type request struct {
	method, key, query, body string
	header                   [2]string
}

type answer struct {
	outcome    Outcome
	code       int
	body, etag string
	index      uint64 // in the log, as placeIn has it
	lost       bool   // the change was applied, and the outcome is unknown because its result is lost
}

// send sends a request to a host, and a change of a session again until it is answered or the run ends.
func (k *client) send(r request) answer {
	if k.session == "" || r.method == http.MethodGet {
		return k.once(r, "")
	}
	k.number++
	id := fmt.Sprintf("%s:%d", k.session, k.number)
	outcome := Refused
	for tries := 0; ; tries++ {
		a := k.once(r, id)
		if a.outcome == Answered || a.lost {
			return a
		}
		if a.outcome == Unknown {
			outcome = Unknown
		}
		if k.ctx.Err() != nil {
			return answer{outcome: outcome}
		}
		k.retries.Add(1)
		select { // not to turn in a circle while no host answers
		case <-time.After(time.Duration(1+k.rng.IntN(20)) * time.Millisecond):
		case <-k.ctx.Done():
		}
	}
}

// host chooses a host: the one that answered last, and one in fifty times any.
func (k *client) host() int {
	if k.rng.IntN(50) == 0 {
		return k.rng.IntN(len(k.hosts))
	}
	return k.at
}

// once sends a request to one host. The run's end does not cut it short. After a failure the client goes to
// another host.
func (k *client) once(r request, id string) (a answer) {
	ctx, cancel := context.WithTimeout(context.Background(), k.options.timeout)
	defer cancel()
	if id == "" && r.method != http.MethodGet && k.rng.IntN(100) == 0 {
		// A client that gives up early, at any point of the way of its change.
		ctx, cancel = context.WithTimeout(ctx, time.Duration(k.rng.IntN(3000))*time.Microsecond)
		defer cancel()
		k.gaveUp.Add(1)
	}
	host := k.host()
	if a = k.ask(ctx, host, r, id); a.outcome == Answered {
		k.at = host
	} else if k.at == host {
		k.at = k.rng.IntN(len(k.hosts))
	}
	return a
}

// placeIn returns a position in the log as a number that orders as the log does; 0 if it is not said. A read
// has seen all commands of its index.
func placeIn(method string, said http.Header) uint64 {
	index, _ := strconv.ParseUint(said.Get("Millrace-Index"), 10, 64)
	if index == 0 {
		return 0
	}
	pos, _ := strconv.ParseUint(said.Get("Millrace-Pos"), 10, 32)
	if method == http.MethodGet {
		pos = raftpb.MaxBatchCommands - 1
	}
	return index*raftpb.MaxBatchCommands + pos
}

// ask sends a request to a host and waits until it answers or ctx ends.
func (k *client) ask(ctx context.Context, host int, r request, id string) (a answer) {
	url := "http://" + k.hosts[host].address + "/keys/" + r.key
	if r.query != "" {
		url += "?" + r.query
	}
	q, err := http.NewRequestWithContext(ctx, r.method, url, strings.NewReader(r.body))
	if err != nil {
		k.report(err)
		return answer{outcome: Refused}
	}
	if r.header[0] != "" {
		q.Header.Set(r.header[0], r.header[1])
	}
	if id != "" {
		q.Header.Set("Idempotency-Key", id)
	}
	w, err := k.http.Do(q)
	if dial := (*net.OpError)(nil); errors.As(err, &dial) && dial.Op == "dial" {
		return answer{outcome: Refused} // no host has the request
	} else if err != nil {
		return answer{outcome: Unknown}
	}
	defer w.Body.Close()
	body, err := io.ReadAll(w.Body)
	a = answer{outcome: Answered, code: w.StatusCode, body: string(body), etag: w.Header.Get("ETag")}
	a.index = placeIn(r.method, w.Header)
	switch outcome := w.Header.Get("Millrace-Outcome"); {
	case w.StatusCode == http.StatusServiceUnavailable && outcome == "none":
		a.outcome = Refused
	case w.StatusCode == http.StatusGatewayTimeout && outcome == "unknown", err != nil:
		a.outcome = Unknown
	case w.StatusCode == http.StatusConflict && outcome == "unknown" && id != "":
		a.outcome, a.lost = Unknown, true
		k.lost.Add(1)
	case outcome != "":
		k.report(fmt.Errorf("%s %s %s: %s (outcome %s): %s", r.method, url, id, w.Status, outcome, body))
		a.outcome = Unknown
	}
	return a
}

// check reads the counters when the load has stopped: each add took effect once.
func (l *load) check(t *testing.T, hosts []*process) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fault != nil {
		t.Error(l.fault)
	}
	for _, s := range l.sums {
		for _, p := range hosts {
			eventually(t, "a counter is read", func() error {
				value, found, err := p.get(s.key, "")
				if err != nil {
					return err
				}
				n, err := strconv.Atoi(value)
				if !found {
					n, err = 0, nil
				}
				if err != nil || n != s.n && !(s.open && n == s.n+1) {
					t.Errorf("host %d: %s is %d (%v), and %d adds were answered (one more is open: %v)", p.id, s.key, n, err, s.n, s.open)
				}
				return nil
			})
		}
	}
}
