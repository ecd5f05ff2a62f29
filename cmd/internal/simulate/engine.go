package simulate

import (
	"context"
	"fmt"
	"time"
)

// Progress hears how far a run has come. One goroutine calls it.
type Progress interface {
	// Update is called several times in a second.
	Update(Status)
	// Shrinking says that a failure is made smaller, and how far that is.
	Shrinking(f *Failure, runs, injections int)
	// Failed says that a seed has failed.
	Failed(f *Failure)
	// End is the last call.
	End()
}

// Status is how far a run has come.
type Status struct {
	Elapsed time.Duration
	// Share is the part of the work that is done, from 0 to 1.
	Share  float64
	Seeds  uint64 // of this run, all that have ended
	Events uint64 // of these seeds
	// Injections is how many faults were injected in these seeds, and Cells how many cells of the matrix
	// were hit, over the whole result.
	Injections uint64
	Cells      int
	Failed     uint64
	// Oldest is for how long the oldest run under way has been running, and its seed.
	Oldest     time.Duration
	OldestSeed uint64
}

const (
	tick      = 200 * time.Millisecond
	saveEvery = 10 * time.Second
	// grace is how long an interrupted run waits for the seeds that are under way.
	grace = 10 * time.Second
	// maxAhead bounds the seeds that have ended and wait for an earlier one.
	maxAhead = 4096
)

// Run runs the seeds of a valid plan and adds them to into, in order. It ends when they are done, the time
// is over, or enough have failed. If ctx is done, it returns the cause. It saves into from time to time and
// at the end. An error of save ends it.
func Run(ctx context.Context, p *Plan, into *Result, progress Progress, save func(*Result) error) error {
	profile, _ := profileNamed(p.Profile)
	e := &engine{
		plan: p, profile: profile, result: into, progress: progress, save: save,
		began: time.Now(), next: p.Part.first(p.Seeds.From),
		jobs: make(chan uint64), done: make(chan ran, p.workers()),
		under: map[uint64]time.Time{}, ended: map[uint64]ran{},
	}
	e.from, e.due = p.Seeds.From, e.next
	if e.minutes = p.Minutes; e.minutes == 0 {
		e.minutes = maxMinutes
	}
	e.machine = thisMachine(p.workers())
	return e.run(ctx)
}

// engine is one call of Run. It belongs to one goroutine; workers take seeds from jobs and put what they
// showed into done.
type engine struct {
	plan     *Plan
	profile  Profile
	result   *Result
	progress Progress
	save     func(*Result) error

	began   time.Time
	minutes time.Duration
	saved   time.Time
	machine Machine // this one; its Seeds and Took are those of this run

	jobs chan uint64
	done chan ran

	next uint64 // the next seed to begin
	// due is the next seed to add to the result, from is where what was not added begins: all before it is
	// in the result.
	due, from uint64
	under     map[uint64]time.Time // when the seeds under way began
	ended     map[uint64]ran       // seeds that have ended and wait for an earlier one
	seeds     uint64               // that have ended
	events    uint64
	injected  uint64
	failed    uint64
	noted     Machine // what the result already has of machine
	stopping  time.Time
	stopped   error
}

// ran is a seed that has ended.
type ran struct {
	seed    uint64
	level   *Level
	outcome Outcome
	took    time.Duration
}

func (e *engine) run(ctx context.Context) error {
	for range e.plan.workers() {
		go e.work()
	}
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	interrupted := ctx.Done()
	for e.mayBegin() || len(e.under) > 0 && !e.isOver() {
		var jobs chan<- uint64
		if e.mayBegin() && len(e.under) < e.plan.workers() && len(e.ended) < maxAhead {
			jobs = e.jobs
		}
		select {
		case jobs <- e.next:
			e.under[e.next] = time.Now()
			e.advance(&e.next)
		case r := <-e.done:
			e.collect(r)
		case <-ticker.C:
			e.tick()
		case <-interrupted:
			interrupted = nil
			e.stop(context.Cause(ctx))
		}
	}
	close(e.jobs)
	e.recordMachine()
	e.progress.Update(e.status())
	if err := e.save(e.result); err != nil {
		return err
	}
	return e.stopped
}

// work runs seeds until there are no more.
func (e *engine) work() {
	for seed := range e.jobs {
		level := e.profile.Level(seed)
		began := time.Now()
		o := level.Run(seed, e.plan.schedule(level), e.plan.Trace)
		e.done <- ran{seed, level, o, time.Since(began)}
	}
}

// advance moves a seed to the next one of the shard, or to the end of the plan's seeds.
func (e *engine) advance(seed *uint64) {
	if *seed += e.plan.Part.Of; *seed < e.plan.Part.Of { // beyond 64 bits
		*seed = Endless
	}
}

// mayBegin reports whether another seed may begin.
func (e *engine) mayBegin() bool {
	return e.stopping.IsZero() && e.next < e.plan.Seeds.To && e.failed < uint64(e.plan.Failures) && time.Since(e.began) < e.minutes
}

// stop begins no more seeds. The first cause is the one that counts.
func (e *engine) stop(cause error) {
	if e.stopping.IsZero() {
		e.stopping, e.stopped = time.Now(), cause
	}
}

// isOver reports whether seeds under way are not waited for any longer. What they would show is lost, and
// so is what seeds behind them have shown; a soak runs them again.
func (e *engine) isOver() bool { return !e.stopping.IsZero() && time.Since(e.stopping) > grace }

// collect records a seed that has ended, and adds to the result what is in order now.
func (e *engine) collect(r ran) {
	if _, is := e.under[r.seed]; !is {
		return // it had no more time, and was counted as failed
	}
	delete(e.under, r.seed)
	e.seeds++
	e.events += r.outcome.Events
	e.injected += uint64(r.outcome.Injections)
	e.ended[r.seed] = r
	if r.outcome.Failure != "" {
		e.failed++
	}
	for {
		r, is := e.ended[e.due]
		if !is {
			return
		}
		delete(e.ended, e.due)
		e.add(r)
	}
}

// add adds the next seed to the result.
func (e *engine) add(r ran) {
	e.result.add(r.level, r.seed, &r.outcome, r.took)
	e.machine.Seeds++
	if r.outcome.Failure != "" {
		f := newFailure(e.plan, r.level, r.seed, &r.outcome, e.machine.Revision)
		e.result.fail(f)
		e.progress.Failed(&f)
	}
	e.advance(&e.due)
	to := min(e.due, e.plan.Seeds.To)
	e.result.extend(Piece{e.plan.Part, e.from, to})
	e.from = to
}

// tick shows how far it is, saves, and gives up on runs that take too long.
func (e *engine) tick() {
	for seed, began := range e.under {
		if took := time.Since(began); took > e.plan.Patience {
			what := fmt.Sprintf("the run has not ended within %v of real time, and goes on; a longer patience tells whether it ever does", e.plan.Patience)
			e.collect(ran{seed, e.profile.Level(seed), Outcome{Failure: what, endless: true}, took})
			e.stop(nil) // its worker does not come back
		}
	}
	e.progress.Update(e.status())
	if time.Since(e.saved) < saveEvery {
		return
	}
	e.saved = time.Now()
	e.recordMachine()
	if err := e.save(e.result); err != nil {
		e.stop(err)
	}
}

// recordMachine puts into the result what this machine has done since it was noted.
func (e *engine) recordMachine() {
	e.machine.Took = time.Since(e.began)
	since := e.machine
	since.Runs, since.Seeds, since.Took = since.Runs-e.noted.Runs, since.Seeds-e.noted.Seeds, since.Took-e.noted.Took
	e.result.addMachine(since)
	e.noted = e.machine
}

func (e *engine) status() Status {
	s := Status{Elapsed: time.Since(e.began), Seeds: e.seeds, Events: e.events, Injections: e.injected, Failed: e.failed, Cells: cellsHit(&e.result.Coverage)}
	for seed, began := range e.under {
		if d := time.Since(began); d > s.Oldest {
			s.Oldest, s.OldestSeed = d, seed
		}
	}
	s.Share = s.Elapsed.Seconds() / e.minutes.Seconds()
	if e.plan.Seeds.To != Endless {
		s.Share = max(s.Share, float64(e.due-e.plan.Seeds.From)/float64(e.plan.Seeds.To-e.plan.Seeds.From))
	}
	s.Share = min(s.Share, 1)
	return s
}
