package main

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/host"
)

var rounds = flag.Int("rounds", 2, "how often each process is killed; with -short once")

// TestKilledInTurn runs three processes under load. Each is killed with SIGKILL in turn and started again;
// the leader is stopped with SIGTERM; at last the leader is killed and started on an empty directory. Every
// put that was acknowledged is there in the end, none that was surely not committed is, and the process
// without its directory is refused by both others.
func TestKilledInTurn(t *testing.T) {
	c := startProcesses(t)
	l := startLoad(t, c)
	l.waitForMore(t, 20, "with all three hosts")

	n := *rounds
	if testing.Short() {
		n = 1
	}
	for round := range n {
		for _, p := range c {
			led := c.leader(t) == p
			gap := l.gapDuring(t, 50, func() { p.kill(t) })
			t.Logf("round %d: host %d killed (it led: %v), %v without an acknowledgement", round+1, p.id, led, gap)
			p.start(t)
			c.waitLevel(t, p)
		}
	}

	leader := c.leader(t)
	gap := l.gapDuring(t, 50, func() { leader.terminate(t) })
	t.Logf("planned stop of the leader, host %d: %v without an acknowledgement", leader.id, gap)
	leader.start(t)
	c.waitLevel(t, leader)
	l.check(t, c)

	wiped := c.leader(t)
	rest := slices.DeleteFunc(slices.Clone(c), func(p *process) bool { return p == wiped })
	l.gapDuring(t, 50, func() { wiped.kill(t) })
	if err := os.RemoveAll(wiped.dir); err != nil {
		t.Fatal(err)
	}
	wiped.start(t)
	sentence := fmt.Sprintf("has another directory than host %d had before", wiped.id)
	eventually(t, "every host says that the wiped one is refused", func() error {
		wiped.checkEmpty(t)
		for _, p := range rest {
			if !p.logged("refused a connection", fmt.Sprintf("from=%d", wiped.id), sentence) {
				return fmt.Errorf("host %d has not logged that it refuses host %d", p.id, wiped.id)
			}
		}
		if !wiped.logged("a majority of its members, refuse the directory", sentence) {
			return fmt.Errorf("host %d has not said that its group has stopped because both others refuse it", wiped.id)
		}
		return nil
	})
	t.Logf("host %d, wiped, logged: %s", wiped.id, wiped.line(sentence))
	was := l.count()
	eventually(t, "the other two go on", func() error {
		wiped.checkEmpty(t)
		if more := l.count() - was; more < 100 {
			return fmt.Errorf("%d puts were acknowledged since, want 100", more)
		}
		return nil
	})
	l.stop()
	l.check(t, rest)
	l.checkEqual(t, rest[0], rest[1])
	wiped.checkEmpty(t)
	for _, p := range rest {
		p.terminate(t)
	}
}

// One host alone answers: a put, a get, a status, and what it refuses.
func TestOneHost(t *testing.T) {
	address := freeAddress(t)
	o, err := parseFlags([]string{"-id", "1", "-dir", t.TempDir(), "-heartbeat", "10ms", "-peers", "1=" + freeAddress(t), "-http", "1=" + address})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, o) }()
	p := &process{id: 1, address: address}
	var index uint64
	eventually(t, "a put with no bytes is acknowledged", func() (err error) {
		var o outcome
		if o, index, err = put(address, "a%2Fb", ""); o == unknown {
			t.Fatal(err)
		}
		return err
	})
	eventually(t, "the put is applied", func() error {
		value, through, err := p.get("a%2Fb")
		if err != nil || through < index {
			return fmt.Errorf("applied through %d of %d: %w", through, index, err)
		}
		if value == nil || len(value) > 0 {
			t.Errorf("the value is %q, want an empty one", value)
		}
		return nil
	})
	if s, err := p.status(); err != nil || s.Keys != 1 || s.Bytes != 3 || s.Applied != index || s.Leader != 1 || s.Role != "leader" {
		t.Errorf("status %+v (%v), want one key of 3 bytes at index %d", s, err, index)
	}
	for _, refusal := range []struct{ name, key, value, want string }{
		{"a long key", strings.Repeat("k", maxKeyBytes+1), "", "the key has 1025 bytes, at most 1024 are allowed"},
		{"a large value", "k", strings.Repeat("v", maxValueBytes+1), "the value has more than 1048576 bytes"},
	} {
		if o, _, err := put(address, refusal.key, refusal.value); o == acknowledged || err == nil || !strings.Contains(err.Error(), refusal.want) {
			t.Errorf("%s: %v, want %q", refusal.name, err, refusal.want)
		}
	}
	if o, _, err := put(address, strings.Repeat("k", maxKeyBytes), strings.Repeat("v", maxValueBytes)); o != acknowledged {
		t.Errorf("the largest put: %v", err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("run returned %v after its context ended, want nil", err)
	}
}

// Each wrong flag has a sentence that names it.
func TestFlags(t *testing.T) {
	const peers, clients = "1=127.0.0.1:7001,2=localhost:7002,3=[::1]:7003", "1=127.0.0.1:8001,2=127.0.0.1:8002,3=127.0.0.1:8003"
	for _, c := range []struct{ args, want string }{
		{"-id 2 -dir d -peers " + peers + " -http " + clients, ""},
		{"-id 2 -dir d -peers " + peers + " -http 1=127.0.0.1:8001,2=10.0.0.2:8002", "-http: host 2: 10.0.0.2:8002 is not a loopback address"},
		{"-id 2 -dir d -peers 1=127.0.0.1:7001,2=:7002 -http " + clients, "-peers: host 2: :7002 is not a loopback address"},
		{"-id 2 -public -dir d -peers " + peers + " -http 1=127.0.0.1:8001,2=10.0.0.2:8002", ""},
		{"-id 2 -dir d -http " + clients, `-peers: "": want number=address`},
		{"-id 2 -dir d -peers 1=127.0.0.1:7001,1=127.0.0.1:7002 -http " + clients, `-peers: "1=127.0.0.1:7002": want number=address, each number once`},
		{"-id 2 -dir d -peers 1=127.0.0.1,2=127.0.0.1:7002 -http " + clients, "-peers: host 1: address 127.0.0.1: missing port"},
		{"-id 4 -dir d -peers " + peers + " -http " + clients, "-http has no address for -id 4"},
		{"-id 3 -dir d -peers 1=127.0.0.1:7001 -http " + clients, "Config.Peers has no entry for this host, id 3"},
		{"-id 2 -peers " + peers + " -http " + clients, "Config.Dir is empty"},
		{"-id 2 -dir d -peers " + peers + " -http " + clients + " -heartbeat 1us", "HeartbeatInterval is 1µs"},
		{"-id 2 -dir d -peers " + peers + " -http " + clients + " more", `"more" is no flag`},
	} {
		_, err := parseFlags(strings.Fields(c.args))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s:\n%v, want %q", c.args, err, c.want)
		}
	}
}

// A command has the key and the value that it was made of, and no bytes make the state machine panic.
func TestPut(t *testing.T) {
	for _, c := range []struct{ key, value string }{{"k", "v"}, {"", ""}, {strings.Repeat("k", 300), "v"}, {"\x00", "\xff"}} {
		command := encodePut(c.key, []byte(c.value))
		if key, value, err := decodePut(command); err != nil || key != c.key || string(value) != c.value {
			t.Errorf("%q and %q became %q and %q (%v)", c.key, c.value, key, value, err)
		}
		for n := range len(command) - len(c.value) {
			s := &store{values: map[string][]byte{}}
			if err := s.Apply([]host.Entry{{Index: 7, Data: command[:n]}}); err == nil || !strings.Contains(err.Error(), "index 7") {
				t.Errorf("%d of %d bytes of a command: error %v, want one that names index 7", n, len(command), err)
			}
		}
	}
	huge := binary.AppendUvarint(nil, math.MaxUint64)
	if _, _, err := decodePut(huge); err == nil {
		t.Error("a key of 2^64-1 bytes was accepted")
	}
}
