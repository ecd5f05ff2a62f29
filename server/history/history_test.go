//go:build unix

package history

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/millrace/millrace/server"
	"github.com/millrace/millrace/server/config"
)

var (
	duration = flag.Duration("faults", 4*time.Second, "how long members are killed and stopped")
	clients  = flag.Int("clients", 8, "clients that write and read")
)

const memberEnv = "MILLRACE_TEST_MEMBER"

// TestMain lets the program of the test be a member.
func TestMain(m *testing.M) {
	args := os.Getenv(memberEnv)
	if args == "" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	l, err := config.Load(strings.Split(args, "\n"), nil, nil)
	if err == nil {
		var s *server.Server
		if s, err = server.Start(ctx, server.Config{Config: l.Config, Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))}); err == nil {
			<-ctx.Done()
			err = s.Close(context.Background())
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// member is a process.
type member struct {
	args []string
	addr string
	log  string
	cmd  *exec.Cmd
}

func (m *member) start(t *testing.T) {
	t.Helper()
	log, err := os.OpenFile(m.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	m.cmd = exec.Command(os.Args[0])
	m.cmd.Env = append(os.Environ(), memberEnv+"="+strings.Join(m.args, "\n"))
	m.cmd.Stdout, m.cmd.Stderr = log, log
	if err := m.cmd.Start(); err != nil {
		t.Fatal(err)
	}
}

func (m *member) kill() {
	_ = m.cmd.Process.Kill()
	_ = m.cmd.Wait()
}

func startMembers(t *testing.T, n int) (members []*member) {
	t.Helper()
	dir := t.TempDir()
	var addrs, initial []string
	for range 2 * n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		addrs = append(addrs, l.Addr().String())
	}
	for k := range n {
		initial = append(initial, fmt.Sprintf("m%d=http://%s", k, addrs[k]))
	}
	for k := range n {
		members = append(members, &member{addr: addrs[n+k], log: filepath.Join(dir, fmt.Sprint("log", k)), args: []string{
			fmt.Sprintf("--name=m%d", k), "--data-dir=" + filepath.Join(dir, fmt.Sprint(k)), "--initial-cluster=" + strings.Join(initial, ","),
			"--listen-peer-urls=http://" + addrs[k], "--listen-client-urls=http://" + addrs[n+k], "--heartbeat-interval=20", "--election-timeout=200",
			"--watch-feed-bytes=20000", // so that watches replay the history
		}})
	}
	return members
}

// answer is what a client was told: of a write that was acknowledged, or of a read.
type answer struct {
	began, ended time.Duration
	revision     int64  // of the state
	key, value   string // "": the key was not there
	write        bool
}

// change is an event.
type change struct {
	revision   int64
	key, value string
}

// client writes values that are used once, and reads, until ctx ends.
func client(ctx context.Context, t *testing.T, cl *clientv3.Client, id int, began time.Time) (seen []answer) {
	for k := 0; ctx.Err() == nil; k++ {
		a := answer{began: time.Since(began), key: fmt.Sprintf("k%d", rand.IntN(4))}
		short, cancel := context.WithTimeout(ctx, time.Second)
		switch k % 3 {
		case 0:
			a.write, a.value = true, fmt.Sprintf("%d/%d", id, k)
			r, err := cl.Put(short, a.key, a.value)
			if err == nil {
				a.revision = r.Header.Revision
			}
		case 1: // a comparison that mostly holds
			g, err := cl.Get(short, a.key)
			if err != nil {
				break
			}
			mod := int64(0)
			if len(g.Kvs) > 0 {
				mod = g.Kvs[0].ModRevision
			}
			a.write, a.value = true, fmt.Sprintf("%d/%d", id, k)
			r, err := cl.Txn(short).If(clientv3.Compare(clientv3.ModRevision(a.key), "=", mod)).Then(clientv3.OpPut(a.key, a.value)).Commit()
			if err == nil && r.Succeeded {
				a.revision = r.Header.Revision
			}
		case 2:
			r, err := cl.Get(short, a.key)
			if err == nil {
				if a.revision = r.Header.Revision; len(r.Kvs) > 0 {
					a.value = string(r.Kvs[0].Value)
				}
			}
		}
		cancel()
		if a.ended = time.Since(began); a.revision > 0 {
			seen = append(seen, a)
		}
	}
	return seen
}

// watch collects all changes through a revision that comes later.
func watch(ctx context.Context, cl *clientv3.Client, last <-chan int64) (log []change, err error) {
	w := cl.Watch(ctx, "", clientv3.WithPrefix(), clientv3.WithRev(1))
	through := int64(-1)
	for through < 0 || len(log) == 0 || log[len(log)-1].revision < through {
		select {
		case r, ok := <-w:
			if !ok || r.Err() != nil {
				return log, fmt.Errorf("the watch has ended behind %d changes: %w", len(log), r.Err())
			}
			for _, e := range r.Events {
				log = append(log, change{e.Kv.ModRevision, string(e.Kv.Key), string(e.Kv.Value)})
			}
		case through = <-last:
			last = nil
		}
	}
	return log, nil
}

// torment kills and stops members, one at a time, until ctx ends.
func torment(ctx context.Context, t *testing.T, members []*member) (kills, pauses int) {
	for ctx.Err() == nil {
		m := members[rand.IntN(len(members))]
		pause := time.After(time.Duration(50+rand.IntN(400)) * time.Millisecond)
		if rand.IntN(2) == 0 {
			kills++
			m.kill()
			<-pause
			m.start(t)
		} else {
			pauses++
			_ = m.cmd.Process.Signal(syscall.SIGSTOP)
			<-pause
			_ = m.cmd.Process.Signal(syscall.SIGCONT)
		}
		<-time.After(time.Duration(100+rand.IntN(300)) * time.Millisecond)
	}
	return kills, pauses
}

func connect(t *testing.T, addrs ...string) *clientv3.Client {
	t.Helper()
	cl, err := clientv3.New(clientv3.Config{Endpoints: addrs, Logger: zap.NewNop(), DialKeepAliveTime: time.Second, DialKeepAliveTimeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cl.Close() })
	return cl
}

func TestHistory(t *testing.T) {
	if testing.Short() {
		t.Skip("it kills processes for some seconds")
	}
	members := startMembers(t, 3)
	var addrs []string
	for _, m := range members {
		m.start(t)
		t.Cleanup(func() {
			m.kill()
			if t.Failed() {
				b, _ := os.ReadFile(m.log)
				t.Logf("%s:\n%s", m.addr, b)
			}
		})
		addrs = append(addrs, m.addr)
	}
	whole, cancel := context.WithTimeout(t.Context(), *duration+60*time.Second)
	defer cancel()
	first := connect(t, addrs...)
	for { // until the group is founded
		short, cancel := context.WithTimeout(whole, time.Second)
		_, err := first.Put(short, "begin", "")
		if cancel(); err == nil {
			break
		}
		if whole.Err() != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	faults, stop := context.WithTimeout(whole, *duration)
	defer stop()
	var running, watching sync.WaitGroup
	seen := make([][]answer, *clients)
	for k := range seen {
		cl := connect(t, append(addrs[k%3:], addrs[:k%3]...)...)
		running.Go(func() { seen[k] = client(faults, t, cl, k, began) })
	}
	logs, last := make([][]change, 4), make([]chan int64, 4)
	for k := range logs {
		cl := connect(t, append(addrs[k%3:], addrs[:k%3]...)...)
		if k == 3 {
			continue // begins at the end
		}
		last[k] = make(chan int64, 1)
		watching.Go(func() {
			var err error
			if logs[k], err = watch(whole, cl, last[k]); err != nil {
				t.Error(err)
			}
		})
	}
	kills, pauses := torment(faults, t, members)
	running.Wait()
	var end *clientv3.PutResponse
	var err error
	for range 100 {
		if end, err = first.Put(whole, "end", ""); err == nil {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	for k := range 3 {
		last[k] <- end.Header.Revision
	}
	through := make(chan int64, 1)
	through <- end.Header.Revision
	if logs[3], err = watch(whole, first, through); err != nil {
		t.Fatal(err)
	}
	watching.Wait()
	all := slices.Concat(seen...)
	for _, wrong := range judge(all, logs) {
		t.Error(wrong)
	}
	writes := 0
	for _, a := range all {
		if a.write {
			writes++
		}
	}
	t.Logf("%d kills, %d pauses: %d writes acknowledged, %d reads, %d changes", kills, pauses, writes, len(all)-writes, len(logs[3]))
	if writes < 20 || kills+pauses < 3 {
		t.Error("too little has happened to judge anything")
	}
}

// judge holds the answers against the log, and says what is wrong.
func judge(answers []answer, logs [][]change) (wrong []string) {
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	log := logs[3]
	at, values := map[int64]change{}, map[string]bool{}
	for k, c := range log {
		if k > 0 && c.revision != log[k-1].revision+1 {
			say("the log has revision %d behind %d", c.revision, log[k-1].revision)
		}
		if values[c.value] && c.value != "" {
			say("value %s was written twice", c.value)
		}
		at[c.revision], values[c.value] = c, true
	}
	for k, other := range logs[:3] {
		if !slices.Equal(other, log) {
			say("watch %d saw %d changes, or others than the log, which has %d", k, len(other), len(log))
		}
	}
	valueAt := func(key string, revision int64) (value string) {
		for _, c := range log {
			if c.revision <= revision && c.key == key {
				value = c.value
			}
		}
		return value
	}
	for _, a := range answers {
		if a.write {
			if c := at[a.revision]; c.key != a.key || c.value != a.value {
				say("lost: %s=%s was acknowledged at revision %d, and the log has %s=%s there", a.key, a.value, a.revision, c.key, c.value)
			}
		} else if want := valueAt(a.key, a.revision); a.value != want {
			say("a read of %s at revision %d had %q, and the log has %q", a.key, a.revision, a.value, want)
		}
	}
	byEnd := slices.Clone(answers)
	slices.SortFunc(byEnd, func(a, b answer) int { return int(a.ended - b.ended) })
	slices.SortFunc(answers, func(a, b answer) int { return int(a.began - b.began) })
	newest, k := int64(0), 0
	for _, a := range answers {
		for ; k < len(byEnd) && byEnd[k].ended < a.began; k++ {
			newest = max(newest, byEnd[k].revision)
		}
		if a.revision < newest || a.write && a.revision == newest {
			say("stale: an answer of revision %d to a request that was sent behind an answer of revision %d", a.revision, newest)
		}
	}
	return wrong
}

// TestTheJudge holds that the judge can fail.
func TestTheJudge(t *testing.T) {
	log := []change{{2, "a", "1"}, {3, "a", "2"}, {4, "b", "3"}}
	good := [][]change{log, log, log, log}
	second := time.Second
	for name, row := range map[string]struct {
		answers []answer
		logs    [][]change
		bad     bool
	}{
		"good":         {[]answer{{0, second, 2, "a", "1", true}, {2 * second, 3 * second, 3, "a", "2", false}}, good, false},
		"lost":         {[]answer{{0, second, 9, "a", "1", true}}, good, true},
		"another":      {[]answer{{0, second, 3, "a", "1", true}}, good, true},
		"stale":        {[]answer{{0, second, 3, "a", "2", true}, {2 * second, 3 * second, 2, "a", "1", false}}, good, true},
		"wrong value":  {[]answer{{0, second, 3, "a", "1", false}}, good, true},
		"doubled":      {nil, [][]change{log, log, log, {{2, "a", "1"}, {3, "a", "1"}}}, true},
		"event lost":   {nil, [][]change{log[1:], log, log, log}, true},
		"event double": {nil, [][]change{log, append(log[:1:1], log...), log, log}, true},
	} {
		if wrong := judge(row.answers, row.logs); len(wrong) > 0 != row.bad {
			t.Errorf("%s: %q", name, wrong)
		}
	}
}
