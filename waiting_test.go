package millrace_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/internal/timelimit"
	"github.com/millrace/millrace/transport/loopback"
	"github.com/millrace/millrace/vfs/crashfs"
)

// waits opens the named members of three in a bubble, calls f, and closes them. It returns their log.
func waits(t *testing.T, ids []uint64, change func(*millrace.Config), f func(net *loopback.Network, nodes []*millrace.Node[int64, int64])) (log string) {
	var out bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		net := loopback.NewNetwork()
		var nodes []*millrace.Node[int64, int64]
		for _, id := range ids {
			c := millrace.Config{ID: id, Dir: "/data", Members: map[uint64]string{1: "one", 2: "two", 3: "three"}}
			if change != nil {
				change(&c)
			}
			tr := net.Host(id)
			for peer := range c.Members {
				if peer != id {
					tr.SetPeer(peer, "")
				}
			}
			logger := quiet()
			if id == 1 {
				logger = millrace.WithHostOptions(host.WithLogger(slog.New(slog.NewTextHandler(&out, nil))))
			}
			n, err := millrace.Open(t.Context(), c, millrace.InMemory(&counter{}, millrace.Binary[int64]()), millrace.WithTransport(tr), logger, millrace.WithHostOptions(host.WithFS(crashfs.New().Mount())))
			if err != nil {
				t.Fatal(err)
			}
			nodes = append(nodes, n)
		}
		f(net, nodes)
		for _, n := range nodes {
			if err := n.Close(context.Background()); err != nil {
				t.Error(err)
			}
		}
	})
	return out.String()
}

// endsWith proposes, commits and reads with a context that ends, and wants each error to have the context's,
// the cause, and the words.
func endsWith(t *testing.T, n *millrace.Node[int64, int64], cause error, words ...string) {
	t.Helper()
	calls := map[string]func(context.Context) error{
		"Propose": func(ctx context.Context) error { _, err := n.Propose(ctx, 1); return err },
		"Commit":  func(ctx context.Context) error { _, err := n.Commit(ctx, 1); return err },
		"Read":    func(ctx context.Context) error { _, err := n.Read(ctx, millrace.Linearizable); return err },
	}
	if cause != millrace.ErrNotFounded {
		delete(calls, "Commit") // it ends as Propose does
	}
	var limit timelimit.Limit
	for name, call := range calls {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		err := call(ctx)
		cancel()
		client, cancel := context.WithTimeout(context.Background(), time.Minute)
		began, shared := time.Now(), limit.With(client, 5*time.Second)
		again := call(shared)
		shared.Release()
		cancel()
		if took := time.Since(began); !errors.Is(again, context.DeadlineExceeded) || took < 5*time.Second || took > 6*time.Second {
			t.Errorf("%s with a context of a service: after %v: %v", name, took, again)
		}
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, cause) {
			t.Errorf("%s: %v; want the error of the context and %q", name, err, cause)
			continue
		}
		for _, w := range words {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %v; want the words %q", name, err, w)
			}
		}
		if text := err.Error(); strings.Count(text, "millrace: ") != 1 && !millrace.MayHaveCommitted(err) {
			t.Errorf("%s: %v; the package names itself more than once", name, err)
		}
	}
}

// A call whose context ends says what it has waited for, and the log says it too, at growing distances.
func TestEndsSayWhatIsMissing(t *testing.T) {
	t.Run("founding", func(t *testing.T) {
		log := waits(t, []uint64{1, 2}, nil, func(_ *loopback.Network, nodes []*millrace.Node[int64, int64]) {
			endsWith(t, nodes[0], millrace.ErrNotFounded, "host 3 was not heard")
			p, err := nodes[0].Submit(1)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			if _, _, err := p.Wait(ctx); !errors.Is(err, millrace.ErrIndeterminate) || errors.Is(err, millrace.ErrNotFounded) || !strings.Contains(err.Error(), "host 3 was not heard") {
				t.Errorf("Wait of a command that is still on its way: %v", err)
			}
			<-time.After(5 * time.Minute) // of virtual time
		})
		if n := strings.Count(log, "the group waits"); n < 4 || n > 8 || !strings.Contains(log, "host 3 was not heard") {
			t.Errorf("in five minutes the log says %d times that the group waits, want 4 to 8:\n%s", n, log)
		}
	})
	t.Run("different lists", func(t *testing.T) {
		waits(t, []uint64{1, 2, 3}, func(c *millrace.Config) {
			if c.ID == 3 {
				c.Members[2] = "elsewhere"
			}
		}, func(_ *loopback.Network, nodes []*millrace.Node[int64, int64]) {
			endsWith(t, nodes[0], millrace.ErrNotFounded, "host 3 was not heard", "were founded with different lists")
		})
	})
	t.Run("quorum", func(t *testing.T) {
		log := waits(t, []uint64{1, 2, 3}, nil, func(net *loopback.Network, nodes []*millrace.Node[int64, int64]) {
			if _, err := nodes[0].Propose(context.Background(), 1); err != nil {
				t.Fatal(err)
			}
			for _, id := range []uint64{2, 3} {
				net.Cut(1, id)
				net.Cut(id, 1)
			}
			endsWith(t, nodes[0], millrace.ErrNoQuorum, "[1] of 3", "a quorum is 2", "host 2 was heard", "host 3 was heard")
			for _, id := range []uint64{2, 3} {
				net.Heal(1, id)
				net.Heal(id, 1)
			}
			if _, err := nodes[0].Propose(context.Background(), 1); err != nil {
				t.Error(err)
			}
		})
		for _, want := range []string{"the group waits", "too few voters are heard", "the group waits no more"} {
			if !strings.Contains(log, want) {
				t.Errorf("the log does not say %q:\n%s", want, log)
			}
		}
	})
}
