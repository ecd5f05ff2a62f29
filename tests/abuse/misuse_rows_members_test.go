package abuse_test

import (
	"fmt"
	"strings"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/diagnosis"
)

// Plans that cannot be.
var memberMisuses = []misuse{
	{
		name:   "A host is added that no member has heard",
		done:   "A plan adds host 4, which was never started.",
		advice: []string{"start it, or plan on a member that hears it"},
		make: func(s *scene) {
			a, b, c := s.trio()
			s.found(a, b, c)
			s.plans(a, "AddMember(4)", host.AddMember(4))
		},
	},
	{
		name:   "A host is added with the address of a member",
		done:   "Host 4 waits to be added. It listens on all addresses of its machine, and its `Config.Members`, and `SetPeer` on host 1, give it the address of host 2.",
		advice: []string{"each member needs its own"},
		make: func(s *scene) {
			a, b, c := s.trio()
			d := s.host(4)
			s.found(a, b, c)
			config := d.config(map[uint64]string{1: a.addr, 4: b.addr})
			config.Joins, config.Cluster, config.Listen = true, a.Cluster(), ":"+d.addr[len("127.0.0.1:"):]
			d.start(config).serve(host.GroupConfig{Joins: true})
			if err := a.SetPeer(4, b.addr); err != nil {
				s.Fatal(err)
			}
			s.rejectPlan(a, "AddMember(4)", "is the address of member 2", host.AddMember(4))
			a.logs("cannot connect to a peer", "peer=4", "this address belongs to host 2")
		},
	},
	{
		name:   "A member is added again",
		done:   "A plan adds host 2, which is a voter.",
		advice: []string{"promote a learner (PromoteMember), and replace a member whose directory is lost (ReplaceMember)"},
		make: func(s *scene) {
			a, b := s.host(1), s.host(2)
			s.found(a, b)
			s.plans(a, "AddMember(2)", host.AddMember(2))
		},
	},
	{
		name:   "A plan replaces a member that is not there",
		done:   "A plan replaces member 4 of a group of two.",
		advice: []string{"name one of these, or add host 4 (AddMember)"},
		make: func(s *scene) {
			a, b := s.host(1), s.host(2)
			s.found(a, b)
			s.plans(a, "ReplaceMember(4)", host.ReplaceMember(4))
		},
	},
	{
		name:   "A plan replaces a member whose directory is not lost",
		done:   "A plan replaces member 2, which works on its own directory.",
		advice: []string{"start it on an empty directory with Joins set, so that a member hears it"},
		make: func(s *scene) {
			a, b := s.host(1), s.host(2)
			s.found(a, b)
			s.plans(a, "ReplaceMember(2)", host.ReplaceMember(2))
		},
	},
	{
		name:   "A plan removes all voters",
		done:   "A plan removes both members of a group.",
		advice: []string{"a group keeps one voter at least: close it on all hosts to end it (Host.RemoveGroup)"},
		make: func(s *scene) {
			a, b := s.host(1), s.host(2)
			s.found(a, b)
			s.plans(a, "RemoveMember(1), RemoveMember(2)", host.RemoveMember(1), host.RemoveMember(2))
		},
	},
	{
		name:   "A plan that leaves no quorum",
		done:   "Host 3 of three is down, and a plan removes the other one that does not lead.",
		advice: []string{"start the members that are down first, or remove them before others"},
		make: func(s *scene) {
			a, b, c := s.trio()
			s.found(a, b, c)
			c.close()
			l := s.leader(a, b)
			other := a
			if l == a {
				other = b
			}
			s.label(fmt.Sprintf("[%d 3]", l.id), "<the leader and host 3>")
			s.label(fmt.Sprintf("[%d]", l.id), "<the leader>")
			l.until("that host 3 is missed", func() bool {
				plan, err := l.group().Plan(host.RemoveMember(other.id))
				if err != nil || plan.Stages[0].After >= 0 {
					return false
				}
				s.fails("The leader, Execute", l.group().Execute(deadline(s.T), plan), "would have no quorum")
				return true
			})
		},
	},
	{
		name:   "A second plan while one is under way",
		done:   "A plan adds host 4, which is stopped and does not catch up. Another plan is made meanwhile.",
		advice: []string{"wait for it, or cancel it"},
		make: func(s *scene) {
			a, b, c := s.trio()
			d := s.host(4)
			s.found(a, b, c)
			d.waits(a)
			a.until("host 4", func() bool { _, err := a.group().Plan(host.AddMember(4)); return err == nil })
			plan, err := a.group().Plan(host.AddMember(4))
			if err != nil {
				s.Fatal(err)
			}
			d.close() // so it never catches up
			a.group().StartPlan(plan)
			s.rejectPlan(a, "RemoveMember(3)", "at stage 2 of 2", host.RemoveMember(3))
			a.until("what the plan waits for", func() bool {
				waits := s.leader(a, b, c).group().Members().Waits
				if waits == "" {
					return false
				}
				s.says("The leader, Members().Waits", waits)
				return true
			})
		},
	},
	{
		name:   "A plan that is too old",
		done:   "A plan was made, then another one changed the members, and then the first is executed.",
		advice: []string{"plan again"},
		make: func(s *scene) {
			a, b, c := s.trio()
			s.found(a, b, c)
			stale, err := a.group().Plan(host.DemoteMember(3))
			if err != nil {
				s.Fatal(err)
			}
			b.change(host.DemoteMember(3))
			a.until("learner", func() bool { m := a.group().Members(); return len(m.Learners) == 1 && m.Plan == "" })
			s.fails("Host 1, Execute", a.group().Execute(deadline(s.T), stale), "have changed since the plan was made")
		},
	},
}

// rejectPlan waits until a plan is refused with some words.
func (s *scene) rejectPlan(a *actor, changes, words string, wants ...host.MemberChange) {
	s.T.Helper()
	a.until("refusal with "+words, func() bool {
		_, err := a.group().Plan(wants...)
		return err != nil && strings.Contains(err.Error(), words)
	})
	s.plans(a, changes, wants...)
}

// plans asks for a plan, which is refused.
func (s *scene) plans(a *actor, changes string, wants ...host.MemberChange) {
	s.T.Helper()
	_, err := a.group().Plan(wants...)
	s.fails(fmt.Sprintf("%s, Plan(%s)", a.name, changes), err)
}

// Hosts that were members, or should become members, and come in a wrong way.
var returnMisuses = []misuse{
	{
		name:   "A removed member returns",
		done:   "Host 3 was down when it was removed. It starts again on its old directory.",
		advice: []string{"remove its data with Host.RemoveGroup, or its directory if it has no other groups; the host can join again with an empty directory and another id"},
		make: func(s *scene) {
			a, b, c := s.trio()
			s.found(a, b, c)
			c.close()
			a.change(host.RemoveMember(3))
			b.until("two members", func() bool { return len(b.group().Members().Voters) == 2 })
			c.up(a, b, c)
			s.leaderLogs("a member is refused", "member=3")
			c.stops("host 3 was removed from group 1")
			c.explains(diagnosis.CodeStopped, "host 3 was removed from group 1")
		},
	},
	{
		name:   "The directory of a removed member under another id",
		done:   "Host 3 was removed. Its directory is started as host 4.",
		advice: []string{"give each host its own directory"},
		make: func(s *scene) {
			a, b, c := s.trio()
			s.found(a, b, c)
			a.change(host.RemoveMember(3))
			c.close()
			config := c.config(addresses(a, b, c))
			config.ID, config.Members[4] = 4, "127.0.0.1:1"
			s.fails("Host 4, Open", c.try(config))
		},
	},
	{
		name:   "The id of a removed member is given again",
		done:   "Host 3 was removed. A new host with id 3 comes with an empty directory and a join token.",
		advice: []string{"give the new member an id that was never used"},
		make: func(s *scene) {
			a, b, c := s.trio()
			s.found(a, b, c)
			a.change(host.RemoveMember(3))
			c.wipe()
			c.joins(a.token(host.JoinTokenOptions{Member: 3}), a, nil)
			c.logs("cannot connect to a peer", "peer=1", "host 3 was removed from group 1")
			s.leaderLogs("is not made a member", "host 3 was a member and was removed")
		},
	},
	{
		name:   "The directory before a replacement returns",
		done:   "Host 3 was replaced by a new directory. The old disk is found again, and host 3 starts on it.",
		advice: []string{"stop this host, or start it with an empty directory and Joins, and replace it again"},
		make: func(s *scene) {
			a, b, c := s.trio()
			s.found(a, b, c)
			c.close()
			old := s.host(3)
			s.copyDir(old, c)
			s.removeAll(c.path(""))
			c.joins(a.token(host.JoinTokenOptions{Member: 3}), a, nil)
			c.waitMembers([]uint64{1, 2, 3}, nil)
			s.work("with the new directory", a, b, c)
			c.close()
			s.removeAll(c.path(""))
			s.copyDir(c, old)
			c.up(a, b, c)
			a.logs("refused a connection", "from=3", "which was replaced")
			c.logs("cannot connect to a peer", "peer=1", "which was replaced")
		},
	},
}
