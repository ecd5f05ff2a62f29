package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/ops"
	"github.com/millrace/millrace/vfs/crashfs"
)

// machine is a state machine that does what its commands ask for.
type machine struct {
	id    uint64
	count uint64
	until <-chan struct{} // "hang 3" hangs on member 3 until it is closed
}

func (m *machine) Apply(batch []millrace.Command[string], results []string) error {
	for i, c := range batch {
		m.count++
		results[i] = fmt.Sprint(m.count)
		word, who, _ := strings.Cut(c.Value, " ")
		if word == "publish" {
			for n, _ := strconv.Atoi(who); n > 0; n-- {
				batch[i].Publish([]byte("x"))
			}
			continue
		}
		switch mine := who == "" || who == fmt.Sprint(m.id); {
		case word == "panic" && mine:
			panic("the command says so")
		case word == "hang" && mine:
			<-m.until
		case word == "differ" && mine:
			results[i] = "another one"
		}
	}
	return nil
}

var errNoSnapshot = errors.New("the machine takes no snapshots")

func (m *machine) Snapshot() (millrace.Snapshot, error) { return nil, errNoSnapshot }

func (m *machine) Restore(context.Context, io.Reader) error { return nil }

// trio is a cluster of three members in this process, with the real runtime, TCP and disks in memory that
// fail as a test wants. It goes on while members are down.
type trio struct {
	t         *testing.T
	disks     [4]*crashfs.FS // by id
	addresses map[uint64]string
	change    func(c *millrace.Config)
	release   chan struct{} // closed at the end: what hangs returns

	mu    sync.Mutex
	nodes [4]*millrace.Node[string, string]
	pages [4]http.Handler
}

func newTrio(t *testing.T, change func(c *millrace.Config)) *trio {
	t.Helper()
	c := &trio{t: t, addresses: map[uint64]string{}, change: change, release: make(chan struct{})}
	for id := uint64(1); id <= 3; id++ {
		c.disks[id] = crashfs.New()
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		c.addresses[id] = l.Addr().String()
		l.Close()
	}
	t.Cleanup(func() {
		close(c.release)
		for id := uint64(1); id <= 3; id++ {
			c.disks[id].SetHook(nil)
			c.stop(id)
		}
	})
	return c
}

// startTrio starts all three, and waits for a leader.
func startTrio(t *testing.T, change func(c *millrace.Config)) *trio {
	t.Helper()
	c := newTrio(t, change)
	for id := uint64(1); id <= 3; id++ {
		c.start(id)
	}
	c.leader()
	return c
}

func (c *trio) start(id uint64) {
	c.t.Helper()
	config := millrace.Config{
		ID: id, Dir: "/data", Members: c.addresses, StageTimes: true, Logger: slog.New(slog.DiscardHandler),
		HeartbeatInterval: 50 * time.Millisecond, Snapshots: millrace.SnapshotPolicy{Disabled: true},
	}
	if c.change != nil {
		c.change(&config)
	}
	m := millrace.InMemory(&machine{id: id, until: c.release}, millrace.JSON[string]()).Results(millrace.JSON[string]())
	node, err := millrace.Open(c.t.Context(), config, m, millrace.WithHostOptions(host.WithFS(c.disks[id].Mount())))
	if err != nil {
		c.t.Fatal(err)
	}
	page, err := ops.NewHandler(node, ops.Options{})
	if err != nil {
		c.t.Fatal(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes[id], c.pages[id] = node, page
}

// stop ends a member. Its page is gone.
func (c *trio) stop(id uint64) {
	c.t.Helper()
	c.mu.Lock()
	node := c.nodes[id]
	c.nodes[id], c.pages[id] = nil, nil
	c.mu.Unlock()
	if node != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = node.Close(ctx) // a member whose disk failed says so
	}
}

func (c *trio) node(id uint64) *millrace.Node[string, string] {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes[id]
}

// targets are the pages that are scraped, with nil for members that are down.
func (c *trio) targets() map[string]http.Handler {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[string]http.Handler{}
	for id := 1; id <= 3; id++ {
		all[fmt.Sprint("host-", id)] = nil
		if c.pages[id] != nil {
			all[fmt.Sprint("host-", id)] = c.pages[id]
		}
	}
	return all
}

// leader waits for a leader that runs, and returns its id.
func (c *trio) leader() (id uint64) {
	c.t.Helper()
	eventually(c.t, "a leader", func() error {
		for id = 1; id <= 3; id++ {
			if n := c.node(id); n != nil && n.Status().Leader == id {
				return nil
			}
		}
		return errors.New("there is none")
	})
	return id
}

// followers are the ids of the others.
func (c *trio) followers() (all []uint64) {
	leader := c.leader()
	for id := uint64(1); id <= 3; id++ {
		if id != leader {
			all = append(all, id)
		}
	}
	return all
}

// propose proposes a command until it is applied on a leader.
func (c *trio) propose(command string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 30*time.Second)
	defer cancel()
	for {
		_, err := c.node(c.leader()).Propose(ctx, command)
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			c.t.Fatal(err)
		}
	}
}

// submit proposes a command, and does not wait.
func (c *trio) submit(command string) {
	for id := uint64(1); id <= 3; id++ {
		if n := c.node(id); n != nil && n.Status().Leader == id {
			_, _ = n.Submit(command) // it may be refused
		}
	}
}
