package history

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/tests/history/proxy"
)

var (
	long       = flag.Bool("long", false, "clients without a pause, and checks that enough operations are concurrent and of unknown outcome")
	operations = flag.Int("operations", 200_000, "how many operations -long records at least")
)

// TestHistories runs three processes under load. Each is killed in turn and started again, the leader is
// stopped in good order, it and another host are paused, hosts are cut off from each other, and at last one
// comes back with an empty directory, which the others refuse. What the clients saw must be linearizable,
// each change of a session must have taken effect once, and with a stale read planted into it the history
// must be rejected.
func TestHistories(t *testing.T) {
	quick := loadOptions{
		clients: 8, sessions: 3, readers: 6, keys: 4, perKey: 150, pace: 5 * time.Millisecond, timeout: 400 * time.Millisecond,
		reads: []read{{}, {}, {}, {query: "consistency=lease"}, {query: "consistency=lease"}, {query: "consistency=lease"},
			{"consistency=bounded&age=100ms", 100 * time.Millisecond}},
	}
	o, rounds, want := quick, 1, 2000
	if *long {
		o.clients, o.sessions, o.keys, o.perKey, o.pace = 16, 6, 5, 400, 0
		rounds, want = 1<<30, *operations
	}
	c := startCluster(t)
	l := startLoad(t, c, o)
	l.waitForMore(t, 100, "with all three hosts")
	round := 0
	for ; round < rounds && (round == 0 || l.recorder.Len() < want); round++ {
		disturb(t, c, l, round)
	}
	t.Logf("rounds of faults: %d", round)
	eventually(t, fmt.Sprintf("%d operations are recorded", want), func() error {
		if n := l.recorder.Len(); n < want {
			return fmt.Errorf("%d are", n)
		}
		return nil
	})
	rest := wipe(t, c, l)
	l.stop()
	l.check(t, rest)
	if err := sendTwice(t, rest); err != nil {
		t.Error(err)
	}
	judge(t, l)
	for _, p := range rest {
		t.Logf("host %d, in its last life: %s", p.id, p.metrics("millrace_group_snapshot_"))
		p.terminate(t)
	}
}

// TestStaleReadIsRejected: a host that is cut off serves an old value to a client that asks for no more than
// a local read. As a history of reads that must be the newest, it is rejected. The same host answers no
// linearizable read and none by a lease until it hears the others again.
func TestStaleReadIsRejected(t *testing.T) {
	c := startCluster(t, "-timeout", "200ms")
	var r Recorder
	write := func(p *process, what string) (value string) {
		k := &client{load: &load{hosts: []*process{p}, options: loadOptions{timeout: 5 * time.Second}, http: plain, ctx: t.Context()}, rng: rand.New(rand.NewPCG(1, 1))}
		eventually(t, what+" is written", func() error {
			value = fmt.Sprintf("%s-%d", what, r.Len()) // each try has its own
			o := Operation{Key: "k", Kind: Put, Value: value, Call: time.Duration(r.Len())}
			a := k.once(request{method: http.MethodPut, key: o.Key, body: value}, "")
			o.Outcome, o.Return = a.outcome, o.Call
			if r.Add(o); o.Outcome != Answered {
				return fmt.Errorf("status %d: %s", a.code, a.body)
			}
			return nil
		})
		return value
	}
	leader := c.leader(t)
	older := write(leader, "old")
	cut := c.without(leader)[0]
	eventually(t, "the host has the old value", func() error {
		if value, _, err := cut.get("k", "consistency=local"); value != older {
			return fmt.Errorf("it has %q (%v)", value, err)
		}
		return nil
	})
	c.cut(cut, proxy.Holding)
	newer := write(c.leaderOf(t, c.without(cut)), "new")
	if err := r.History().Linearizable(time.Minute); err != nil {
		t.Fatal(err)
	}
	for _, query := range []string{"", "consistency=lease"} {
		if value, found, err := cut.get("k", query); err == nil {
			t.Errorf("a host that is cut off answers %q with %q (%v)", query, value, found)
		}
	}
	value, _, err := cut.get("k", "consistency=local")
	if err != nil {
		t.Fatal(err)
	}
	r.Add(Operation{Key: "k", Kind: Get, Got: value, Outcome: Answered, Call: time.Duration(r.Len()), Return: time.Duration(r.Len())})
	if err := r.History().Linearizable(time.Minute); err == nil {
		t.Errorf("a read that found %q was accepted", value)
	} else {
		t.Log(err)
	}
	c.heal()
	eventually(t, "the host answers with the new value", func() error {
		if value, _, err := cut.get("k", ""); value != newer {
			return fmt.Errorf("it has %q (%v)", value, err)
		}
		return nil
	})
}

// TestPlantedBugIsFound: a program that ignores its sessions fails the check of a change that is sent twice.
func TestPlantedBugIsFound(t *testing.T) {
	if !*long {
		t.Skip("it builds another program; -args -long runs it")
	}
	binary, err := buildWith("planted")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("MILLRACE_PLANTED", "skip_sessions")
	if err := sendTwice(t, startClusterOf(t, binary).hosts); err == nil {
		t.Error("a change was sent to each host of a cluster that ignores sessions, and it took effect once")
	} else {
		t.Log(err)
	}
}

// sendTwice sends one change of a session to each of the hosts, twice. The error says where it took effect
// again, or where no duplicate was counted.
func sendTwice(t *testing.T, hosts []*process) error {
	t.Helper()
	id := newSession(t, hosts[0])
	for _, p := range append(hosts, hosts...) {
		k := &client{load: &load{hosts: []*process{p}, options: loadOptions{timeout: maxWait}, http: plain, ctx: t.Context()}, rng: rand.New(rand.NewPCG(1, 1))}
		if a := k.once(request{method: http.MethodPost, key: "sent-twice/add"}, id+":1"); a.code != http.StatusOK || a.body != "1" {
			return fmt.Errorf("host %d answered %d: %q to an add that was sent to each host, want the sum 1", p.id, a.code, a.body)
		}
	}
	for _, p := range hosts {
		if s, err := p.status(); err != nil || s.DuplicatesSuppressed == 0 {
			return fmt.Errorf("host %d: %+v (%v), want duplicates that were not applied", p.id, s, err)
		} else {
			t.Logf("host %d has not applied %d duplicates", p.id, s.DuplicatesSuppressed)
		}
	}
	return nil
}

// disturb does each thing once, with changes that are answered during each and after it.
func disturb(t *testing.T, c *cluster, l *load, round int) {
	during := int64(100)
	if *long {
		during = 400
	}
	for _, p := range c.hosts {
		p.kill(t)
		l.waitForMore(t, during, "with two hosts")
		p.start(t, p.args)
		c.waitLevel(t, p, c.without(p))
	}

	stopped := c.leader(t)
	stopped.terminate(t)
	l.waitForMore(t, during, "after a planned stop of the leader")
	stopped.start(t, stopped.args)
	c.waitLevel(t, stopped, c.without(stopped))

	for _, paused := range []*process{c.leader(t), c.hosts[round%len(c.hosts)]} {
		paused.signal(t, syscall.SIGSTOP)
		l.waitForMore(t, during, "while a host is paused")
		paused.signal(t, syscall.SIGCONT)
		l.waitForMore(t, during, "after the pause")
	}

	for i, m := range []proxy.Mode{proxy.Holding, proxy.Refusing} {
		cut := c.hosts[(round+i)%len(c.hosts)]
		if i == 0 {
			cut = c.leader(t)
		}
		c.cut(cut, m)
		l.waitForMore(t, during, "while a host is cut off")
		c.heal()
		l.waitForMore(t, during, "after the cut")
	}

	deaf := c.leader(t) // it sends and hears nothing on the connections of the others
	for _, p := range c.without(deaf) {
		c.ways[[2]int{p.id, deaf.id}].Set(proxy.Holding)
	}
	l.waitForMore(t, during, "while the leader hears nothing")
	c.heal()
	l.waitForMore(t, during, "after the leader heard again")
}

// cut cuts a host off from both others.
func (c *cluster) cut(p *process, m proxy.Mode) {
	for _, other := range c.without(p) {
		c.ways[[2]int{p.id, other.id}].Set(m)
		c.ways[[2]int{other.id, p.id}].Set(m)
	}
}

func (c *cluster) heal() {
	for _, way := range c.ways {
		way.Set(proxy.Passing)
	}
}

// wipe kills the leader and starts it on an empty directory. The others refuse it and go on.
func wipe(t *testing.T, c *cluster, l *load) (rest []*process) {
	t.Helper()
	p := c.leader(t)
	rest = c.without(p)
	p.kill(t)
	l.waitForMore(t, 50, "with two hosts")
	if err := os.RemoveAll(p.dir); err != nil {
		t.Fatal(err)
	}
	p.start(t, p.founded)
	sentence := fmt.Sprintf("has another directory than host %d had before", p.id)
	eventually(t, "every host says that the wiped one is refused", func() error {
		for _, q := range rest {
			if q.line("refused a connection", fmt.Sprintf("from=%d", p.id), sentence) == "" {
				return fmt.Errorf("host %d has not logged that it refuses host %d", q.id, p.id)
			}
		}
		if p.line("a majority of its members, refuse the directory", sentence) == "" {
			return fmt.Errorf("host %d has not said that its group has stopped because both others refuse it", p.id)
		}
		return nil
	})
	t.Logf("host %d, wiped, logged: %s", p.id, p.line(sentence))
	l.waitForMore(t, 100, "with a wiped host beside them")
	if s, err := p.status(); err == nil && (s.Leader != 0 || s.Keys != 0 || s.Applied != 0) {
		t.Errorf("host %d, which lost its directory, takes part: %+v", p.id, s)
	}
	return rest
}

// judge checks the history of a run, and the same history with a stale read.
func judge(t *testing.T, l *load) {
	t.Helper()
	const perKey = time.Minute
	h := l.recorder.History()
	n := h.Count()
	t.Logf("%v", n)
	t.Logf("%d adds by %d clients with sessions, each counted once; %d changes sent again under their number, of which %d had a result that was lost; %d requests given up early by their client; %v",
		l.adds.Load(), l.options.sessions, l.retries.Load(), l.lost.Load(), l.gaveUp.Load(), l.now().Round(time.Second))
	began := time.Now()
	if err := h.Linearizable(perKey); err != nil {
		t.Error(err)
	}
	t.Logf("checked in %v", time.Since(began).Round(time.Millisecond))
	judgeOrders(t, h)
	planted, err := h.WithStaleRead(7)
	if err != nil {
		t.Error(err)
	} else if err := planted.Linearizable(perKey); err == nil {
		t.Error("a history with a stale read planted into it was accepted")
	} else {
		t.Logf("with one stale read planted:\n%.600s", err)
	}
	if *long && (n.Operations < *operations || n.ConcurrentPercent() < 30 || n.UnknownPercent() < 0.5) {
		t.Errorf("want at least %d operations, 30 %% concurrent, 0.5 %% unknown", *operations)
	}
}
