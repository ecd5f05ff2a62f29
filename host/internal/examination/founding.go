package examination

import (
	"fmt"

	"github.com/millrace/millrace/host/diagnosis"
)

// findFounding finds a group that is not founded although two election timeouts have passed.
func (e *examination) findFounding() {
	f := &e.Founding
	if f.Founded && !f.Joins || e.Now-e.Opened <= e.Bounds.Wait() {
		return
	}
	if f.Joins {
		e.found(diagnosis.CodeNotAdded, 0, e.Opened, "make a join token on a member (NewJoinToken) and start this host with it, or plan on a member to add this host, or to replace its old directory (Plan)",
			"group %d %v", e.Group, f)
		return
	}
	e.found(diagnosis.CodeNotFounded, 0, e.Opened, f.Fix(), "group %d %v", e.Group, f)
}

// isFounded reports whether the group takes commands. What members do before that is part of the founding.
func (e *examination) isFounded() bool { return e.Founding.Founded }

// findAuthority finds a member without authority: this one or, on a leader, another.
func (e *examination) findAuthority() {
	if e.Authority != nil {
		fix := "wait: it is fed by the leader; the events and the log of this host say when it has authority again"
		s := e.Status
		why := fmt.Sprintf("the log of this host may lack what it has acknowledged, so it neither votes nor counts; it holds the log through %d", s.Durable)
		switch {
		case s.Leader == 0:
			fix = "start the other members: a leader and a quorum without this member are needed; if they are lost for good, " +
				"stop this host and accept the loss with \"millrace wal repair --write --accept-loss " + e.Config.LogDir + "\""
		case e.Authority.Unmet:
			fix = "start the other members: this log was repaired, so all voters must be heard once"
		}
		e.found(diagnosis.CodeWithoutAuthority, 0, e.Authority.LostAt, fix, "%s", why)
	}
	for _, v := range e.followers() {
		if v.LostSince >= 0 {
			e.found(diagnosis.CodeWithoutAuthority, v.ID, v.LostSince, "keep the other members running until it has caught up; Explain on that host says what it waits for",
				"the log of host %d may lack what it has acknowledged, so it neither votes nor counts; it holds the log through %d", v.ID, v.Match)
		}
	}
}
