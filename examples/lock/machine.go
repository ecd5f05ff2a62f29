package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/timers"
)

// command is what the machine is asked to do.
type command struct {
	Do    action
	Name  string
	Owner string        `json:",omitempty"` // who asks; different for each
	Token uint64        `json:",omitempty"` // of renew and release
	TTL   time.Duration `json:",omitempty"` // of acquire and renew
}

// action is what a command does.
type action string

const (
	acquire action = "acquire" // the lock; an owner that holds it renews it
	renew   action = "renew"   // a lock that is held with Token
	release action = "release" // a lock that is held with Token
	tick    action = ""        // nothing: it lets leases expire while clients are silent
)

// result is the machine's answer.
type result struct {
	Held bool // by the client that asks; after a release: it was
	lease
}

// lease is a lock that is held.
type lease struct {
	Owner string
	Token uint64 // larger than all tokens before, of any lock
}

// The bounds of a command. They keep the machine small: maxLocks locks of about 1 KiB at most.
const (
	maxNameBytes = 256
	minTTL       = 100 * time.Millisecond
	maxTTL       = time.Hour
	maxLocks     = 100_000
)

// validate says what is wrong with a command.
func (c command) validate() error {
	switch {
	case c.Name == "" || len(c.Name) > maxNameBytes:
		return fmt.Errorf("the name has %d bytes, want 1 to %d", len(c.Name), maxNameBytes)
	case c.Do == acquire && (c.Owner == "" || len(c.Owner) > maxNameBytes):
		return fmt.Errorf("the owner has %d bytes, want 1 to %d", len(c.Owner), maxNameBytes)
	case c.Do != acquire && c.Token == 0:
		return fmt.Errorf("a token is missing: acquire returns it")
	case c.Do != release && (c.TTL < minTTL || c.TTL > maxTTL):
		return fmt.Errorf("ttl is %v, want %v to %v", c.TTL, minTTL, maxTTL)
	}
	return nil
}

// locks is the state machine. The only time that it knows is Command.Time, the log time: it is the same on
// every member, so all members let a lease expire at the same command.
type locks struct {
	state
}

type state struct {
	Locks map[string]lease
	Ends  timers.Queue[string] // of the leases, in log time
	Last  uint64               // the last token
}

func newLocks() *locks { return &locks{state{Locks: map[string]lease{}}} }

// Log time goes in steps: a command may have a time that is some milliseconds old. grace keeps a lease in the
// machine a little longer than its holder believes in it, never shorter.
const grace = 50 * time.Millisecond

// Apply implements millrace.StateMachine.
func (l *locks) Apply(batch []millrace.Command[command], results []result) error {
	for i := range batch {
		results[i] = l.apply(batch[i].Value, batch[i].Time)
	}
	return nil
}

func (l *locks) apply(c command, now time.Duration) result {
	for name := range l.Ends.Expire(now, maxLocks) {
		delete(l.Locks, name)
	}
	held, ok := l.Locks[c.Name]
	switch {
	case c.Do == acquire && !ok:
		if len(l.Locks) >= maxLocks {
			return result{}
		}
		l.Last++
		held = lease{Owner: c.Owner, Token: l.Last}
	case c.Do == acquire && held.Owner == c.Owner, c.Do == renew && ok && held.Token == c.Token:
	case c.Do == release && ok && held.Token == c.Token:
		delete(l.Locks, c.Name)
		l.Ends.Cancel(c.Name)
		return result{Held: true, lease: held}
	case !ok:
		return result{}
	default:
		return result{lease: held}
	}
	l.Locks[c.Name] = held
	end, _ := l.Ends.Deadline(c.Name)
	l.Ends.Set(c.Name, max(end, now+c.TTL+grace))
	return result{Held: true, lease: held}
}

// Snapshot implements millrace.StateMachine.
func (l *locks) Snapshot() (millrace.Snapshot, error) {
	b, err := json.Marshal(&l.state)
	return millrace.BytesSnapshot(b), err
}

// Restore implements millrace.StateMachine.
func (l *locks) Restore(_ context.Context, r io.Reader) error {
	b, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	fresh := newLocks()
	if err := json.Unmarshal(b, &fresh.state); err != nil {
		return err
	}
	l.state = fresh.state
	return nil
}

// digest depends on the whole state, so that members notice if theirs differ.
func (l *locks) digest() uint64 {
	h := fnv.New64a()
	fmt.Fprintln(h, l.Last)
	for _, name := range slices.SortedFunc(maps.Keys(l.Locks), cmp.Compare[string]) {
		end, _ := l.Ends.Deadline(name)
		fmt.Fprintf(h, "%q %+v %d\n", name, l.Locks[name], end)
	}
	return h.Sum64()
}

// machine returns a new machine for millrace.
func machine() (*locks, millrace.Machine[command, result]) {
	l := newLocks()
	return l, millrace.InMemory(l, millrace.JSON[command]()).Digest(l.digest).Timers(&l.Ends, command{Do: tick}).Version("2")
}
