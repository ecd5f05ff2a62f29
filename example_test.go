package millrace_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/event"
)

// Set is a command: Name gets a new value.
type Set struct{ Name, Value string }

// shelf is a state machine: values by name.
type shelf struct {
	mu     sync.RWMutex // readers hold it, too
	values map[string]string
}

// Apply returns the old value of each name.
func (s *shelf) Apply(batch []millrace.Command[Set], results []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, c := range batch {
		results[i] = s.values[c.Value.Name]
		s.values[c.Value.Name] = c.Value.Value
	}
	return nil
}

func (s *shelf) Snapshot() (millrace.Snapshot, error) {
	b, err := json.Marshal(s.values) // no Apply runs now
	return millrace.BytesSnapshot(b), err
}

func (s *shelf) Restore(_ context.Context, r io.Reader) error {
	values := map[string]string{}
	if err := json.NewDecoder(r).Decode(&values); err != nil {
		return err // and nothing has changed
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values = values
	return nil
}

func newShelf() *shelf { return &shelf{values: map[string]string{}} }

// A group of one, in a directory that is deleted afterwards: the same calls make a group of three, with three
// Members.
func Example() {
	dir, err := os.MkdirTemp("", "millrace-example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ctx, machine := context.Background(), newShelf()
	node, err := millrace.Open(ctx, millrace.Config{
		ID: 1, Dir: dir, Members: map[uint64]string{1: "127.0.0.1:0"},
		Logger: slog.New(slog.DiscardHandler),
	}, millrace.InMemory(machine, millrace.JSON[Set]()))
	if err != nil {
		log.Fatal(err)
	}
	defer node.Close(ctx)

	for _, value := range []string{"red", "blue"} {
		old, err := node.Propose(ctx, Set{"colour", value})
		fmt.Printf("set to %s, was %q, %v\n", value, old, err)
	}
	err = node.View(ctx, millrace.Linearizable, func(millrace.ReadAt) error {
		machine.mu.RLock()
		defer machine.mu.RUnlock()
		fmt.Println("the colour is", machine.values["colour"])
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// set to red, was "", <nil>
	// set to blue, was "red", <nil>
	// the colour is blue
}

// handler takes the requests of clients.
func handler(node *millrace.Node[Set, string]) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		old, err := node.Propose(r.Context(), Set{r.URL.Path, r.FormValue("value")})
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, old)
	})
}

// A service opens its node, serves until it is told to stop, and ends within a bound: the clients first.
func ExampleOpen() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	node, err := millrace.Open(ctx, millrace.Config{
		ID:          2,
		Dir:         "/var/lib/shelf",
		Members:     map[uint64]string{1: "10.0.0.1:7001", 2: "10.0.0.2:7001", 3: "10.0.0.3:7001"},
		ClientAddrs: map[uint64]string{1: "http://10.0.0.1", 2: "http://10.0.0.2", 3: "http://10.0.0.3"},
		TLS:         &millrace.TLS{CertFile: "/etc/shelf/cert.pem", KeyFile: "/etc/shelf/key.pem", CAFile: "/etc/shelf/ca.pem"},
	}, millrace.InMemory(newShelf(), millrace.JSON[Set]()))
	if err != nil {
		log.Fatal(err)
	}
	web := &http.Server{Addr: "10.0.0.2:80", Handler: handler(node)}
	go func() { log.Print(web.ListenAndServe()) }()
	<-ctx.Done()

	// First no more requests, then the answers to those that were taken, and the node last.
	ending, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := web.Shutdown(ending); err != nil {
		log.Print(err) // a client is slow: Close answers what waits in the node
	}
	ending, cancel = context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := node.Close(ending); err != nil {
		log.Fatal(err)
	}
}

// Several groups share the log, the connections and the goroutines of one host.
func ExampleOpenGroup() {
	ctx := context.Background()
	h, err := host.Open(ctx, host.Config{ID: 1, Dir: "/var/lib/shelves", Members: map[uint64]string{1: "127.0.0.1:7001"}})
	if err != nil {
		log.Fatal(err)
	}
	defer h.Close(ctx)
	shelves := map[uint64]*millrace.Node[Set, string]{}
	for id := uint64(1); id <= 100; id++ {
		machine := millrace.InMemory(newShelf(), millrace.JSON[Set]())
		if shelves[id], err = millrace.OpenGroup(ctx, h, millrace.GroupConfig{ID: id}, machine); err != nil {
			log.Fatal(err)
		}
	}
}

// The three outcomes of a command.
func ExampleNode_Propose() {
	var node *millrace.Node[Set, string] // opened elsewhere
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()

	old, err := node.Propose(ctx, Set{"colour", "red"})
	switch {
	case err == nil:
		fmt.Println("applied once; it was", old)
	case millrace.MayHaveCommitted(err):
		fmt.Println("unknown: read the state before the command is proposed again:", err)
	default:
		fmt.Println("not applied, and never will be; it may be proposed again:", err)
	}
}

// One goroutine keeps many commands under way.
func ExampleNode_Submit() {
	var node *millrace.Node[Set, string] // opened elsewhere
	ctx := context.Background()

	var pending []*millrace.Pending[string]
	for i := range 1000 {
		p, err := node.Submit(Set{"colour", fmt.Sprint(i)})
		if wait, overloaded := millrace.RetryAfter(err); overloaded {
			log.Print("there is room again in about ", wait)
			break
		}
		if err != nil {
			log.Fatal(err)
		}
		pending = append(pending, p)
	}
	for _, p := range pending {
		old, receipt, err := p.Wait(ctx)
		fmt.Println(old, receipt.Index, err)
	}
}

// A program numbers its commands, and may propose each of them more than once.
func ExampleSession() {
	var node *millrace.Node[Set, string] // opened elsewhere
	ctx := context.Background()

	session := node.NewSession()
	for _, colour := range []string{"red", "green", "blue"} {
		for mark := session.Next(); ; { // the same mark at each attempt
			old, err := node.Propose(ctx, Set{"colour", colour}, millrace.InSession(mark))
			if fmt.Println(old, err); !errors.Is(err, millrace.ErrIndeterminate) {
				break
			}
		}
	}
}

// A server gets the place of a command in a session from its client, which has drawn the session here.
func ExampleInSession() {
	var node *millrace.Node[Set, string] // opened elsewhere
	ctx := context.Background()

	id := node.NewSession().ID() // its String goes to the client, and comes back with each command
	for number := uint64(1); number <= 3; number++ {
		mark := millrace.SessionMark{Session: id, Number: number}
		_, err := node.Propose(ctx, Set{"colour", "red"}, millrace.InSession(mark))
		fmt.Println(err)
	}
}

// A group that remembers more sessions, for less time.
func ExampleMachine_Sessions() {
	machine := millrace.InMemory(newShelf(), millrace.JSON[Set]()).
		Sessions(millrace.SessionOptions{Expiry: 10 * time.Minute, MaxBytes: 64 << 20})
	_ = machine // for Open
}

// A server that does not want its members to forward sends the client to the leader.
func ExampleNotLeaderError() {
	var node *millrace.Node[Set, string] // opened elsewhere
	ctx := context.Background()

	_, err := node.Propose(ctx, Set{"colour", "red"}, millrace.IfLeader())
	if elsewhere := (*millrace.NotLeaderError)(nil); errors.As(err, &elsewhere) {
		fmt.Println("redirect to", elsewhere.ClientAddr)
	}
}

// The same read with each consistency.
func ExampleNode_View() {
	var node *millrace.Node[Set, string] // opened elsewhere
	machine, ctx := newShelf(), context.Background()
	var receipt millrace.Receipt // of a write, from any member

	for _, consistency := range []millrace.Consistency{
		millrace.Linearizable,           // what was acknowledged before now, by any member
		millrace.Lease(0, 0.01),         // the same, without a message where the leader has a lease
		millrace.Bounded(time.Second),   // what was acknowledged until a second ago
		millrace.AtLeast(receipt.Index), // my own write, on whichever member it was acknowledged
		millrace.Local,                  // what is there
	} {
		err := node.View(ctx, consistency, func(at millrace.ReadAt) error {
			machine.mu.RLock()
			defer machine.mu.RUnlock()
			fmt.Println(machine.values["colour"], "is at most", at.Age, "old")
			return nil
		})
		if err != nil {
			log.Print(err)
		}
	}
}

// Do needs no lock: the state machine applies nothing meanwhile.
func ExampleNode_ViewExclusive() {
	var node *millrace.Node[Set, string] // opened elsewhere
	machine, ctx := newShelf(), context.Background()

	err := node.ViewExclusive(ctx, millrace.Linearizable, func() error {
		fmt.Println("the colour is", machine.values["colour"])
		return nil
	})
	if err != nil {
		log.Print(err)
	}
}

// Before a planned stop, so that the next start is short.
func ExampleNode_TakeSnapshot() {
	var node *millrace.Node[Set, string] // opened elsewhere
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	info, err := node.TakeSnapshot(ctx)
	if err != nil {
		log.Print(err) // it stops as well without
	}
	fmt.Println("the next start applies what follows entry", info.Index)
}

// A program that watches its node.
func ExampleNode_Events() {
	var node *millrace.Node[Set, string] // opened elsewhere

	for e := range node.Events(context.Background()) {
		switch e := e.(type) {
		case event.RoleChanged:
			log.Printf("host %d leads in term %d", e.Leader, e.Term)
		case event.GroupStopped:
			log.Fatal("this member has stopped: ", e.Err)
		case event.DiskFull, event.MemberSlow, event.ApplyStalled:
			log.Printf("look at it: %+v", e)
		}
	}
}

// relay is a state machine that publishes what it is told.
type relay struct{ lines int }

func (r *relay) Apply(batch []millrace.Command[string], results []int) error {
	for i := range batch {
		r.lines++
		results[i] = r.lines
		batch[i].Publish([]byte(batch[i].Value))
	}
	return nil
}

func (r *relay) Snapshot() (millrace.Snapshot, error) {
	b, err := json.Marshal(r.lines)
	return millrace.BytesSnapshot(b), err
}

func (r *relay) Restore(_ context.Context, from io.Reader) error {
	b, err := io.ReadAll(from)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, &r.lines)
}

// follow prints what comes, until ctx ends. It returns where it has come to.
func follow(ctx context.Context, node *millrace.Node[string, int], seen millrace.Bookmark) (millrace.Bookmark, error) {
	for p, err := range node.Subscribe(ctx, seen) {
		if err != nil {
			return seen, err // of ctx, or ErrStopped, or a ForgottenError
		}
		fmt.Println(p.At, string(p.Data))
		seen = p.At
	}
	return seen, nil
}

// begin shows the state, and returns where to subscribe.
func begin(ctx context.Context, node *millrace.Node[string, int], show func() error) (millrace.Bookmark, error) {
	var at millrace.ReadAt
	err := node.View(ctx, millrace.Linearizable, func(granted millrace.ReadAt) error {
		at = granted
		return show()
	})
	if err != nil {
		return millrace.Bookmark{}, err
	}
	return millrace.BookmarkAfter(at.Index), nil
}

// Subscribe yields what the state machine publishes, on any node, behind a bookmark.
func ExampleNode_Subscribe() {
	dir, err := os.MkdirTemp("", "millrace")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithCancel(context.Background())
	config := millrace.Config{ID: 1, Dir: dir, Members: map[uint64]string{1: "127.0.0.1:0"}, Logger: slog.New(slog.DiscardHandler)}
	node, err := millrace.Open(ctx, config, millrace.InMemory(&relay{}, millrace.JSON[string]()))
	if err != nil {
		log.Fatal(err)
	}
	seen, err := begin(ctx, node, func() error { return nil })
	if err != nil {
		log.Fatal(err)
	}
	for _, line := range []string{"hello", "world"} {
		if _, err := node.Propose(ctx, line); err != nil {
			log.Fatal(err)
		}
	}
	n := 0
	for p, err := range node.Subscribe(ctx, seen) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(string(p.Data))
		if n++; n == 2 {
			break
		}
	}
	cancel()
	if _, err := follow(ctx, node, node.LastPublication()); errors.Is(err, context.Canceled) {
		fmt.Println("ended")
	}
	if err := node.Close(context.Background()); err != nil {
		log.Fatal(err)
	}
	// Output:
	// hello
	// world
	// ended
}

// directory keeps the names of members.
type directory struct{ names map[uint64]string }

func (d *directory) MembersChanged(c millrace.Configuration) error {
	if c.Version < 1 { // the program before knew nothing of members
		return nil
	}
	for id := range d.names {
		if !c.Has(id) {
			delete(d.names, id)
		}
	}
	return nil
}
