package planted_test

// reviewedBugs are bugs that reviews of the runtime and of the log have found, where no other file has them.
var reviewedBugs = []bug{
	{name: "timeouts_are_heartbeats", what: "an election timeout is cut down to whole heartbeat intervals", in: "host", found: "TestTicksOfAConfig", edits: []edit{{"host/ticks.go",
		`	period := c.tickPeriod()
	return int((c.ElectionTimeout + period - 1) / period)`, `	return ticksPerHeartbeat * int(c.ElectionTimeout/c.HeartbeatInterval)`}}},
	{name: "caller_writes_the_log", what: "a turn, or a lane, writes its line into the user's logger itself", in: "host", found: "TestCloseWithAStuckLogger", rare: true, edits: []edit{{"host/internal/reports/logwriter.go",
		`	if !l.writer.backlog.enqueue(logLine{l.Handler, r.Clone()}) {
		l.writer.dropped.Add(1)
	}
	l.writer.task.Wake()
	return nil`, `	return l.Handler.Handle(context.Background(), r)`}}},
	{name: "close_is_a_failure", what: "a group that is closed says that it has failed", in: "host", found: "TestCloseIsNoFailure", edits: []edit{{"host/end.go",
		`		close(g.life.ended)
	})
	g.snapshots.Stop()`, `		close(g.life.ended)
		close(g.life.failed)
	})
	g.snapshots.Stop()`}}},
	{name: "first_list_is_final", what: "the first start of a directory binds it to its list of hosts, although it has promised nothing", in: "host", found: "TestNeverStartedDirectoryTakesACorrection", edits: []edit{{"host/internal/identity/directory.go",
		`	started, inspection := HasStarted(fsys, LogDir(c.Dir))
	if inspection`, `	started, inspection := true, error(nil)
	if inspection`}}},
	{name: "list_of_a_voter_changes", what: "a host that has voted takes another list of hosts for a correction, and does not start", in: "host/internal/identity", found: "TestFirstListAgain", edits: []edit{{"host/internal/identity/directory.go",
		`	d.replace = !started //`, `	d.replace = true //`}}},
	{name: "lists_not_compared", what: "hosts that were founded with different lists hear each other", in: "host/internal/identity", found: "TestFounding", edits: []edit{{"host/internal/identity/admission.go",
		`	case !slices.EqualFunc(self.Members, peer.Members, ids) || self.Derived && (`, `	case false && !slices.EqualFunc(self.Members, peer.Members, ids) || false && (`}}},
	{name: "any_heartbeat", what: "a heartbeat interval of a nanosecond is taken", in: "host", found: "TestConfigValidate", edits: []edit{{"host/validation.go",
		`	case c.HeartbeatInterval < minHeartbeat:`, `	case c.HeartbeatInterval <= 0:`}}},
	{name: "pulses_wait_for_appends", what: "a pulse waits until the appends before it are written", in: "transport/tcp", found: "TestPulseAtEachBorder", edits: []edit{{"transport/tcp/line.go",
		`	if p.pulse.waiting && !l.pulse.more() && !(l.pulsed && (l.burst.more() || !p.out.empty())) {`, `	if p.pulse.waiting && !l.pulse.more() && !l.burst.more() && p.out.empty() {`}}},
	{name: "dead_links_stay", what: "a connection that a firewall has forgotten separates two hosts for ten seconds", in: "host", found: "TestStallTimeout", edits: []edit{{"host/host.go",
		`return max(3*c.ElectionTimeout, minStall)`, `return max(3*c.ElectionTimeout, 10*minStall)`}}},
	{name: "entries_share_an_array", what: "a state machine that keeps one command keeps all of its frame", in: "transport", found: "TestDetachedMessagesShareNothing", edits: []edit{{"transport/body.go",
		`func detachBytes(`, `var all []byte

func detachBytes(`}, {"transport/body.go",
		`		borrowed := *p // a variable: only then the compiler does not fill own with zeros first
		own := make([]byte, len(borrowed))
		copy(own, borrowed)
		*p = own`, `		if cap(all)-len(all) < len(*p) {
			all = make([]byte, 0, max(len(*p), FrameBodyBytes))
		}
		n := len(all)
		all = append(all, *p...)
		*p = all[n:len(all):len(all)]`}}},
	{name: "topics_without_peers", what: "a line of the log about one peer that is down hides that about another one", in: "transport/tcp", found: "TestLimitedLog", edits: []edit{{"transport/tcp/log.go",
		`	gate := l.topics[about]`, `	about.peer = 0
	gate := l.topics[about]`}}},
	{name: "slow_topics_begin_anew", what: "a line that repeats every few seconds is a new topic each time, and each repeat is written", in: "internal/repetition", found: "TestDistancesGrowForSlowTopics", edits: []edit{{"internal/repetition/repetition.go",
		`now-g.latest > forget`, `now-g.latest > 2*g.distance()`}}},
	{name: "unreadable_is_final", what: "a block that the disk cannot read makes a log that can be neither opened nor repaired", found: "TestUnreadableBlock", edits: []edit{{"wal/unreadable.go",
		`		if !IsUnreadable(err) {
			return lost, reread, fmt.Errorf("got %d of %d bytes: %w", off+n, len(p), err)`, `		if err != nil {
			return lost, reread, fmt.Errorf("got %d of %d bytes: %w", off+n, len(p), err)`}}},
}
