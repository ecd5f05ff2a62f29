package planted_test

// timerBugs are bugs of timers in log time, and of the leader's clock.
var timerBugs = []bug{
	{name: "timer_early", what: "a timer expires ten milliseconds of log time before its deadline", in: "timers", found: "TestQueueIsItsTwin",
		also: []judge{{in: "sim", test: "TestTimers", args: "-machines 2"}}, edits: []edit{{"timers/queue.go",
			`q.heap[0].Deadline > now {`, `q.heap[0].Deadline > now+10*time.Millisecond {`}}},
	{name: "timer_renewal_ignored", what: "a timer that is renewed keeps its earlier deadline, so an expiry wins over an acknowledged renewal", in: "timers", found: "TestQueueIsItsTwin",
		also: []judge{{in: "sim", test: "TestTimers", args: "-machines 2"}}, edits: []edit{{"timers/queue.go",
			`		q.heap[i].Deadline = deadline
`, `		q.heap[i].Deadline = min(q.heap[i].Deadline, deadline)
`}}},
	{name: "timer_twice", what: "a timer that expires stays, so the tick of a second leader lets it expire again", in: "timers", found: "TestQueueIsItsTwin",
		also: []judge{{in: "sim", test: "TestTimers", args: "-machines 2"}}, edits: []edit{{"timers/queue.go",
			`			q.remove(0)
`, `			q.remove(0)
			q.Set(key, now)
`}}},
	{name: "timer_lost_in_snapshot", what: "the last timer is lost across a snapshot", in: "timers", found: "TestQueueIsItsTwin",
		also: []judge{{in: "sim", test: "TestTimers"}}, edits: []edit{{"timers/queue.go",
			`	q.heap, q.places = other.heap, other.places
`, `	q.heap, q.places = other.heap, other.places
	if len(q.heap) > 1 {
		q.remove(len(q.heap) - 1)
	}
`}}},
	{name: "log_time_without_a_leader", what: "log time passes while no member leads, so leases end that no client could renew", in: "host/internal/apply", found: "TestLogTimeStandsStillWithoutALeader",
		also: []judge{{in: "timers", test: "TestNoTimePassesWithoutALeader"}}, edits: []edit{{"host/internal/apply/logtime.go",
			`	if !l.led {
		return l.until
	}
`, ``}}},
	{name: "clock_first_term_only", what: "the leader's clock of a node works in the first term in which it leads, and in no later one", in: "timers", found: "TestClock", edits: []edit{{"clock.go",
		`		c.lead(ctx)
	}
`, `		c.lead(ctx)
		break
	}
`}}},
	{name: "clock_early", what: "the leader's clock ticks before the first timer is due, again and again", in: "timers", found: "TestClock", edits: []edit{{"clock.go",
		`c.logTime() < f.at+logTimeStep:`, `false:`}}},
	{name: "clock_deaf", what: "the leader's clock does not hear of an earlier timer", in: "timers", found: "TestClock", edits: []edit{{"timers/queue.go",
		`	case q.sooner <- struct{}{}:
`, ``}}},
	{name: "clock_storm", what: "the leader's clock proposes refused ticks as fast as it can", found: "TestClockWaits", in: ".", edits: []edit{{"clock.go",
		`				pause(ctx)
			}
			wait(ctx, nil, min(`, `				wait(ctx, nil, time.Millisecond)
				continue
			}
			wait(ctx, nil, min(`}}},
}
