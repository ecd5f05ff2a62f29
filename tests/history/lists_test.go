package history

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/sim/history"
)

// judgeOrders gives a history of processes to the checkers that know the order of operations, and wants
// them to reject it when it is spoilt.
func judgeOrders(t *testing.T, h History) {
	t.Helper()
	began := time.Now()
	if err := h.Monotonic(); err != nil {
		t.Error(err)
	}
	links, err := h.Chains()
	if err != nil {
		t.Error(err)
	}
	appends, err := h.Lists()
	if err != nil {
		t.Error(err)
	}
	placed := 0
	for _, o := range h {
		if o.Index > 0 {
			placed++
		}
	}
	t.Logf("%d operations have an index, %d changes say what they have replaced, %d appends are in lists; checked in %v", placed, links, appends, time.Since(began).Round(time.Millisecond))
	if placed == 0 || links+appends == 0 {
		t.Error("the history shows no order")
	}
	judgeJudges(t, h)
}

// TestListsOfProcesses: clients append to a few lists, by reading one and setting it on condition that it has
// not changed, while hosts are killed and started again, and cut off. Each append that was answered is in the
// list once; and the lists, as swaps, are linearizable and one chain.
func TestListsOfProcesses(t *testing.T) {
	const lists, clients, perHost = 4, 6, 60
	c := startCluster(t)
	l := &load{hosts: c.hosts, began: time.Now(), options: loadOptions{timeout: 400 * time.Millisecond}, http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}}}
	l.ctx, l.stopped = context.WithCancel(context.Background())
	t.Cleanup(l.stop)
	var swaps Recorder
	for id := range clients {
		k := &client{load: l, id: id, at: id % len(c.hosts), rng: rand.New(rand.NewPCG(uint64(id), 7)), seen: map[string]seen{}}
		l.running.Go(func() {
			for n := 0; k.ctx.Err() == nil; n++ {
				k.appendTo(fmt.Sprint("list-", k.rng.IntN(lists)), fmt.Sprintf("%d.%d", id, n), &swaps)
			}
		})
	}
	l.waitForMore(t, 1, "before the first kill") // then the group is founded, and two hosts are enough
	for _, p := range c.hosts {
		p.kill(t)
		l.waitForMore(t, perHost, "with two hosts")
		p.start(t, p.args)
		c.waitLevel(t, p, c.without(p))
		l.waitForMore(t, perHost, "with three hosts")
	}
	l.stop()
	l.check(t, c.hosts)
	h := swaps.History()
	if err := h.Linearizable(time.Minute); err != nil {
		t.Error(err)
	}
	t.Log(h.Count())
	judgeOrders(t, h)
	judgeOrders(t, append(appendsOf(h), h.without(func(o *Operation) bool { return o.Kind != Get })...))
}

// appendTo appends an element to a list, and records what it has seen as a Get and a Swap. It tries once.
func (k *client) appendTo(key, element string, to *Recorder) {
	get := Operation{Client: k.id, Key: key, Kind: Get, Call: k.now()}
	a := k.once(request{method: http.MethodGet, key: key}, "")
	if a.outcome != Answered || a.code != http.StatusOK && a.code != http.StatusNotFound {
		return
	}
	get.Return, get.Outcome, get.Index = k.now(), Answered, a.index
	r := request{method: http.MethodPut, key: key, header: [2]string{"If-None-Match", "*"}}
	if a.code == http.StatusOK {
		get.Got, r.header = a.body, [2]string{"If-Match", a.etag}
	}
	to.Add(get)
	swap := Operation{Client: k.id, Key: key, Kind: Swap, Want: get.Got, Value: history.Appended(get.Got, element), Call: k.now()}
	r.body = swap.Value
	a = k.once(r, "")
	swap.Return, swap.Outcome = k.now(), a.outcome
	if a.outcome == Answered {
		swap.Index = a.index
		switch a.code {
		case http.StatusOK:
			swap.Took = true
			k.answers.Add(1)
		case http.StatusPreconditionFailed:
			swap.Got = a.body
		default:
			k.report(fmt.Errorf("%v: status %d: %s", swap, a.code, a.body))
		}
	}
	to.Add(swap)
}

// appendsOf returns swaps of a list for a list with one more element as appends. One that has not taken was
// not applied.
func appendsOf(h History) (appends History) {
	for _, o := range h {
		if o.Kind != Swap {
			continue
		}
		a := o
		a.Kind, a.Got, a.Want, a.Took = Append, o.Want, "", false
		a.Value = strings.TrimPrefix(strings.TrimPrefix(o.Value, o.Want), ",")
		if o.Outcome == Answered && !o.Took {
			a.Outcome, a.Index = Refused, 0
		}
		appends = append(appends, a)
	}
	return appends
}
