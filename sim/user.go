package sim

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/sim/property"
	"github.com/millrace/millrace/vfs/crashfs"
)

// Workload is a user's machine and what its clients ask of it.
type Workload[C, R any] struct {
	// Machine returns a new machine for a host, with an empty state, each time that the host starts. It is
	// restored from a snapshot, if there is one, and gets the log behind it. It must be quick, start no
	// goroutine, and touch nothing outside. A machine that keeps files has Durable instead.
	Machine func(host uint64) millrace.Machine[C, R]
	// Durable is Machine for machines that keep their state on a disk (millrace.Durable), with its other rules.
	// Each call is the start of a process. It returns a machine on what a power cut would have left of the
	// disk: all that was synced, and any part of the rest. The machine of the process before is not used any
	// more, and not closed. disk is another number when the host has lost its directory: then it is empty. The
	// files of snapshots must be in their streams: the simulator has no disk to link them to. It is called once
	// with host 0, to ask what the machine can do. If the machine has goroutines, runs of one seed may differ.
	Durable func(host, disk uint64) millrace.Machine[C, R]
	// Command draws a command. It must draw from rng only, so that the same seed gives the same run.
	Command func(rng *rand.Rand) C
	// Check, if set, looks at the history of a run, in the order of the calls. An error is a violation.
	Check func(history []Operation[C, R]) error
}

// RunMachine runs one seed with a user's machine, through the typed face: three or five hosts on which
// clients call Submit, with all the faults of Run. Beyond what Run checks, it demands of the machine and of
// the face:
//
//   - the machine is deterministic: each command has the same result on every host and after each restart.
//     In the end all hosts have the same digest, if any;
//   - a command is applied once at most, with a result exactly once, after a refusal never. Its client gets
//     the result that the hosts have computed, or hears that there is none any more;
//   - its snapshots are restored: what it applies after Restore has the results that other hosts have got;
//   - each command has the same version on every host. If the machine has several (Machine.Versions), hosts
//     run programs with different ones, which change at restarts, and the group is upgraded;
//   - the history is linearizable: a command that is called after another has returned comes behind it;
//   - timers (Machine.Timers) do not stay due once the faults have stopped. Hosts propose ticks while they
//     believe that they lead. Ticks are in the history, too.
//
// It returns the history, whose outcomes are those that the clients know. The error, if any, is a *Violation,
// or says what is missing in the workload. A test runs a few hundred seeds.
func RunMachine[C, R any](o Options, load Workload[C, R]) (report Report, history []Operation[C, R], err error) {
	if (load.Machine == nil) == (load.Durable == nil) || load.Command == nil {
		return report, nil, errors.New("sim: Workload needs a Command, and either Machine or Durable")
	}
	if o.Faults == 0 {
		o.Faults = defaultFaults
	}
	o.calls, o.groups, o.durable = true, 1, load.Durable != nil
	w := newWorld(o)
	u := &userRun[C, R]{w: w, load: load, rng: splitSeed(o.Seed, 20), results: map[raftpb.Position]*userResult[C, R]{}, machines: map[uint64]userMachine[C, R]{}, disks: map[*crashfs.FS]uint64{}, times: map[uint64]time.Duration{}}
	w.user = u
	defer func() {
		report, history = w.report(), u.history
		if err = violation(recover()); err != nil {
			err.(*Violation).user = true
		}
	}()
	u.asked = u.ask()
	can := u.asked.CanDo()
	w.drawUpgrades(&can)
	w.startHosts()
	w.startClients()
	w.startUpgrades()
	u.startClock()
	w.startNemesis()
	w.startImpostors()
	w.upgrade()
	w.pass(o.Faults)
	w.endWell()
	u.checkAtEnd()
	return report, u.history, nil
}

// user is a run with a user's machine, as the rest of the simulator sees it.
type user interface {
	// open opens the group of a replica.
	open(r *replica, process *host.Host, c host.GroupConfig) (*host.Group, error)
	// submit hands a command in. It returns its text in the log.
	submit(r *replica, number int) (string, ending, error)
	// submitTogether hands in commands numbered from first onwards, and returns those that were taken.
	submitTogether(r *replica, first, n int) ([]pending, error)
	pollTogether(r *replica)
	// checkTimers lets timers expire when the faults have stopped.
	checkTimers()
}

// ending is how a command under way ends.
type ending interface {
	Poll() (r outcome.Receipt, done bool, err error)
}

// userRun is the user of one run.
type userRun[C, R any] struct {
	w        *world
	load     Workload[C, R]
	rng      *rand.Rand
	asked    millrace.Machine[C, R] // one that no host has
	history  []Operation[C, R]
	idle     []int // clients without a command
	clients  int   // so far
	results  map[raftpb.Position]*userResult[C, R]
	machines map[uint64]userMachine[C, R] // the latest of each host
	disks    map[*crashfs.FS]uint64       // of Workload.Durable: their numbers
	times    map[uint64]time.Duration     // log time of each entry
	clock    *simClock[C, R]              // nil: the machine has no timers
}

// userMachine is the machine of a replica.
type userMachine[C, R any] struct {
	millrace.Machine[C, R]
	replica *replica
}

// userResult is what the first host has computed for a command.
type userResult[C, R any] struct {
	value     C
	is        R
	published [][]byte
	by        string
}

// numbered is a command with the number that the simulator gave it, so that no two are equal.
type numbered[C any] struct {
	value C
	text  string // its encoding: the number, a space, and the user's
}

// numberedCodec encodes numbered commands with the codec of the user.
type numberedCodec[C any] struct{ user millrace.Codec[C] }

func (c numberedCodec[C]) Append(dst []byte, v numbered[C]) ([]byte, error) {
	return append(dst, v.text...), nil
}

func (c numberedCodec[C]) Decode(b []byte) (v numbered[C], err error) {
	_, encoded, ok := bytes.Cut(b, []byte(" "))
	if !ok {
		return v, fmt.Errorf("sim: %q is no command of the simulator", b)
	}
	v.text = string(b)
	v.value, err = c.user.Decode(encoded)
	return v, err
}

func (u *userRun[C, R]) open(r *replica, process *host.Host, c host.GroupConfig) (*host.Group, error) {
	m := u.start(r.life.host)
	if m.StateMachine() == nil || m.Codec() == nil {
		return nil, errors.New("sim: Workload.Machine returns a Machine without a state machine or without a codec")
	}
	watched := &watchedMachine[C, R]{run: u, replica: r, user: m.StateMachine()}
	if err := watched.resume(); err != nil {
		return nil, err
	}
	codec := numberedCodec[C]{m.Codec()}
	machine := watched.observing()
	typed := millrace.InMemory[numbered[C], R](machine, codec)
	if !u.w.groupConfig.Volatile {
		typed = millrace.Durable[numbered[C], R](machine, codec)
	}
	typed = typed.Versions(r.can.Lowest, r.can.Highest)
	if u.w.groupConfig.NonBlocking {
		typed = typed.NonBlocking()
	}
	if _, ok := m.Sum(); ok {
		typed = typed.Digest(func() uint64 { digest, _ := m.Sum(); return digest })
	}
	node, err := millrace.OpenGroup(context.Background(), process, c, typed)
	if err != nil {
		return nil, err
	}
	u.machines[r.life.host.id] = userMachine[C, R]{m, r}
	r.node = node
	return node.Group(), nil
}

func (u *userRun[C, R]) submit(r *replica, number int) (string, ending, error) {
	command := u.command(r, number)
	p, err := r.node.(*millrace.Node[numbered[C], R]).Submit(command)
	if err != nil {
		return command.text, nil, err
	}
	o := u.begin(r, command)
	o.poll = p.Poll
	return command.text, o, nil
}

// command draws one.
func (u *userRun[C, R]) command(r *replica, number int) numbered[C] {
	return u.number(r, u.load.Command(u.rng), number)
}

// number gives a command its number.
func (u *userRun[C, R]) number(r *replica, v C, number int) numbered[C] {
	text, err := u.machines[r.life.host.id].Codec().Append(strconv.AppendInt(nil, int64(number), 10), v)
	if err != nil {
		u.w.breaks(property.StateMachineSafety, "the codec cannot encode the command %+v: %v", v, err)
	}
	at := len(strconv.Itoa(number))
	return numbered[C]{value: v, text: string(slices.Insert(text, at, ' '))}
}

// begin puts a command into the history that was taken.
func (u *userRun[C, R]) begin(r *replica, command numbered[C]) *userOutcome[C, R] {
	u.history = append(u.history, Operation[C, R]{Client: u.takeClient(), Host: r.life.host.id, Input: command.value, Call: u.w.now, Return: Forever})
	return &userOutcome[C, R]{run: u, at: len(u.history) - 1, ghost: r.ghost, last: u.w.nemesis.stopped}
}

// takeClient returns a client without a command under way.
func (u *userRun[C, R]) takeClient() (client int) {
	if n := len(u.idle) - 1; n >= 0 {
		client, u.idle = u.idle[n], u.idle[:n]
		return client
	}
	u.clients++
	return u.clients
}

// userOutcome is a command of the history that is under way.
type userOutcome[C, R any] struct {
	run   *userRun[C, R]
	poll  func() (result R, r outcome.Receipt, done bool, err error)
	at    int // in the history
	ghost *ghost
	last  bool // handed in after the faults
	done  bool // it has its outcome
}

// Poll implements outcome, and completes the history.
func (o *userOutcome[C, R]) Poll() (outcome.Receipt, bool, error) {
	result, receipt, done, err := o.poll()
	if !done {
		return receipt, false, nil
	}
	o.done = true
	u := o.run
	op := &u.history[o.at]
	var already *millrace.AlreadyAppliedError
	switch {
	case err == nil:
		op.Outcome, op.Output, op.Index, op.Pos = Applied, result, receipt.Index, receipt.Pos
		u.checkResult(op)
		o.ghost.finished = o.ghost.finished || o.last
	case errors.As(err, &already): // a snapshot was installed over it: the result is unknown, the entry is not
		o.ghost.finished = o.ghost.finished || o.last
		return already.Receipt, true, nil
	case millrace.MayHaveCommitted(err):
		return receipt, true, err
	default:
		op.Outcome = Refused
	}
	op.Return = u.w.now
	u.idle = append(u.idle, op.Client)
	return receipt, true, err
}

// checkResult: a client gets the result that its host has computed at the position of the receipt.
func (u *userRun[C, R]) checkResult(op *Operation[C, R]) {
	switch r := u.results[op.position()]; {
	case r == nil:
		u.w.breaks(property.StateMachineSafety, "the client of %+v at host %d has a result of entry %v, which no host has applied", op.Input, op.Host, op.position())
	case !equal(r.is, op.Output):
		u.w.breaks(property.StateMachineSafety, "the client of %+v at host %d gets %+v, and entry %v, its command, has the result %+v", op.Input, op.Host, op.Output, op.position(), r.is)
	}
}

// watchedMachine is a user's machine on one host, with the checks of the simulator around it.
type watchedMachine[C, R any] struct {
	run     *userRun[C, R]
	replica *replica
	user    millrace.StateMachine[C, R]
	durable millrace.DurableStateMachine[C, R] // that of Workload.Durable, or nil
	batch   []millrace.Command[C]
	applied uint64 // the last command that it has applied, or that its snapshot includes
}

// Apply implements millrace.StateMachine.
func (m *watchedMachine[C, R]) Apply(batch []millrace.Command[numbered[C]], results []R) error {
	r, w := m.replica, m.replica.life.w
	if r.life.dead {
		return crashfs.ErrCrashed
	}
	m.batch = m.batch[:0]
	for i := range batch {
		c := &batch[i]
		r.atVersion(placeOf(c), c.Version)
		r.recordCommand(placeOf(c), c.Term, c.Time, c.Value.text)
		m.batch = append(m.batch, millrace.CommandWith(c, c.Value.value))
	}
	published := make([][][]byte, len(batch))
	for i := range m.batch {
		m.batch[i].Recorded(&published[i])
	}
	if err := m.user.Apply(m.batch, results); err != nil {
		return err
	}
	for i := range batch {
		c := &batch[i]
		m.applied = c.Index
		m.run.times[c.Index] = c.Time
		for _, data := range published[i] {
			c.Publish(data)
		}
		r.ghost.recordPublished(placeOf(c), published[i])
		first := m.run.results[placeOf(c)]
		if first == nil {
			m.run.results[placeOf(c)] = &userResult[C, R]{c.Value.value, results[i], published[i], r.name}
			continue
		}
		if !equal(first.is, results[i]) {
			w.breaks(property.StateMachineSafety, "the machine is not deterministic: entry %v, %+v, gives %+v at %s, and gave %+v at %s (package smtest looks for the cause)", placeOf(c), c.Value.value, results[i], r.name, first.is, first.by)
		}
		if !slices.EqualFunc(first.published, published[i], bytes.Equal) {
			w.breaks(property.StateMachineSafety, "the machine is not deterministic: entry %v, %+v, publishes %q at %s, and has published %q at %s", placeOf(c), c.Value.value, published[i], r.name, first.published, first.by)
		}
	}
	return nil
}

// placeOf returns where a command is.
func placeOf[C any](c *millrace.Command[C]) raftpb.Position {
	return raftpb.Position{Index: c.Index, Pos: c.Pos}
}

// userView is a snapshot of a user's machine: a line of the simulator's before it (view).
type userView struct {
	*view
	user millrace.Snapshot
}

func (m *watchedMachine[C, R]) Snapshot() (millrace.Snapshot, error) {
	v, err := m.replica.view()
	if err != nil {
		return nil, err
	}
	user, err := m.user.Snapshot()
	if err == nil && user == nil {
		err = errors.New("sim: the machine's Snapshot returns nil")
	}
	if err != nil {
		m.replica.life.w.breaks(property.StateMachineSafety, "the machine takes no snapshot after entry %d: %v", m.applied, err)
	}
	return &userView{v.(*view), user}, nil
}

// WriteTo implements millrace.Snapshot.
func (v *userView) WriteTo(ctx context.Context, to io.Writer) error {
	if _, err := io.WriteString(to, v.text); err != nil {
		return err
	}
	return v.user.WriteTo(ctx, to)
}

// Close implements millrace.Snapshot.
func (v *userView) Close() error { return v.user.Close() }

// Restore implements millrace.StateMachine. Each byte of a snapshot is checked before it comes here, so a
// machine that refuses what is whole is broken.
func (m *watchedMachine[C, R]) Restore(ctx context.Context, from io.Reader) error {
	if m.replica.life.dead {
		return crashfs.ErrCrashed
	}
	buffered := bufio.NewReader(from)
	line, err := buffered.ReadString('\n')
	if err != nil {
		return err
	}
	whole := &failedReader{r: buffered}
	if err := m.user.Restore(ctx, whole); err != nil && whole.err == nil {
		m.replica.life.w.breaks(property.StateMachineSafety, "the machine cannot restore a snapshot that it has written: %v", err)
	} else if err != nil {
		return err
	}
	if err := m.replica.restore(strings.NewReader(line)); err != nil {
		return err
	}
	m.applied = m.replica.watch.applied.Index
	return nil
}

// failedReader remembers an error that is not the end.
type failedReader struct {
	r   io.Reader
	err error
}

func (f *failedReader) Read(b []byte) (int, error) {
	n, err := f.r.Read(b)
	if err != nil && err != io.EOF {
		f.err = err
	}
	return n, err
}

// checkAtEnd: hosts that have applied the same commands have the same state, and the history is linearizable.
func (u *userRun[C, R]) checkAtEnd() {
	type digest struct{ of, host uint64 }
	digests := map[uint64]digest{} // by the last command
	for _, h := range u.w.hosts {
		m := u.machines[h.id]
		of, ok := m.Sum()
		if h.gone || !ok {
			continue
		}
		last := m.replica.watch.applied.Index
		if first, ok := digests[last]; !ok {
			digests[last] = digest{of, h.id}
		} else if first.of != of {
			u.w.breaks(property.StateMachineSafety, "the machine is not deterministic: after the command of entry %d, with the same results, its digest is %#x at host %d and %#x at host %d (package smtest looks for the cause)", last, first.of, first.host, of, h.id)
		}
	}
	u.checkFirstTimers()
	if err := checkOrder(u.history); err != nil {
		u.w.breaks(property.StateMachineSafety, "the history is not linearizable: %v", err)
	}
	if u.load.Check != nil {
		if err := u.load.Check(u.history); err != nil {
			u.w.breaks(property.StateMachineSafety, "Workload.Check: %v", err)
		}
	}
}

// equal reports whether two results are equal as far as a client can see.
func equal(a, b any) bool {
	return reflect.DeepEqual(a, b) || fmt.Sprintf("%#v", a) == fmt.Sprintf("%#v", b) // such as NaN
}

// submitUser hands a user's command to one replica.
func (c *clients) submitUser(r *replica) {
	if c.w.options.Together {
		c.submitUserTogether(r)
		return
	}
	text, p, err := c.w.user.submit(r, c.submitted)
	if err != nil {
		r.observeRefusal(err)
		if !errors.Is(err, outcome.ErrStopped) && !errors.Is(err, outcome.ErrOverloaded) && !isHalted(err) {
			c.w.breaks(property.StateMachineSafety, "%s refuses a command: %v", r.name, err)
		}
		return
	}
	r.pending = append(r.pending, pending{text, p, c.w.now})
}
